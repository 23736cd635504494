"""The judge's memo in memory and in Postgres: who pays for a call, who finds it, what it cost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.judging import TRIAL, TWIN, Bench, Desk, bill_of
from support.logs import Ledger
from trialog.judge.evidence import Evidence
from trialog.judge.scoring import Call, judgment
from trialog.proto import events as ev
from trialog.proto.rubric import Criterion, Rubric
from trialog.proto.work import CALL, call_work_key
from trialog.spine.consumer import Held
from trialog.spine.log import Claim, NewWork, new_event

FLAKY: dict[str, Any] = {"judge_flake_rate": 1.0}
STYLE = Criterion(name="style", weight=0.5, prompt="Is it well written?")
TIDY = Criterion(name="tidiness", weight=0.1)
RIGHT = Criterion(name="right", check="correct")
SINGLE = Rubric(name="mine", criteria=(RIGHT, STYLE, TIDY))
WHOLE = Rubric(
    name="mine", scoring="holistic", criteria=(Criterion(name="efficiency", weight=0.5), TIDY)
)


def changed(rubric: Rubric, *criteria: Criterion, **changes: Any) -> Rubric:
    """Return a rubric with other criteria, another name or other scoring."""
    asked = {"criteria": criteria} if criteria else {}
    return rubric.model_copy(update=asked | changes)


# Asks what SINGLE asks; its judgments are others.
OURS = changed(SINGLE, name="ours")


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def judge(ledger: Ledger, desk: Desk) -> Bench:
    return Bench(ledger.open(), ledger.blobs, desk, ledger.partition)


def another(judge: Bench, ledger: Ledger) -> Bench:
    """Return a second judge's process, with the same model behind it."""
    return Bench(ledger.open(), ledger.blobs, judge.client, ledger.partition)


async def judged(judge: Bench, run: str, trial: str = TRIAL) -> ev.Judged:
    (fact,) = [fact for fact in await judge.facts(run, ev.Judged) if fact.trial_id == trial]
    return fact


async def test_a_judgments_bill_is_what_its_calls_cost_and_nothing_of_it_was_found(
    judge: Bench, desk: Desk
) -> None:
    run = await judge.run(rubric=SINGLE)
    await judge.verified(run)
    assert await judge.judge(run) == "done"
    calls = await judge.recorded(run)
    assert [call.criterion for call in calls] == ["style", "tidiness"]
    fact = await judged(judge, run)
    assert fact.bill == bill_of(*calls) and fact.bill.cost_microusd > 0
    assert fact.memo == ev.Bill()
    assert await judge.judge(run) == "done", "a message that comes twice finds it done"
    assert len(desk.calls) == 2


async def test_a_judgment_that_was_tried_again_rests_on_its_own_earlier_calls(
    judge: Bench, desk: Desk
) -> None:
    run = await judge.run(rubric=SINGLE, faults=FLAKY)
    await judge.verified(run)
    assert await judge.judge(run) == "injected"
    assert await judge.judge(run) == "done"
    fact = await judged(judge, run)
    assert fact.memo == fact.bill == bill_of(*await judge.recorded(run))
    assert len(desk.calls) == 2


async def test_an_invalid_reply_is_on_no_judgments_bill(judge: Bench, desk: Desk) -> None:
    desk.replies = [b"8/10"]
    run = await judge.run(rubric=WHOLE)
    await judge.verified(run)
    assert await judge.judge(run) == "done"
    invalid, valid = await judge.recorded(run)
    assert (await judged(judge, run)).bill == bill_of(valid)
    assert invalid.cost_microusd > 0, "paid by the run all the same"


async def test_twins_are_two_judgments_that_pay_once_per_criterion(
    judge: Bench, desk: Desk
) -> None:
    run = await judge.run(rubric=SINGLE)
    for trial in (TRIAL, TWIN):
        await judge.verified(run, trial, like=TRIAL)
        assert await judge.judge(run, trial) == "done"
    first, second = await judged(judge, run), await judged(judge, run, TWIN)
    assert first.bill == second.bill == second.memo and first.memo == ev.Bill()
    assert first.action_key != second.action_key and first.digest != second.digest
    assert first.reward == second.reward
    assert len(desk.calls) == len(await judge.recorded(run)) == 2


async def test_twins_under_a_whole_rubric_are_two_calls(judge: Bench, desk: Desk) -> None:
    """The reference judge's noise depends on the trial."""
    run = await judge.run(rubric=WHOLE)
    for trial in (TRIAL, TWIN):
        await judge.verified(run, trial, like=TRIAL)
        await judge.judge(run, trial)
    assert len(set(desk.calls)) == len(desk.calls) == 2


def test_the_digest_of_a_judgment_leaves_out_what_it_cost_and_who_paid() -> None:
    evidence = Evidence(TRIAL, {}, True, 3, 2)
    one = judgment(Rubric(name="r", criteria=(RIGHT,)), evidence)
    assert set(type(one).__struct_fields__) == {"scores", "score", "reward", "digest"}
    assert set(Evidence.__struct_fields__) == {
        *("trial_id", "trajectory", "verified", "found_doc", "n_turns", "reward")
    }


async def test_the_same_judgment_has_one_digest_whoever_paid(judge: Bench, desk: Desk) -> None:
    run = await judge.run(rubric=SINGLE)
    fork = await judge.run(run, rubric=SINGLE)
    for each in (run, fork):
        await judge.verified(each)
        await judge.judge(each)
    paid, found = await judged(judge, run), await judged(judge, fork)
    assert (paid.memo, found.memo) == (ev.Bill(), paid.bill)
    assert (paid.digest, paid.action_key) == (found.digest, found.action_key)


@pytest.mark.parametrize(
    ("before", "after", "calls"),
    [
        (SINGLE, changed(SINGLE, RIGHT, STYLE.model_copy(update={"weight": 9.0}), TIDY), 0),
        (SINGLE, changed(SINGLE, RIGHT, STYLE.model_copy(update={"prompt": "Good?"}), TIDY), 1),
        (SINGLE, changed(SINGLE, RIGHT, STYLE.model_copy(update={"scale": (1.0, 5.0)}), TIDY), 1),
        (SINGLE, changed(SINGLE, RIGHT, STYLE, TIDY, Criterion(name="manners")), 1),
        (SINGLE, changed(SINGLE, STYLE), 0),
        (SINGLE, changed(SINGLE, TIDY, RIGHT, STYLE), 0),
        (SINGLE, changed(SINGLE, name="ours"), 0),
        (WHOLE, changed(WHOLE, name="ours"), 1),
        (WHOLE, changed(WHOLE, WHOLE.criteria[0], TIDY.model_copy(update={"weight": 0.2})), 1),
    ],
    ids=[
        *("weights", "text", "scale", "added", "removed", "reordered", "renamed"),
        *("holistic-renamed", "holistic-weights"),
    ],
)
async def test_a_fork_asks_only_what_is_new(
    judge: Bench, desk: Desk, before: Rubric, after: Rubric, calls: int
) -> None:
    run = await judge.run(rubric=before)
    await judge.verified(run)
    await judge.judge(run)
    asked = len(desk.calls)
    fork = await judge.run(run, rubric=after)
    await judge.verified(fork)
    await judge.judge(fork)
    assert len(desk.calls) - asked == calls
    made = [call for call in await judge.recorded(fork) if call.provenance is None]
    found = [call for call in await judge.recorded(fork) if call.provenance is not None]
    assert len(made) == calls
    fact = await judged(judge, fork)
    assert (fact.bill, fact.memo) == (bill_of(*made, *found), bill_of(*found))


@pytest.mark.parametrize(
    "model", [{"model": "another"}, {"temperature": 0.5}, {"max_tokens": 7}], ids=str
)
async def test_another_model_or_sampling_is_asked_anew(
    judge: Bench, desk: Desk, model: dict[str, Any]
) -> None:
    run = await judge.run(rubric=SINGLE)
    fork = await judge.run(run, rubric=SINGLE, judge=model)
    for each in (run, fork):
        await judge.verified(each)
        await judge.judge(each)
    assert len(set(desk.calls)) == len(desk.calls) == 4
    assert {call.model for call in await judge.recorded(fork)} == {
        model.get("model", "reference-judge")
    }


async def test_two_deliveries_of_one_judgment_make_its_calls_once(
    judge: Bench, ledger: Ledger, desk: Desk
) -> None:
    """A worker whose lease had lapsed goes on beside the one that took over."""
    desk.go_on.clear()
    run = await judge.run(rubric=SINGLE)
    await judge.verified(run)
    first, second = judge, another(judge, ledger)
    question = await first.question(run)
    asking = [asyncio.create_task(each.ask(question)) for each in (first, second)]
    await desk.asked.get()
    desk.go_on.set()
    answers = await asyncio.gather(*asking)
    assert sorted(answer.made for answer in answers) == [False, True]
    assert answers[0].reply == answers[1].reply
    assert len(desk.calls) == 1
    assert len(await judge.facts(run, ev.JudgeCallStarted)) == 1


async def test_runs_of_one_tree_at_once_make_a_call_once_and_name_who_paid(
    judge: Bench, ledger: Ledger, desk: Desk
) -> None:
    """A parent and two forks of it, all started together, each judged by a process of its own."""
    desk.go_on.clear()
    root = await judge.run(rubric=SINGLE)
    runs = [root, await judge.run(root, rubric=SINGLE), await judge.run(root, rubric=SINGLE)]
    for run in runs:
        await judge.verified(run)
    judging = [asyncio.create_task(another(judge, ledger).judge(run)) for run in runs]
    await desk.asked.get()
    desk.go_on.set()
    assert await asyncio.gather(*judging) == ["done"] * 3
    assert len(desk.calls) == 2 and len(set(desk.calls)) == 2
    positions: dict[str, ev.Provenance] = {}
    for run in runs:
        for event in await judge.log.read_run(run, 0, 1000):
            if isinstance(fact := event.fact(), ev.JudgeCallRecorded) and fact.provenance is None:
                positions[fact.call_key] = ev.Provenance(run, event.position)
    recorded = [call for run in runs for call in await judge.recorded(run)]
    assert len(recorded) == 6
    for call in recorded:
        assert call.provenance in (None, positions[call.call_key])
        assert await judge.blobs.get(call.reply)
    bills = [await judged(judge, run) for run in runs]
    paid = sum(fact.bill.calls - fact.memo.calls for fact in bills)
    assert paid == 2 and {fact.bill for fact in bills} == {bills[0].bill}


async def test_what_an_ancestor_paid_before_the_fork_and_a_sibling_after_it_is_found(
    judge: Bench, desk: Desk
) -> None:
    tidy, style = changed(SINGLE, TIDY), changed(SINGLE, STYLE)
    root = await judge.run(rubric=tidy)
    await judge.verified(root)
    await judge.judge(root)
    fork, sibling = await judge.run(root, rubric=SINGLE), await judge.run(root, rubric=style)
    grandchild = await judge.run(fork, rubric=SINGLE)
    for run in (sibling, fork, grandchild):
        await judge.verified(run)
        await judge.judge(run)
    assert len(desk.calls) == 2
    for run in (fork, grandchild):
        payers = {call.criterion: call.provenance for call in await judge.recorded(run)}
        assert payers["tidiness"] is not None and payers["tidiness"].run_id == root
        assert payers["style"] is not None and payers["style"].run_id == sibling
        for call in await judge.recorded(run):
            assert call.provenance is not None
            paid = await judge.log.at_position(judge.partition, call.provenance.position)
            assert paid is not None and paid.run_id == call.provenance.run_id
            source = paid.fact()
            assert isinstance(source, ev.JudgeCallRecorded) and source.provenance is None
            assert (source.call_key, source.reply) == (call.call_key, call.reply)
        assert (await judged(judge, run)).memo.calls == 2


async def test_a_found_reply_stands_beside_an_invalid_one_of_this_runs_own(
    judge: Bench, ledger: Ledger, desk: Desk
) -> None:
    """A fork got an invalid reply and another run the valid one: both are on the fork's log."""
    root = await judge.run(rubric=WHOLE)
    fork = await judge.run(root, rubric=WHOLE)
    for run in (root, fork):
        await judge.verified(run)
    desk.replies = [b"8/10", b"8/10", b"8/10"]
    assert await judge.judge(fork) == "infrastructure"
    assert await another(judge, ledger).judge(root) == "done"
    assert await judge.judge(fork) == "done"
    calls = await judge.recorded(fork)
    assert [(call.valid, call.ordinal) for call in calls] == [
        *((False, 0), (False, 1), (False, 2)),
        (True, 3),
    ]
    assert calls[-1].provenance is not None and calls[-1].provenance.run_id == root


async def test_twins_of_a_fork_record_what_they_found_once(judge: Bench, desk: Desk) -> None:
    root = await judge.run(rubric=SINGLE)
    await judge.verified(root)
    await judge.judge(root)
    fork = await judge.run(root, rubric=OURS)
    for trial in (TRIAL, TWIN):
        await judge.verified(fork, trial, like=TRIAL)
        assert await judge.judge(fork, trial) == "done"
        assert (await judged(judge, fork, trial)).memo.calls == 2
    calls = await judge.recorded(fork)
    assert len(calls) == 2 and all(call.provenance for call in calls)
    assert len(desk.calls) == 2


async def test_a_reply_is_found_by_a_run_that_was_paused_or_has_ended(
    judge: Bench, desk: Desk
) -> None:
    """What stands on the log costs nothing: no pause holds it back."""
    root = await judge.run(rubric=SINGLE)
    await judge.verified(root)
    await judge.judge(root)
    fork = await judge.run(root, rubric=OURS)
    await judge.verified(fork)
    held = await judge.held(fork)
    assert not isinstance(held, str)
    await judge.append(fork, ev.RunPaused(0))
    await judge.handlers.on_trial_verified(held)
    assert (await judged(judge, fork)).memo.calls == 2


async def test_runs_that_are_no_relatives_share_nothing(judge: Bench, desk: Desk) -> None:
    for _ in range(2):
        run = await judge.run(rubric=SINGLE)
        await judge.verified(run)
        await judge.judge(run)
    assert len(desk.calls) == 4 and len(set(desk.calls)) == 2, "one key, claimed in each tree"


async def test_what_a_dead_judge_may_have_paid_shows_as_started_and_not_recorded(
    judge: Bench, ledger: Ledger, desk: Desk
) -> None:
    """Killed between the reply and its record: the only case that repeats a call (I4)."""
    run = await judge.run(rubric=WHOLE)
    held, call = await judge.question(run)
    attempt = ev.JudgeCallStarted(TRIAL, call.key, 1, call.criterion, "reference-judge")
    dead = another(judge, ledger)
    await _die_with_the_reply(dead, held, call, attempt)
    await ledger.void(dead.log.incarnation)
    answer = await judge.ask((held, call))
    assert answer.made and desk.calls == [call.key] * 2
    started = await judge.facts(run, ev.JudgeCallStarted)
    assert [fact.fence for fact in started] == [1, 2]
    assert len(await judge.recorded(run)) == 1


async def test_a_call_that_died_with_a_parents_judge_is_paid_by_the_fork_that_takes_it_over(
    judge: Bench, ledger: Ledger, desk: Desk
) -> None:
    root = await judge.run(rubric=WHOLE)
    fork = await judge.run(root, rubric=WHOLE)
    ours, theirs = await judge.question(root), await judge.question(fork)
    held, call = ours
    attempt = ev.JudgeCallStarted(TRIAL, call.key, 1, call.criterion, "reference-judge")
    dead = another(judge, ledger)
    await _die_with_the_reply(dead, held, call, attempt)
    await ledger.void(dead.log.incarnation)
    assert (await judge.ask(theirs)).made
    found = await judge.ask(ours)
    assert not found.made and found.reply.provenance is not None
    assert found.reply.provenance.run_id == fork
    for run, calls in ((root, (1, 0)), (fork, (1, 1))):
        started = await judge.facts(run, ev.JudgeCallStarted)
        made = [call for call in await judge.recorded(run) if call.provenance is None]
        assert (len(started), len(made)) == calls, "what may be lost shows where it was started"


async def _die_with_the_reply(dead: Bench, held: Held, call: Call, started: ev.Fact) -> None:
    run_id = held.run.run_id
    event = new_event(run_id, started, partition=dead.partition)
    key = call_work_key(held.run.root, call.key)
    claim = Claim(key, 60_000, 0, [event], NewWork(CALL, run_id))
    assert (await dead.log.commit(claim)).ok
    await dead.client.call(call.request, idempotency_key=call.key, latency_s=0, timeout_s=9)
