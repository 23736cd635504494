"""Two runs side by side."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import Response

from trialog.driver.api import compare_schemas as schemas
from trialog.driver.api.dependencies import Reading
from trialog.driver.api.pairs import Between, Pairs
from trialog.driver.api.reader import MOST_STEPS, Facts, Reader
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
from trialog.driver.api.steps import StepNumber
from trialog.driver.comparison import Rewards, run_side, step_rows, total, trial_row
from trialog.driver.views import Doc
from trialog.proto.ids import InvalidIdError, parse_trial_id

routes = router("runs")


@routes.get(
    "/runs/{a}/compare/{b}",
    operation_id="compare_runs",
    summary="Compare two runs",
    response_model=schemas.Comparison,
    responses=problems(404, 422),
)
async def compare_runs(
    reader: Reading,
    a: RunId,
    b: RunId,
    step: StepNumber = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response:
    """A page of the trials that either run has, in order of the text of their ids, with the delta
    of B's rewards and scores to A's. The first page also has totals and steps: means are over the
    trials that are scored in both."""
    after = "" if cursor is None else _seen(cursor)
    run_a, news_a = await reader.run_and_news(a)
    run_b, news_b = await reader.run_and_news(b)
    pairs = await Pairs.begin(reader, (a, news_a), (b, news_b))
    page = await pairs.page(Between.of_step(step, after), limit + 1)
    totals, steps = None, dict[str, Any](steps=[], steps_left_out=0)
    if cursor is None:
        rewards = await pairs.rewards(Between.of_step(step))
        totals = total(rewards.values()).compared()
        steps = await _steps(reader, rewards, (a, news_a), (b, news_b), step)
    about = {
        "a": run_side(run_a),
        "b": run_side(run_b),
        "same_tree": run_a["root"] == run_b["root"],
        "totals": totals,
    }
    trials = [trial_row(trial_id, *docs) for trial_id, docs in page[:limit]]
    last = cursor_of(page[limit - 1][0]) if len(page) > limit else None
    return answer(about | steps | {"trials": trials, "next_cursor": last})


def _seen(cursor: str) -> str:
    (trial_id,) = parts_of(cursor, 1)
    try:
        parse_trial_id(trial_id)
    except InvalidIdError:
        raise bad_cursor() from None
    return trial_id


async def _steps(
    reader: Reader,
    rewards: dict[int, Rewards],
    a: tuple[str, Facts],
    b: tuple[str, Facts],
    step: int | None,
) -> dict[str, Any]:
    """Return the first thousand steps that either run has begun."""
    docs_a, docs_b = await _docs(reader, *a, step), await _docs(reader, *b, step)
    rows = step_rows(rewards, docs_a, docs_b, MOST_STEPS)
    return {"steps": rows, "steps_left_out": len({*rewards, *docs_a, *docs_b}) - len(rows)}


async def _docs(reader: Reader, run_id: str, news: Facts, step: int | None) -> dict[int, Doc]:
    found = await reader.steps_with(run_id, news, step, -1, MOST_STEPS)
    return {n: msgspec.json.decode(d) if isinstance(d, msgspec.Raw) else d for n, d in found}
