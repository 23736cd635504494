"""What all routes share that ask for a run: reading the body, and recording what was asked."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Annotated

from fastapi import Header, Request, Response
from msgspec.structs import replace

from trialog.driver.api import bodies, rubric_names
from trialog.driver.api.dependencies import ApiDependencies
from trialog.driver.api.problems import ProblemError
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
    """A run that is about to be recorded. ``keyed``: its id comes of an Idempotency-Key.
    ``latest``: the name of the rubric, where its latest version is meant."""

    run_id: str
    fact: ev.RunRequested
    weights: bytes
    partition: int
    keyed: bool
    latest: str | None = None


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


async def with_rubric(deps: ApiDependencies, text: bytes) -> tuple[str | bytes, str | None]:
    """Return a run's JSON text with the rubric whole where it names one, and the name where its
    latest version is meant. Raises a 422 problem for a rubric that is not known."""
    given = bodies.object_of(text)
    if given is None:
        return text, None  # its validation says where it is broken
    settings, latest = await rubric_names.resolve_in(deps.engine, given, TITLE)
    return text if settings is given else json.dumps(settings), latest


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
    if there is not None and not await _is_same(deps, there, asked):
        raise _other_body()
    run = await run_with_steps(reader, run_id)
    return answer(run, 201 if there is None else 200, {"Location": f"/runs/{run_id}"})


async def _is_same(deps: ApiDependencies, there: Recorded, asked: Asked) -> bool:
    """Whether the same was asked for before, wherever the log, the code and the rubric's latest
    version were then."""
    before, fact = there.fact(), asked.fact
    if not isinstance(before, ev.RunRequested):
        return False
    if asked.latest is not None:
        spec = await rubric_names.as_then(deps.engine, asked.latest, before, fact)
        fact = replace(fact, spec=spec)
    return _asked_for(before) == _asked_for(fact)


def _asked_for(fact: ev.RunRequested) -> ev.RunRequested:
    return replace(fact, lineage=[], code={})


def _other_body() -> ProblemError:
    detail = "this Idempotency-Key was sent with another body before"
    errors = [("Idempotency-Key", detail)]
    return ProblemError(409, "key-reused", "Idempotency-Key reused", detail, errors=errors)
