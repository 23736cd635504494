"""Where a run comes from, and the tree that it is in."""

from __future__ import annotations

from fastapi import Response

from trialog.driver.api import compare_schemas as schemas
from trialog.driver.api.dependencies import ApiDependencies, Deps, Reading
from trialog.driver.api.reader import Reader
from trialog.driver.api.routing import (
    Cursor,
    Limit,
    RunId,
    answer,
    bad_cursor,
    cursor_of,
    parts_of,
    problems,
    router,
)
from trialog.driver.api.spec_diff import changes
from trialog.driver.views import Doc

_DIGITS = 18
_OWN = ("run_id", "state", "mode", "from_step", "rubric")
_LINE = ("parent", "created_at", "steps_applied", "n_steps", "mean_reward", "cost")

routes = router("runs")


@routes.get(
    "/runs/{run_id}/lineage",
    operation_id="get_lineage",
    summary="See where a run comes from",
    response_model=schemas.Lineage,
    responses=problems(404, 422),
)
async def get_lineage(
    deps: Deps, reader: Reading, run_id: RunId, limit: Limit = 100, cursor: Cursor = None
) -> Response:
    """The chain of a run's ancestors, each with what the next one changed, and a page of all runs
    of its tree in the order in which they were asked for."""
    after = 0 if cursor is None else _seen(cursor)
    run = await reader.run(run_id)
    rows = await reader.tree_page(run["root"], after, limit + 1)
    last = cursor_of(str(rows[limit - 1][0])) if len(rows) > limit else None
    docs = [run if doc["run_id"] == run_id else doc for _, doc in rows[:limit]]
    return answer(
        {
            "run_id": run_id,
            "root": run["root"],
            "ancestors": await _ancestors(deps, reader, run_id),
            "runs": [_line(doc) for doc in docs],
            "next_cursor": last,
        }
    )


def _seen(cursor: str) -> int:
    (position,) = parts_of(cursor, 1)
    if not (position.isascii() and position.isdigit() and len(position) <= _DIGITS):
        raise bad_cursor()
    return int(position)


async def _ancestors(deps: ApiDependencies, reader: Reader, run_id: str) -> list[Doc]:
    request = (await deps.runs.get(run_id)).request
    docs = await reader.runs([each.run_id for each in request.lineage])
    shown: list[Doc] = []
    for seen in request.lineage:
        before = (await deps.runs.get(seen.run_id)).request
        own = {key: docs[seen.run_id][key] for key in _OWN}
        shown.append(own | {"position": seen.position, "changes": changes(before, request)})
        request = before
    return shown


def _line(doc: Doc) -> Doc:
    counts = {name: doc["counts"][name] for name in ("executed", "recovered")}
    return {key: doc[key] for key in (*_OWN, *_LINE)} | counts
