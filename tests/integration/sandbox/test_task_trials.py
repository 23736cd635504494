"""Trials of tasks in real sandboxes: what an agent finds there, and what it may leave."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.task_worker import TaskWorker, a_task
from trialog.sandbox.bubblewrap.provider import BubblewrapProvider
from trialog.sandbox.trials.left import MAX_BYTES

ONE = "echo 1 > /logs/verifier/reward.txt"


@pytest.fixture
async def worker(tmp_path: Path) -> AsyncIterator[TaskWorker]:
    provider = BubblewrapProvider(tmp_path / "provider", orphan_s=0)
    yield TaskWorker(provider, tmp_path)
    await provider.close()
    assert list((tmp_path / "provider/run").iterdir()) == []


def script(text: str) -> dict[str, Any]:
    """Return the settings of a run whose agent runs a script."""
    return {"agent": "command", "agent_options": {"command": text}}


async def test_an_agent_finds_nothing_of_its_grading(worker: TaskWorker) -> None:
    """Neither tests nor solution, in no folder and no variable."""
    names = "-name 'solve.sh' -o -name 'test.sh'"
    look = f"(ls -a / /tests /solution; env; find / -xdev {names}) > seen.txt 2>&1"
    task = a_task(test=f"cat /app/seen.txt; {ONE}", toml='[verifier.env]\nSECRET_WORD = "blue"')
    ended = await worker.play(await worker.ask(task, **script(f'sh -c "{look}"; true')))
    assert ended.verified is not None
    seen = (await worker.record_of(ended.verified.record))["test-stdout.txt"].decode()
    assert "blue" not in seen
    assert "solve.sh" not in seen
    assert "/tests/test.sh" not in seen
    assert "cannot access '/tests'" in seen
    assert "TRIALOG_DATABASE" not in seen


async def test_services_answer_the_tests(worker: TaskWorker) -> None:
    serve = "(while read asked < /tmp/ask; do echo $asked > /tmp/told; done) > /dev/null 2>&1 &"
    test = "echo 0.5 > /tmp/ask; cat /tmp/told > /logs/verifier/reward.txt"
    task = a_task(f"mkfifo /tmp/ask /tmp/told\n{serve}", test)
    ended = await worker.play(await worker.ask(task))
    assert ended.outcome == (0.5, "")
    assert ended.verified is not None
    assert ended.verified.mode == "shared"


LEFT = {
    "fifo": "mkfifo /logs/verifier/reward.txt",
    "directory": "mkdir -p /logs/verifier/reward.json/x",
    "link": "ln -s /etc/passwd /logs/verifier/reward.txt",
    "link on the way": "rm -r /logs/verifier; ln -s /etc /logs/verifier",
    "sparse": "truncate -s 900M /logs/verifier/reward.txt",
    "huge": "head -c 900M /dev/urandom > /logs/verifier/reward.json",
    "many": "cd /logs/verifier; i=0; while [ $i -lt 3000 ]; do i=$((i+1)); echo $i > f$i; done",
    "deep": "cd /logs/verifier; for i in $(seq 400); do mkdir d && cd d; done; echo 1 > x",
    "odd names": "cd /logs/verifier; touch \"$(printf 'a\\377b')\" 'c d' -- '--x'; mkfifo p",
    "unreadable": "chmod 000 /logs/verifier",
    "daemon": "setsid sh -c 'while :; do echo 9 > /logs/verifier/reward.json; done' &",
}


@pytest.mark.parametrize("left", LEFT.values(), ids=LEFT.keys())
async def test_what_a_verifier_leaves_cannot_hurt_the_worker(
    worker: TaskWorker, left: str, tmp_path: Path
) -> None:
    """Whatever it is, the trial ends in bounded memory and time: a verdict or a named error."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    run_id = await worker.ask(a_task(test=left))
    async with asyncio.timeout(60):
        ended = await worker.play(run_id)
    if ended.failure is not None:
        assert ended.failure.failure in ("task", "infrastructure")
        assert ended.failure.error
        if ended.failure.record:
            assert len(await worker.blobs.get(ended.failure.record)) < MAX_BYTES
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000
    assert not list((tmp_path / "provider/run").iterdir())


BROKEN = {
    "no shell": "rm -f /bin/sh /usr/bin/sh",
    "a shell of its own": "printf '#!/bin/bash\nexit 0\n' > /tmp/s; cp /tmp/s /bin/sh",
    "no logs": "rm -rf /logs; echo file > /logs",
    "tests are a file": "echo file > /tests",
    "tests are a link": "ln -s /etc /tests",
    "read only": "chmod 000 /logs/verifier",
    "a fork bomb": "(f() { f | f & }; f) > /dev/null 2>&1 &",
    "a full disk": "head -c 3G /dev/zero > /fill",
    "all memory": "tail -c 3G /dev/zero > /tmp/x",
    "many files": "mkdir many; cd many; seq 10000 | xargs touch",
}


@pytest.mark.slow
@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN.keys())
async def test_what_an_agent_breaks_is_its_own_trial(
    worker: TaskWorker, broken: str, tmp_path: Path
) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    limits = "[agent]\ntimeout_sec = 20\n[verifier]\ntimeout_sec = 20"
    task = a_task(f"{broken}\ntrue", ONE, toml=limits)
    async with asyncio.timeout(120):
        ended = await worker.play(await worker.ask(task))
    assert ended.outcome[0] in (1.0, None), "no attack is paid more than the tests pay"
    if ended.failure is not None:
        assert ended.failure.failure in ("task", "agent", "infrastructure")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000
    assert not list((tmp_path / "provider/run").iterdir())
    fine = await worker.play(await worker.ask(a_task()))
    assert fine.outcome == (1.0, ""), "the next trial knows nothing of it"


async def test_many_at_once_are_none_lost_and_leave_nothing(
    worker: TaskWorker, tmp_path: Path
) -> None:
    helds = [await worker.request(await worker.ask(a_task())) for _ in range(24)]
    ended = await asyncio.gather(*(worker.work(held) for held in helds))
    assert [each.outcome for each in ended] == [(1.0, "")] * 24
    assert not list((tmp_path / "provider/run").iterdir())
    assert not list((tmp_path / "scratch").glob("*/[!.]*"))
