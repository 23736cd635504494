"""Makes the plan of a fork from the log: a dry run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from trialog.driver import queries
from trialog.driver import state as fold
from trialog.driver.ancestors import Ancestors
from trialog.driver.decide import decide
from trialog.driver.lineage import Lineage
from trialog.driver.plan import CallCost, Plan
from trialog.driver.state import RunState
from trialog.proto import events as ev
from trialog.proto import runspec
from trialog.proto.changes import changes
from trialog.proto.tasks.manifest import Manifest
from trialog.proto.work import call_work_key
from trialog.spine.blobs import BlobStore
from trialog.spine.log import EventLog
from trialog.spine.postgres.log import PostgresLog
from trialog.spine.runs import tasks_of

_SAMPLE = 2000
_DRY = "r-dry"
_OTHER_START = "n_worlds changed, and with it the first weights"


async def planned(
    log: PostgresLog, blobs: BlobStore, partition: int, request: ev.RunRequested
) -> dict[str, Any]:
    """Return what a fork would execute and recover, step by step, and what that would cost."""
    parent = await _request_of(log, request.lineage[0].run_id)
    was, now = [await tasks_of(blobs, runspec.load(one.spec)) for one in (parent, request)]
    plan = await counted(log, partition, request, (was, now))
    return plan.shown(await _costs(log, request))


async def counted(
    log: EventLog,
    partition: int,
    request: ev.RunRequested,
    tasks: tuple[Manifest, Manifest] = ((), ()),
) -> Plan:
    """Return the actions of a fork, counted; ``tasks`` are its parent's and its own."""
    state = fold.begin(_DRY, partition, request, tasks[1])
    ancestors = Ancestors(log)
    above = [await _request_of(log, ancestor.run_id) for ancestor in request.lineage]
    trains_alike = any(not changes(each, request)["train_step"] for each in above)
    reasons = changes(above[0], request, tasks)
    if above[0].initial_weights != request.initial_weights:
        # Of the first step only: those after it tell of the step before.
        reasons["generate"].append(_OTHER_START)
    plan = Plan(state, reasons)
    asked: set[str] = set()
    while (step := state.step) is not None:
        number = step.number
        lineage = await ancestors.read(state)
        facts = _decided(state, lineage)
        closed = state.step is not step
        unrequested = 0 if closed else len(step.unrequested)
        calls = await _calls(log, state, facts, asked)
        trained = trains_alike and number in lineage.whole
        plan.add_step(number, facts, calls, closed, unrequested, trained)
        if closed:
            continue
        if state.trains and not state.rescoring:
            plan.add_rest(number + 1)
            break
        # Nothing is trained: what a step's judgments come to changes no other step.
        last = number + 1 >= state.spec.n_steps
        state.step = None if last else fold.new_step(state, number + 1)
    return plan


async def _request_of(log: EventLog, run_id: str) -> ev.RunRequested:
    event = await log.at_slot(run_id, "run")
    assert event is not None
    fact = event.fact()
    assert isinstance(fact, ev.RunRequested)
    return fact


def _decided(state: RunState, lineage: Lineage) -> list[ev.Fact]:
    """Fold what follows from a state until its step is over or work would have to be done."""
    step, made = state.step, list[ev.Fact]()
    while state.step is step:
        facts = decide(state, 0.0, lambda: 0.0, lineage).facts
        if not facts:
            break
        for fact in facts:
            fold.evolve(state, fact, state.position + 1, 0.0)
        made += facts
    return made


async def _calls(
    log: EventLog, state: RunState, facts: Iterable[ev.Fact], before: set[str]
) -> dict[str, list[tuple[str, bool]]]:
    """Return the calls of each judgment that is to be made of a recovered verification: criterion,
    and whether the tree has its reply. Twins share a call: it counts once, and not at all when it
    is among those ``before``, to which it adds."""
    wanted = {
        fact.trial_id: state.keys.calls(fact)
        for fact in facts
        if isinstance(fact, ev.TrialVerified) and not fact.settled
    }
    root = state.request.root
    keys = [call_work_key(root, key) for calls in wanted.values() for _, key in calls]
    there = await log.done(keys)
    found: dict[str, list[tuple[str, bool]]] = {}
    for trial, calls in wanted.items():
        for asked, key in calls:
            if key not in before:
                before.add(key)
                is_there = call_work_key(root, key) in there
                found.setdefault(trial, []).append((asked.criterion, is_there))
    return found


async def _costs(log: PostgresLog, request: ev.RunRequested) -> dict[str, CallCost]:
    """Return what recorded calls took by criterion: the last ones of the nearest ancestor that
    has any."""
    async with log.database.connection() as connection:
        for ancestor in request.lineage:
            rows = await connection.fetch(
                queries.CALL_COSTS, ancestor.run_id, ancestor.position, _SAMPLE
            )
            if rows:
                return {row[0]: CallCost(*row[1:]) for row in rows}
    return {}
