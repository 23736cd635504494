"""What a worker knows of a run: its keys tell what this worker executes."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from support import facts as f
from trialog.proto import events as ev
from trialog.proto import runspec
from trialog.proto.keys import Keys
from trialog.spine.log import Append, Recorded, new_event
from trialog.spine.memory.log import MemoryLog
from trialog.spine.memory.store import MemoryStore
from trialog.spine.runs import Run, Runs, UnknownRunError

PINNED = {"agent:policy": "pinned", "verifier:reference": "pinned", "learner:bandit": "pinned"}


class Meeting(MemoryLog):
    """A log whose first two readers have both asked before either is answered."""

    def __init__(self) -> None:
        super().__init__(MemoryStore(), 1)
        self._both = asyncio.Barrier(2)

    async def at_slot(self, run_id: str, slot: str) -> Recorded | None:
        await self._both.wait()
        return await super().at_slot(run_id, slot)


async def run_of(
    own: dict[str, str] | None, pinned: dict[str, str] = PINNED, **settings: Any
) -> Run:
    """Return a run that pinned some code as a worker with code of its own knows it."""
    log = Meeting()
    asked = f.run_requested(**settings)
    request = ev.RunRequested(asked.spec, asked.root, asked.initial_weights, code=pinned)
    (await log.commit(Append([new_event(f.RUN, request)]))).check()
    runs = Runs(log, own)
    one, other = await asyncio.gather(runs.get(f.RUN), runs.get(f.RUN))
    assert one is other is await runs.get(f.RUN)
    return one


def keys_of(run: Run) -> tuple[str, str, str]:
    return (
        run.keys.generate("s0-p0-n0", "w", "p"),
        run.keys.verify("w0", "t"),
        run.keys.step(0, "p", ["j"]),
    )


def expected(code: dict[str, str], **settings: Any) -> tuple[str, str, str]:
    keys = Keys(runspec.load(f.run_requested(**settings).spec), code)
    return keys.generate("s0-p0-n0", "w", "p"), keys.verify("w0", "t"), keys.step(0, "p", ["j"])


def warnings(caplog: pytest.LogCaptureFixture) -> list[Any]:
    return [record for record in caplog.records if record.levelno == logging.WARNING]


async def test_what_a_worker_runs_itself_counts_and_the_rest_is_as_pinned() -> None:
    own = {"agent:policy": "own", "agent:noop": "never", "verifier:reference": "own"}
    run = await run_of(own)
    assert keys_of(run) == expected(PINNED | own)
    assert keys_of(await run_of(None)) == expected(PINNED)
    assert run.other == {"agent:policy", "verifier:reference"}
    different = [a != b for a, b in zip(keys_of(run), expected(PINNED), strict=True)]
    assert different == [True, True, False]


async def test_what_is_not_known_yet_breaks_nothing(caplog: pytest.LogCaptureFixture) -> None:
    own = {"agent:policy": "own", "verifier:reference": "own", "learner:bandit": "own"}
    for pinned in ({}, dict.fromkeys(PINNED, "")):
        run = await run_of(own, pinned)
        assert keys_of(run) == expected(own)
        assert run.other == set(pinned), "what was not known is not what the run expected"
        assert keys_of(await run_of(None, pinned)) == expected({})
    assert warnings(caplog) == []


async def test_a_declared_version_stands_whatever_the_code_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    declared: dict[str, Any] = {"versions": {"agent": "2", "verifier": "2", "learner": "2"}}
    for own in ({"agent:policy": "own"}, {"agent:policy": "other", "learner:bandit": "other"}):
        run = await run_of(own, pinned={}, **declared)
        assert keys_of(run) == expected({}, **declared) != expected({})
        assert not run.other
    assert warnings(caplog) == []


async def test_other_code_than_the_run_pinned_is_said_once_a_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    await run_of({"agent:policy": "own", "verifier:reference": "pinned", "agent:noop": "x"})
    (warning,) = warnings(caplog)
    assert "other code than the run began with" in warning.getMessage()
    assert warning.words["run_id"] == f.RUN
    assert warning.words["pinned"] == {"agent:policy": "pinned"}
    assert warning.words["own"] == {"agent:policy": "own"}


async def test_an_unknown_run_is_an_error() -> None:
    with pytest.raises(UnknownRunError, match=f.RUN):
        await Runs(MemoryLog(MemoryStore(), 1)).get(f.RUN)
