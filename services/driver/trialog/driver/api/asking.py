"""What all routes share that ask for a run: reading the body, and recording what was asked."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Annotated

from fastapi import Header, Request, Response
from msgspec.structs import replace
from pydantic import ValidationError

from trialog.driver.api.bodies import mistakes
from trialog.driver.api.dependencies import ApiDependencies
from trialog.driver.api.problems import ProblemError, broken_json, invalid
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
    """Return a request's JSON text; raises a problem for what no parser would complain of."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        detail = f"the content type must be application/json, not {kind or 'missing'}"
        raise ProblemError(415, "unsupported-media-type", "Unsupported media type", detail)
    body = await request.body()
    if wrong := mistakes(body):
        raise invalid(wrong, TITLE)
    return body


def validated(text: str | bytes) -> RunSpec:
    """Return a JSON text as a RunSpec, or raise a problem that names what is wrong."""
    try:
        # From the text: a spec is strict, and strict about JSON is not strict about Python.
        return RunSpec.model_validate_json(text)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
    if found[0]["type"] == "json_invalid":
        raise broken_json(found[0]["msg"].removeprefix("Invalid JSON: "))
    raise invalid([_named(one["loc"], one["msg"]) for one in found], TITLE)


def _named(place: tuple[int | str, ...], message: str) -> tuple[str, str]:
    """Return the dotted path of a wrong field with what is wrong; a rule that spans fields begins
    its message with the name of one."""
    message = message.removeprefix("Value error, ")
    parts = [str(part) for part in place if part != "[key]"]
    if parts[:1] == ["rubric"]:
        del parts[1:2]  # which of the two it is, a name or a whole one
    if not parts:
        first = message.partition(" ")[0]
        parts = [first] if first.partition(".")[0] in RunSpec.model_fields else []
    return ".".join(parts), message


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
    if there is not None and not _is_same(there, asked.fact):
        raise _other_body()
    run = await run_with_steps(reader, run_id)
    return answer(run, 201 if there is None else 200, {"Location": f"/runs/{run_id}"})


def _is_same(there: Recorded, fact: ev.RunRequested) -> bool:
    """Whether the same was asked for before, wherever the log and the code were then."""
    before = there.fact()
    return isinstance(before, ev.RunRequested) and _asked_for(before) == _asked_for(fact)


def _asked_for(fact: ev.RunRequested) -> ev.RunRequested:
    return replace(fact, lineage=[], code={})


def _other_body() -> ProblemError:
    detail = "this Idempotency-Key was sent with another body before"
    errors = [("Idempotency-Key", detail)]
    return ProblemError(409, "key-reused", "Idempotency-Key reused", detail, errors=errors)
