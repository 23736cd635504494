"""Two runs side by side: what is scored in both is compared, and nothing else is."""

from __future__ import annotations

from support import facts as f
from trialog.driver.comparison import Rewards, step_rows, total, trial_row
from trialog.driver.views import Doc, evolve_trial
from trialog.proto import events as ev

TRIAL = "s0-p0-n0"
SOURCE = ev.Provenance("r-ponmlkjihgfedcba", 12)


def doc_of(*facts: ev.Fact) -> Doc:
    doc: Doc | None = None
    for event in f.recorded(f.RUN, [f.run_requested(), f.trial_requested(TRIAL), *facts]):
        doc = evolve_trial(doc, event, event.fact())
    assert doc is not None
    return doc


def judged_doc(reward: float, blob: str = "0" * 64, **scores: float) -> Doc:
    return doc_of(
        f.trajectory(TRIAL, blob=blob),
        f.verified(TRIAL),
        f.judged(TRIAL, reward=reward, scores=scores),
    )


SKIPPED = doc_of(ev.TrialSkipped(TRIAL, 0, "straggler"))


def rewards(*pairs: tuple[float | None, float | None]) -> Rewards:
    """Return trials that both runs have, by their rewards."""
    found = Rewards()
    for a, b in pairs:
        found.add({"reward": a}, {"reward": b})
    return found


def test_means_are_over_what_is_scored_in_both() -> None:
    first = rewards((1.0, 2.0), (None, 100.0), (100.0, None), (0.0, 0.5))
    first.add({"reward": 7.0}, None)
    second = Rewards()
    second.add(None, {"reward": 3.0})
    assert total([first, second]).compared() == {
        "n": 2,
        "mean_reward": {"a": 0.5, "b": 1.25},
        "delta": 0.75,
        "n_trials": {"a": 5, "b": 5},
        "n_scored": {"a": 4, "b": 4},
    }
    assert first.compared()["n"] == 2, "adding up leaves the steps as they are"
    assert second.compared() == {
        "n": 0,
        "mean_reward": {"a": None, "b": None},
        "delta": None,
        "n_trials": {"a": 0, "b": 1},
        "n_scored": {"a": 0, "b": 1},
    }


def test_a_delta_is_of_the_means_and_not_of_what_is_shown_of_them() -> None:
    found = rewards((0.004, 0.018), *[(0.0, 0.0)] * 9).compared()
    assert found["mean_reward"] == {"a": 0.0, "b": 0.002}
    assert found["delta"] == 0.0014


def test_nothing_compared_is_no_zero() -> None:
    found = total([]).compared()
    assert (found["n"], found["mean_reward"], found["delta"]) == (0, {"a": None, "b": None}, None)


def test_a_trial_shows_both_sides_and_what_differs() -> None:
    a = judged_doc(1.615, correct=1.0, efficiency=0.875)
    b = judged_doc(2.412, correct=0.0, style=0.5)
    row = trial_row(TRIAL, a, b)
    assert (row["trial_id"], row["step"], row["same_trajectory"]) == (TRIAL, 0, True)
    assert row["delta"] == {
        "reward": 0.797,
        "scores": {"correct": -1.0, "efficiency": None, "style": None},
    }
    assert (row["a"]["reward"], row["b"]["reward"]) == (1.615, 2.412)
    assert row["a"]["provenance"]["judge"] == {"state": "executed", "run_id": f.RUN, "position": 5}
    other = trial_row(TRIAL, a, judged_doc(1.0, blob="1" * 64))
    assert other["same_trajectory"] is False


def test_a_trial_without_a_verdict_on_one_side_has_no_delta() -> None:
    a = judged_doc(1.615, correct=1.0)
    for other in (SKIPPED, doc_of(f.trajectory(TRIAL))):
        row = trial_row(TRIAL, a, other)
        assert row["delta"] is None and row["b"]["reward"] is None
    assert trial_row(TRIAL, a, SKIPPED)["b"]["skip_reason"] == "straggler"
    alone = trial_row(TRIAL, None, a)
    assert (alone["a"], alone["delta"], alone["same_trajectory"]) == (None, None, None)
    assert alone["step"] == 0


def test_a_reward_of_zero_is_a_reward() -> None:
    row = trial_row(TRIAL, judged_doc(0.0, correct=0.0), judged_doc(0.0, correct=0.0))
    assert row["delta"] == {"reward": 0.0, "scores": {"correct": 0.0}}
    found = Rewards()
    found.add(judged_doc(0.0), judged_doc(0.0))
    assert (found.compared()["n"], found.compared()["delta"]) == (1, 0.0)


def test_a_skipped_trial_counts_as_there_and_not_as_scored() -> None:
    found = Rewards()
    found.add(judged_doc(1.5), SKIPPED)
    found.add(SKIPPED, None)
    assert found == Rewards(n_a=2, n_b=1, scored_a=1)


def test_steps_that_one_run_has_not_begun_have_one_side() -> None:
    step = {
        "state": "applied",
        "mean_reward": 2.0,
        "n_skipped": 1,
        "trained": True,
        "provenance": {"state": "recovered", "run_id": SOURCE.run_id, "position": 12},
        "pid": 7,
    }
    sums = {0: rewards((1.0, 2.0)), 1: Rewards(n_b=1, scored_b=1)}
    first, second, third = step_rows(sums, {0: step}, {0: step, 1: step, 2: step}, most=10)
    assert (first["step"], first["n"], first["delta"]) == (0, 1, 1.0)
    assert first["a"] == {key: value for key, value in step.items() if key != "pid"}
    assert (second["a"], second["b"]["mean_reward"], second["n"]) == (None, 2.0, 0)
    assert (third["step"], third["n_trials"]) == (2, {"a": 0, "b": 0})
    assert len(step_rows(sums, {0: step}, {1: step}, most=1)) == 1
