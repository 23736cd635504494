"""What a verifier leaves, and what it comes to: row by row as in the real harbor package.

tests/golden/harbor-outcomes.json is what the package did with the same task folders. Our runtime is
always held against it; the package itself where it and a daemon are (decision 0036).
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support import dockerd, harbor_here, harbor_rows, harbor_runner
from support.harbor_here import Seen
from support.harbor_runner import Outcome

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),  # the first test waits for all rows
]

ROWS = harbor_rows.rows()
GOLDEN = harbor_runner.golden()

# Where we say something else, and why. (rewards, error)
DIFFERENT: Mapping[str, tuple[dict[str, float] | None, str | None]] = {
    # The package's oracle keeps a failed solution's exit code in a file only; we record the class
    # that its other agents have for it, beside the reward.
    "solution-fails": ({"reward": 1.0}, "NonZeroAgentExitCodeError"),
    # The package leaves the step out of the mean: a trial looks better for a verifier that failed.
    # A step without a verdict is no verdict on the whole.
    "steps-second-without-reward": (None, "RewardFileNotFoundError"),
}


def expected(row: str) -> tuple[dict[str, float] | None, str | None]:
    """Return a row's outcome in our terms: what went wrong in a step went wrong in the trial, and
    ``{}`` are no rewards at all."""
    if row in DIFFERENT:
        return DIFFERENT[row]
    found = GOLDEN["rows"][row]
    errors = [found["error"]] + [step["error"] for step in found.get("steps", {}).values()]
    return found["rewards"] or None, next((error for error in errors if error), None)


@pytest.fixture(
    scope="module",
    params=["bubblewrap", pytest.param("docker", marks=dockerd.MARKS)],
)
def here(request: pytest.FixtureRequest) -> dict[str, Seen]:
    """Every row, played by our worker."""
    return asyncio.run(_all_rows(request.param))


async def _all_rows(provider: str) -> dict[str, Seen]:
    with tempfile.TemporaryDirectory(prefix="trialog-rows-") as name:
        folder = Path(name)
        tasks = {row: harbor_here.texts(harbor_rows.put(row, folder)) for row in ROWS}
        async with harbor_here.worker(provider, folder / "worker") as place:
            return await harbor_here.play(place, tasks)


@pytest.mark.parametrize("row", ROWS)
def test_a_row_ends_as_in_the_package(here: dict[str, Seen], row: str) -> None:
    seen = here[row]
    assert (seen.rewards or None, seen.error or None) == expected(row)
    # What has a reward says in what it was graded, and what has none was not scored.
    assert (seen.mode is None) == (seen.rewards is None) == (seen.reward is None)


def test_what_differs_really_differs() -> None:
    for row, ours in DIFFERENT.items():
        found = GOLDEN["rows"][row]
        assert (found["rewards"], found["error"]) != ours, row


def test_every_row_is_recorded() -> None:
    assert sorted(GOLDEN["rows"]) == ROWS
    examples = sorted(path.parent.name for path in harbor_rows.EXAMPLES.glob("*/task.toml"))
    for agent in ("oracle", "nop"):
        assert sorted(GOLDEN["examples"][agent]) == examples


WITH_HARBOR = [
    *dockerd.MARKS,
    pytest.mark.skipif(
        bool(harbor_runner.missing()), reason=harbor_runner.missing() or "it is there"
    ),
]


@pytest.mark.parametrize("agent", ["oracle", "nop"])
def test_the_examples_state_what_the_package_gives_them(agent: str) -> None:
    for name, found in GOLDEN["examples"][agent].items():
        stated = json.loads((harbor_rows.EXAMPLES / name / "expected.json").read_text())[agent]
        reward = found["rewards"] and found["rewards"]["reward"]
        if stated["error"] == "NonZeroAgentExitCodeError":
            assert (stated["reward"], None) == (reward, found["error"]), name
        else:
            assert (stated["reward"], stated["error"]) == (reward, found["error"]), name


def with_harbor(value: str) -> Any:
    return pytest.param(value, marks=[pytest.mark.timeout(1200), *WITH_HARBOR])


@pytest.mark.parametrize("agent", [with_harbor("oracle")])
def test_the_package_still_does_what_is_recorded(agent: str, tmp_path: Path) -> None:
    harbor_rows.put_all(tmp_path)
    _same(harbor_runner.run(tmp_path, agent), GOLDEN["rows"])


@pytest.mark.parametrize("agent", [with_harbor("oracle"), with_harbor("nop")])
def test_the_package_ends_the_examples_as_recorded(agent: str) -> None:
    _same(harbor_runner.run(harbor_rows.EXAMPLES, agent), GOLDEN["examples"][agent])


def _same(found: Mapping[str, Outcome], recorded: Mapping[str, Any]) -> None:
    assert {name: harbor_runner.recorded(one) for name, one in found.items()} == recorded
