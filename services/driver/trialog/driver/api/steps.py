"""A run's steps: page by page, or as many as a run is shown with."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Response

from trialog.driver.api import schemas
from trialog.driver.api.dependencies import Reading
from trialog.driver.api.reader import MOST_STEPS, Reader
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
from trialog.driver.views import Doc

_DIGITS = 9

routes = router("runs")

StepNumber = Annotated[int | None, Query(ge=0, le=2**31 - 1, description="Only this step.")]


@routes.get(
    "/runs/{run_id}/steps",
    operation_id="list_steps",
    summary="List a run's steps",
    response_model=schemas.StepPage,
    responses=problems(404, 422),
)
async def list_steps(
    reader: Reading,
    run_id: RunId,
    step: StepNumber = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response:
    """A page of the steps that have begun, in order."""
    after = -1 if cursor is None else _seen(cursor)
    found = await reader.step_page(run_id, step, after, limit + 1)
    last = cursor_of(str(found[limit - 1][0])) if len(found) > limit else None
    return answer({"steps": [shown for _, shown in found[:limit]], "next_cursor": last})


def _seen(cursor: str) -> int:
    (number,) = parts_of(cursor, 1)
    if not (number.isascii() and number.isdigit() and len(number) <= _DIGITS):
        raise bad_cursor()
    return int(number)


async def run_with_steps(reader: Reader, run_id: str) -> Doc:
    """Return a run in full, as it is shown. Raises a 404 problem."""
    run, steps = await reader.run_in_full(run_id)
    last = cursor_of(str(steps[MOST_STEPS - 1][0])) if len(steps) > MOST_STEPS else None
    shown = [step for _, step in steps[:MOST_STEPS]]
    return run | {"steps": shown, "steps_cursor": last}
