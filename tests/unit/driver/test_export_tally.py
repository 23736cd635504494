"""The tasks of a run: means over what was scored, the rest apart."""

from __future__ import annotations

from typing import Any

from support import exports as x
from support import facts as f
from trialog.driver.export.tally import Tally
from trialog.driver.views import Doc
from trialog.proto import events as ev


def doc(*facts: ev.Fact) -> Doc:
    return x.document_of(x.TRIAL, [f.trial_requested(x.TRIAL), *facts])


def scored(reward: float, **more: Any) -> Doc:
    graded = x.graded(x.TRIAL, reward, **more)
    return doc(f.trajectory(x.TRIAL, blob="0" * 64), graded, x.judged(x.TRIAL, reward))


UNSCORED = doc(ev.TrialSkipped(x.TRIAL, 0, "retries_exhausted", error="VerifierTimeoutError"))


def test_means_are_over_scored_trials_and_a_failure_is_no_zero() -> None:
    """I11."""
    tally = Tally()
    for one in (scored(1.0), scored(0.5), UNSCORED, doc(ev.TrialCancelled(x.TRIAL, 0)), doc()):
        tally.add("hello", one)
    assert tally.rows() == [
        {
            "task": "hello",
            "trials": 5,
            "scored": 2,
            "unscored": 2,
            "open": 1,
            "mean_reward": 0.75,
            "rewards": {"reward": 0.75},
            "errors": {"VerifierTimeoutError": 1, "cancelled": 1},
            "modes": {"separate": 2},
        }
    ]


def test_a_task_without_a_score_has_no_mean_and_weighs_nothing() -> None:
    tally = Tally()
    tally.begin("untried")
    tally.add("broken", UNSCORED)
    tally.add("good", scored(1.0))
    for _ in range(3):
        tally.add("poor", scored(0.0))
    means = {row["task"]: row["mean_reward"] for row in tally.rows()}
    assert means == {"untried": None, "broken": None, "good": 1.0, "poor": 0.0}
    totals = tally.totals()
    assert totals["mean_reward"] == 0.5  # over tasks, not over trials
    assert (totals["tasks"], totals["tasks_scored"]) == (4, 2)
    assert (totals["trials"], totals["scored"], totals["unscored"]) == (5, 4, 1)


def test_each_reward_has_a_mean_of_its_own() -> None:
    tally = Tally()
    tally.add("a", scored(1.0, rewards={"correct": 1.0, "fast": 0.0}))
    tally.add("a", scored(1.0, rewards={"correct": 1.0}))
    tally.add("b", scored(0.0, rewards={"correct": 0.0, "fast": 1.0}, error="AgentTimeoutError"))
    assert [row["rewards"] for row in tally.rows()] == [
        {"correct": 1.0, "fast": 0.0},
        {"correct": 0.0, "fast": 1.0},
    ]
    assert tally.totals()["rewards"] == {"correct": 0.5, "fast": 0.5}
    assert tally.totals()["errors"] == {"AgentTimeoutError": 1}


def test_a_run_without_trials_has_no_mean() -> None:
    assert Tally().totals()["mean_reward"] is None
