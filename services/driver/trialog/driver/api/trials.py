"""Trials and what their agents did."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import Query, Response

from trialog.driver.api import schemas
from trialog.driver.api.dependencies import Deps, Reading
from trialog.driver.api.events import shown_event
from trialog.driver.api.export import Exports
from trialog.driver.api.problems import not_found
from trialog.driver.api.reader import TrialFilter, check_trial_id
from trialog.driver.api.routing import (
    Cursor,
    Limit,
    RunId,
    TrialId,
    answer,
    cursor_of,
    json_bytes,
    parts_of,
    problems,
    router,
)
from trialog.driver.export.facts import gathered
from trialog.driver.export.run import ExportedRun
from trialog.driver.views import Doc
from trialog.proto.ids import parse_trial_id
from trialog.spine.blobs import BlobMissingError, BlobStore

routes = router("trials")


@routes.get(
    "/runs/{run_id}/trials",
    operation_id="list_trials",
    summary="List a run's trials",
    response_model=schemas.TrialPage,
    responses=problems(404, 422),
)
async def list_trials(
    deps: Deps,
    reader: Reading,
    exports: Exports,
    run_id: RunId,
    step: Annotated[int | None, Query(ge=0, le=2**31 - 1)] = None,
    state: schemas.TrialState | None = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response:
    """A page of trials in order of the text of their ids (s0-p10-n0 before s0-p2-n0)."""
    after = ""
    if cursor is not None:
        (after,) = parts_of(cursor, 1)
        check_trial_id(after)
    docs = await reader.trial_page(run_id, TrialFilter(step, state, after), limit + 1)
    page = docs[:limit]
    last = cursor_of(page[-1]["trial_id"]) if len(docs) > limit else None
    trials = await _with_turns(deps.blobs, _with_tasks(await exports.run(run_id), page))
    return answer({"trials": trials, "next_cursor": last})


@routes.get(
    "/trials/{run_id}/{trial_id}",
    operation_id="get_trial",
    summary="Look at a trial",
    response_model=schemas.TrialDetail,
    responses=problems(404),
)
async def get_trial(
    deps: Deps, reader: Reading, exports: Exports, run_id: RunId, trial_id: TrialId
) -> Response:
    """One trial with the events that name it."""
    found = [await reader.trial(run_id, trial_id)]
    (trial,) = await _with_turns(deps.blobs, _with_tasks(await exports.run(run_id), found))
    source = await exports.source(run_id, parse_trial_id(trial_id).step)
    events = await reader.trial_events(source, trial_id)
    more = await exports.told(found[0], gathered(trial_id, events))
    return answer(trial | more | {"events": [shown_event(event) for event in events]})


@routes.get(
    "/trials/{run_id}/{trial_id}/trajectory",
    operation_id="get_trajectory",
    summary="See what the agent of a trial did",
    responses=problems(404)
    | {
        200: {
            "description": "The trajectory as it was recorded.",
            "content": {
                "application/json": {
                    "schema": {"type": "object"},
                    "example": {
                        "turns": [{"doc": 3, "found": True}],
                        "answer": None,
                        "files": ["answer.txt"],
                    },
                }
            },
        }
    },
)
async def get_trajectory(deps: Deps, reader: Reading, run_id: RunId, trial_id: TrialId) -> Response:
    """The bytes that the trial's ``trajectory`` digest names."""
    trial = await reader.trial(run_id, trial_id)
    if trial["trajectory"] is None:
        detail = f"trial {run_id}/{trial_id} is {trial['state']}: it has recorded none"
        raise not_found("trajectory", detail)
    return json_bytes(await deps.blobs.get(trial["trajectory"]))


def _with_tasks(run: ExportedRun, trials: list[Doc]) -> list[Doc]:
    """Add the names of tasks, which the reference world has none of, and show scores that count."""
    tasks = [run.task(doc["trial_id"]) for doc in trials]
    return [
        doc | {"task": task and task.name, "scores": run.scores(doc)}
        for doc, task in zip(trials, tasks, strict=True)
    ]


async def _with_turns(blobs: BlobStore, trials: list[Doc]) -> list[Doc]:
    """Add what stands in the trajectories' bytes, null where there are none."""
    found = await _found(blobs, {doc["trajectory"] for doc in trials if doc["trajectory"]})
    shown: list[Doc] = []
    for doc in trials:
        content = _content(found.get(doc["trajectory"], b""))
        more = {
            "turns": content.get("turns"),
            "answer": content.get("answer"),
            "files_written": content.get("files"),
        }
        shown.append(doc | more)
    return shown


def _content(data: bytes) -> dict[str, Any]:
    """Return what a trajectory holds; one of another shape costs its own turns, not the page."""
    try:
        return msgspec.json.decode(data, type=dict)
    except msgspec.DecodeError:
        return {}


async def _found(blobs: BlobStore, digests: set[str]) -> dict[str, bytes]:
    """Return the bytes of each digest. A lost blob costs its own trial's turns, not the page."""
    try:
        return await blobs.get_many(sorted(digests))
    except BlobMissingError:
        pass
    found: dict[str, bytes] = {}
    for digest in sorted(digests):
        try:
            found[digest] = await blobs.get(digest)
        except BlobMissingError:
            continue
    return found
