"""What a run shows of its judge calls: spent, saved, and without a reply on the log."""

from __future__ import annotations

from collections.abc import Sequence

from support import facts as f
from trialog.driver.views import Doc, evolve_run
from trialog.proto import events as ev

TRIAL = "s0-p0-n0"


def cost_of(facts: Sequence[ev.Fact]) -> Doc:
    doc: Doc | None = None
    for event in f.recorded(f.RUN, facts):
        doc = evolve_run(doc, event, event.fact())
    assert doc is not None
    return doc["cost"]


def test_dollars_add_up_exactly() -> None:
    calls = [f.judge_call(TRIAL, ordinal=n, cost_microusd=100_000) for n in range(30)]
    assert cost_of([f.run_requested(), *calls])["usd"] == 3.0
    bill = ev.Bill(1, 1, 1, 100_001)
    ends = [f.judged(f"s0-p{n}-n0", bill=bill, memo=bill) for n in range(30)]
    assert cost_of([f.run_requested(), *ends])["saved_by_memo"]["usd"] == 3.00003


def test_what_was_on_the_log_already_is_saved_and_told_apart_from_what_was_recovered() -> None:
    origin = ev.Provenance("r-ponmlkjihgfedcba", 12)
    two, one = ev.Bill(2, 200, 40, 600), ev.Bill(1, 100, 20, 300)
    cost = cost_of(
        [
            f.run_requested(),
            f.judge_call(TRIAL),
            f.judge_call(TRIAL, ordinal=1, provenance=origin),
            f.judged(TRIAL, bill=two, memo=one),
            f.judged("s0-p1-n0", bill=two),
            f.judged("s0-p2-n0", bill=two, memo=one, provenance=origin),
            f.judged("s0-p3-n0", bill=two, provenance=origin),
        ]
    )
    assert (cost["judge_calls"], cost["usd"]) == (1, 0.0003)
    assert cost["saved_by_memo"] == {
        "judge_calls": 1,
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "usd": 0.0003,
    }
    assert cost["saved_by_recovery"] == {
        "judge_calls": 4,
        "prompt_tokens": 400,
        "completion_tokens": 80,
        "usd": 0.0012,
    }


def test_a_call_without_a_reply_on_the_log_is_shown_until_there_is_one() -> None:
    def started(fence: int) -> ev.JudgeCallStarted:
        return ev.JudgeCallStarted(TRIAL, f"call-{TRIAL}", fence, "all", "m")

    facts: list[ev.Fact] = [f.run_requested()]
    seen: list[tuple[int, int]] = []
    for fact in (
        started(1),  # its worker died
        started(2),
        f.judge_call(TRIAL, valid=False, score=None),
        started(3),
        f.judge_call(TRIAL, ordinal=1),
        f.judge_call("s0-p1-n0", provenance=ev.Provenance("r-ponmlkjihgfedcba", 12)),
    ):
        facts.append(fact)
        cost = cost_of(facts)
        seen.append((cost["calls_started"], cost["calls_unrecorded"]))
    assert seen == [(1, 1), (2, 2), (2, 1), (3, 2), (3, 1), (3, 1)]


def test_a_step_that_was_recovered_whole_is_saved_whole() -> None:
    origin = ev.Provenance("r-ponmlkjihgfedcba", 12)
    bill = ev.Bill(6, 600, 120, 1800)
    step = f.step_applied(provenance=origin, bill=bill, whole=True)
    cost = cost_of([f.run_requested(), step])
    assert cost["saved_by_recovery"]["judge_calls"] == 6
    assert cost["saved_by_recovery"]["usd"] == 0.0018
    executed = cost_of([f.run_requested(), f.step_applied(bill=bill)])
    assert executed["saved_by_recovery"]["judge_calls"] == 0
