"""What all routes share that ask for a run: reading the body, and recording what was asked."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Header, Request, Response
from pydantic_core import from_json

from trialog.driver.api import bodies
from trialog.driver.api.dependencies import ApiDependencies
from trialog.driver.api.problems import ProblemError, broken_json, invalid
from trialog.driver.api.reader import Reader
from trialog.driver.api.routing import answer
from trialog.driver.api.steps import run_with_steps
from trialog.proto import events as ev
from trialog.proto.canonical import NotCanonicalError, digest
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
    """A run that is about to be recorded."""

    run_id: str
    fact: ev.RunRequested
    weights: bytes
    partition: int


def new_run_id(idempotency_key: str | None) -> str:
    """Return the id of a new run, or that of a key's run."""
    if idempotency_key is None:
        return run_id_from(os.urandom(32))
    return run_id_from(b"key:" + idempotency_key.encode())


async def body_of(request: Request) -> bytes:
    """Return a request's JSON text, or raise a problem."""
    return await bodies.body_of(request, TITLE)


def validated(text: str | bytes, title: str = TITLE) -> RunSpec:
    """Return a JSON text as a RunSpec, or raise a problem that names what is wrong."""
    return bodies.validated(RunSpec, text, title)


def read(text: bytes) -> Any:
    """Return a JSON text's value, or raise a problem: also for one that is nested too deep."""
    try:
        return from_json(text)
    except ValueError as error:
        raise broken_json(str(error)) from None


def digest_of(sent: Any) -> str:
    """Return the digest of what was sent; none, "", of a number that no JSON number is: what the
    settings hold of that is refused."""
    try:
        return digest(sent)
    except NotCanonicalError:
        return ""


async def there_already(
    deps: ApiDependencies, reader: Reader, run_id: str, idempotency_key: str | None, asked: str
) -> Response | None:
    """Answer with a key's run, if it is there: before anything is looked up that may be gone by
    now, such as a folder of tasks. ``asked`` is the digest of what was sent.

    Raises a 409 problem where something else was sent with the key.
    """
    if idempotency_key is None or not asked:
        return None
    there = await deps.log.at_slot(run_id, "run")
    return None if there is None else await _answered(reader, there, asked)


async def record(deps: ApiDependencies, reader: Reader, asked: Asked) -> Response:
    """Record a run and answer with it, or with its key's run where that came first."""
    run_id = asked.run_id
    if not asked.fact.asked:
        raise invalid([("", "holds a number that no JSON number is")], TITLE)
    await deps.blobs.put(asked.weights)
    event = new_event(run_id, asked.fact, partition=asked.partition)
    verdict = await deps.log.commit(Append([event]))
    if verdict.answer == "different":
        there = await deps.log.at_slot(run_id, "run")
        assert there is not None
        return await _answered(reader, there, asked.fact.asked)
    verdict.check()
    return await _shown(reader, run_id, 201)


async def _answered(reader: Reader, there: Recorded, asked: str) -> Response:
    """Answer with a run that is there, if the same was asked for then, whatever that comes to now:
    the log goes on, code changes, and a rubric's name has a later version."""
    before = there.fact()
    if not isinstance(before, ev.RunRequested) or before.asked != asked:
        raise _other_body()
    return await _shown(reader, there.run_id, 200)


async def _shown(reader: Reader, run_id: str, status: int) -> Response:
    run = await run_with_steps(reader, run_id)
    return answer(run, status, {"Location": f"/runs/{run_id}"})


def _other_body() -> ProblemError:
    detail = "this Idempotency-Key was sent with another body before"
    errors = [("Idempotency-Key", detail)]
    return ProblemError(409, "key-reused", "Idempotency-Key reused", detail, errors=errors)
