"""How fast a log folds: in memory, and from Postgres through the driver's own follower.

``python benchmarks/replay.py [EVENTS]``: a log of runs with 6 trials a step. Prints one JSON line a
figure.
"""

from __future__ import annotations

import asyncio
import datetime
import json
import statistics
import sys
import time
import uuid

from trialog.cli.stack.options import StackOptions
from trialog.cli.stack.stack import Stack
from trialog.driver import state as fold
from trialog.driver.follower import Follower
from trialog.proto import events as ev
from trialog.proto.policy import initial_weights
from trialog.proto.runspec import RunSpec
from trialog.spine.database import Database
from trialog.spine.log import Append, NewEvent, Recorded, new_event
from trialog.spine.memory.blobs import MemoryBlobs
from trialog.spine.memory.store import MemoryStore
from trialog.spine.postgres.log import PostgresLog

RUN = "r-abcdefghijklmnop"
RUNS = 5
_K = "0" * 64


def course(n_steps: int) -> list[ev.Fact]:
    """Return the events of a run of 3 prompts x 2 samples that is still going on."""
    spec = RunSpec(n_steps=n_steps + 1)
    facts: list[ev.Fact] = [ev.RunRequested(spec.recorded(), RUN, _K)]
    for world in ("w0", "w1", "w2"):
        facts += [ev.WorldRequested(world, _K), ev.WorldBuilt(world, _K, _K)]
    for step in range(n_steps):
        trials = [(f"s{step}-p{p}-n{n}", f"w{p}") for p in range(3) for n in range(2)]
        facts += [ev.TrialRequested(t, step, w, _K, step, _K, _K) for t, w in trials]
        for t, w in trials:
            call = f"{_K[:40]}-{t}"
            facts += [
                ev.TrajectoryRecorded(t, step, _K, _K, _K, 3, 0, "sandbox-1234567890abcdef"),
                ev.TrialVerified(t, step, _K, True, 1, _K, _K, 3),
                ev.JudgeCallStarted(t, call, 1, "*", "reference-judge"),
                ev.JudgeCallRecorded(t, call, 0, "*", "m", True, 1.3, 100, 20, 600, 500.0, {}, _K),
                ev.Judged(t, step, w, _K, _K, 1.3, 2.3, True, 1, 3, {"correct": 1.0}),
            ]
        facts.append(ev.StepRequested(step, _K, _K, _K, 6, 0))
        applied = ev.StepApplied(step, _K, True, _K, _K, step + 1, 6, 0, 2.3, 3.0, _K, 1)
        facts.append(applied)
    return facts


def recorded(event: NewEvent, position: int) -> Recorded:
    """Return an event as it is read back."""
    now = datetime.datetime.now(datetime.UTC)
    return Recorded(0, position, uuid.uuid4(), RUN, event.type, 1, event.data, now)


def fold_all(events: list[Recorded]) -> fold.RunState:
    """Decode and fold a whole log."""
    request = events[0].fact()
    assert isinstance(request, ev.RunRequested)
    state = fold.begin(RUN, 0, request)
    for event in events[1:]:
        at_ms = event.recorded_at.timestamp() * 1000
        fold.evolve(state, event.fact(), event.position, at_ms)
    return state


def say(figure: str, value: float, unit: str, how: str) -> None:
    """Print one figure."""
    print(json.dumps({"figure": figure, "value": round(value, 4), "unit": unit, "how": how}))


async def from_postgres(events: list[NewEvent], n_steps: int) -> None:
    """Write the log to a real Postgres and let a follower begin from it."""
    options = StackOptions(with_ray=False, with_services=False, migrate=True)
    async with Stack(options) as stack:
        database = Database(stack.database_url)
        log = PostgresLog(database, 1)
        started = time.perf_counter()
        for start in range(0, len(events), 500):
            (await log.commit(Append(events[start : start + 500]))).check()
        took_s = time.perf_counter() - started
        say("append", len(events) / took_s, "events/s", "batches of 500, chained, fsync on")
        times: list[float] = []
        for _ in range(RUNS):
            follower = Follower(log, MemoryBlobs(MemoryStore()), 0)
            started = time.perf_counter()
            await follower.begin()
            times.append(time.perf_counter() - started)
            assert follower.states[RUN].weights_version == n_steps
        took_s = statistics.median(times)
        how = f"Follower.begin() on {len(events)} events, reading included, median of {RUNS}"
        say("replay_from_postgres", len(events) / took_s, "events/s", how)
        say("replay_per_step_of_6_trials", took_s / n_steps * 1000, "ms", how)
        await log.close()
        await database.dispose()


def main() -> None:
    """Measure and print."""
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    n_steps = wanted // 38
    assert initial_weights(3)
    # A retry offers work anew; here no event does, so that the log alone is measured.
    events = [new_event(RUN, fact, offered=False) for fact in course(n_steps)]
    log = [recorded(event, position) for position, event in enumerate(events, 1)]
    times: list[float] = []
    for _ in range(RUNS):
        started = time.perf_counter()
        state = fold_all(log)
        times.append(time.perf_counter() - started)
        assert state.weights_version == n_steps
    how = f"decode and fold of {len(log)} events in memory, one core, median of {RUNS}"
    say("fold", len(log) / statistics.median(times), "events/s", how)
    asyncio.run(from_postgres(events, n_steps))


if __name__ == "__main__":
    main()
