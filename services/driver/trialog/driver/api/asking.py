"""What all routes share that ask for a run: reading the body, and recording what was asked."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Header, Request, Response
from pydantic_core import from_json

from trialog.driver.api import bodies
from trialog.driver.api.dependencies import ApiDependencies
from trialog.driver.api.problems import ProblemError, broken_json
from trialog.driver.api.reader import Reader
from trialog.driver.api.routing import answer
from trialog.driver.api.steps import run_with_steps
from trialog.proto import events as ev
from trialog.proto.ids import run_id_from
from trialog.proto.runspec import RunSpec
from trialog.spine.log import Append, Recorded, new_event

IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=200,
        description="Sent again with the same body, the same key answers the same run.",
        examples=["nightly-2026-11-30"],
    ),
]
# Of requests with one key that race, each that did not find the run answers 201: the log says where
# a fact stands, not who was first to say it.
THERE = (
    "This key's run, found there already. Sent at once by many, several may answer 201: either "
    "way it is the one run of the key."
)
TITLE = "Invalid run"


@dataclass(frozen=True, slots=True)
class Asked:
    """A run that is about to be recorded. ``keyed``: its id comes of an Idempotency-Key."""

    run_id: str
    fact: ev.RunRequested
    weights: bytes
    partition: int
    keyed: bool


def new_run_id(idempotency_key: str | None) -> str:
    """Return the id of a new run, or that of a key's run."""
    if idempotency_key is None:
        return run_id_from(os.urandom(32))
    return run_id_from(b"key:" + idempotency_key.encode())


async def body_of(request: Request) -> bytes:
    """Return a request's JSON text, or raise a problem."""
    return await bodies.body_of(request, TITLE)


def validated(text: str | bytes) -> RunSpec:
    """Return a JSON text as a RunSpec, or raise a problem that names what is wrong."""
    return bodies.validated(RunSpec, text, TITLE)


def read(text: bytes) -> Any:
    """Return a JSON text's value, or raise a problem: also for one that is nested too deep."""
    try:
        return from_json(text)
    except ValueError as error:
        raise broken_json(str(error)) from None


async def record(deps: ApiDependencies, reader: Reader, asked: Asked) -> Response:
    """Record a run, unless its key's run is there, and answer with it."""
    run_id = asked.run_id
    there = await deps.log.at_slot(run_id, "run") if asked.keyed else None
    if there is None:
        await deps.blobs.put(asked.weights)
        event = new_event(run_id, asked.fact, partition=asked.partition)
        verdict = await deps.log.commit(Append([event]))
        if verdict.answer == "different":
            there = await deps.log.at_slot(run_id, "run")
        else:
            verdict.check()
    if there is not None and not _is_same(there, asked):
        raise _other_body()
    run = await run_with_steps(reader, run_id)
    return answer(run, 201 if there is None else 200, {"Location": f"/runs/{run_id}"})


def _is_same(there: Recorded, asked: Asked) -> bool:
    """Whether the same was asked for before, whatever that comes to now: the log goes on, code
    changes, and a rubric's name has a later version."""
    before = there.fact()
    return isinstance(before, ev.RunRequested) and before.asked == asked.fact.asked


def _other_body() -> ProblemError:
    detail = "this Idempotency-Key was sent with another body before"
    errors = [("Idempotency-Key", detail)]
    return ProblemError(409, "key-reused", "Idempotency-Key reused", detail, errors=errors)
