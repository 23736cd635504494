"""Agents that want a reward without having earned it, and what each of them comes to.

The scripts of tests/tasks/attacks state it themselves, for a verifier in a sandbox of its own and
for one in the agent's file system. The agent is root and every file of its sandbox is its own.
docs/reward-hacking.md shows the table.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest
from support import dockerd, harbor_attacks, harbor_here, harbor_root
from support.harbor_attacks import IMAGE, Attack
from support.harbor_here import Seen

TIMEOUT_S = 1800  # the first test waits for all attacks, on a machine that may be busy

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(TIMEOUT_S),
    pytest.mark.skipif(bool(harbor_root.missing()), reason=harbor_root.missing()),
]

ATTACKS = harbor_attacks.attacks()
DOCS = Path(__file__).parents[2] / "docs" / "reward-hacking.md"
HONEST = {
    "right answer": ("answer", "mkdir -p /app/out; echo 1764 > /app/out/answer.txt", 1.0),
    "wrong answer": ("answer", "mkdir -p /app/out; echo 1765 > /app/out/answer.txt", 0.0),
    "right module": ("code", "echo 'def add(a, b): return a + b' > /app/solution.py", 1.0),
    "wrong module": ("code", "echo 'def add(a, b): return a - b' > /app/solution.py", 0.0),
    "nothing": ("code", "true", 0.0),
}
Outcomes = dict[tuple[str, bool], Seen]


@pytest.fixture(scope="module")
def root() -> Generator[Path]:
    """The root filesystem of all sandboxes, as a file."""
    with tempfile.TemporaryDirectory(prefix="trialog-root-") as name:
        yield harbor_root.make(Path(name) / "root.tar")


@pytest.fixture(
    scope="module",
    params=[
        "bubblewrap",
        pytest.param("docker", marks=[pytest.mark.timeout(TIMEOUT_S), *dockerd.MARKS]),
    ],
)
def outcomes(request: pytest.FixtureRequest, root: Path) -> Generator[Outcomes]:
    """Every attack, and every honest try, under both verifiers: (name, separate)."""
    if request.param == "docker":
        dockerd.docker("import", str(root), IMAGE)
    honest = {
        name: Attack(name, f"#!/bin/sh\n{script}\n", task, "", "", "")
        for name, (task, script, _) in HONEST.items()
    }
    yield asyncio.run(_all(request.param, root, ATTACKS | honest))
    if request.param == "docker":
        dockerd.docker("rmi", IMAGE)


async def _all(provider: str, root: Path, attacks: dict[str, Attack]) -> Outcomes:
    tasks = {
        (name, separate): attack.files(separate=separate)
        for name, attack in attacks.items()
        for separate in (True, False)
    }
    with tempfile.TemporaryDirectory(prefix="trialog-attacks-") as name:
        images = {IMAGE: f"tar:{root}"}
        async with harbor_here.worker(provider, Path(name), images) as place:
            labelled = {f"{attack}/{kind}": files for (attack, kind), files in tasks.items()}
            seen = await harbor_here.play(place, labelled)
    return dict(zip(tasks, seen.values(), strict=True))


@pytest.mark.parametrize("name", ATTACKS)
def test_it_ends_as_stated_where_the_verifier_is_apart(outcomes: Outcomes, name: str) -> None:
    seen = outcomes[name, True]
    assert harbor_attacks.is_stated(seen, ATTACKS[name].separate), seen
    assert seen.mode in ("separate", None)


@pytest.mark.parametrize("name", ATTACKS)
def test_it_ends_as_stated_in_the_agents_own_file_system(outcomes: Outcomes, name: str) -> None:
    seen, attack = outcomes[name, False], ATTACKS[name]
    assert harbor_attacks.is_stated(seen, attack.shared), seen
    if attack.shared_mode:
        assert seen.mode == attack.shared_mode


@pytest.mark.parametrize("separate", [True, False])
@pytest.mark.parametrize("name", HONEST)
def test_honest_tries_get_what_they_earn(outcomes: Outcomes, name: str, separate: bool) -> None:
    seen = outcomes[name, separate]
    assert (seen.reward, seen.error) == (HONEST[name][2], None)
    assert seen.mode == ("separate" if separate else "restored")


def test_apart_only_what_runs_in_the_graders_process_gets_through() -> None:
    through = {name for name, attack in ATTACKS.items() if attack.separate == "1"}
    assert through == {"always-equal", "exit-at-import", "patched-at-import", "whiteouts"}
    # A right answer: the attack is on what stands beside it.
    assert "echo 1764" in ATTACKS["whiteouts"].script
    # A comparison of data, in a sandbox of its own, lets nothing through that was not earned.
    assert {ATTACKS[name].task for name in through - {"whiteouts"}} == {"code"}


@pytest.mark.parametrize("name", ATTACKS)
def test_the_table_of_the_documentation_has_it(name: str) -> None:
    assert harbor_attacks.table_row(ATTACKS[name]) in DOCS.read_text().splitlines()
