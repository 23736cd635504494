"""Is a run what it must be? Compared with the golden numbers and with the tests' own model."""

from __future__ import annotations

from support import golden, reference
from support.cluster import RunSeen

FAULTS = {"flaky_trial_rate": 0.25, "judge_flake_rate": 0.3}
KEPT = ("turns", "answer", "files_written")


def assert_golden(run: RunSeen, name: str, *, retried: bool = True) -> None:
    """``retried``: False for a run that has no attempts of its own."""
    expected, trials, seen = golden.RUNS[name], run.trials(), run.get()
    assert set(trials) == set(expected["trajectories"])
    for trial_id, kept in expected["trajectories"].items():
        got = trials[trial_id]
        assert [got[key] for key in KEPT] == [kept["turns"], kept["answer"], kept["files"]]
        assert got["state"] == "judged"
    for step in expected["steps"]:
        row = seen["steps"][step["step"]]
        assert (row["mean_reward"], row["mean_turns"]) == (step["mean_reward"], step["mean_turns"])
        assert (row["n_trials"], row["n_skipped"]) == (step["n"], 0)
        for reward in step["rewards"]:
            got = trials[reward["trial_id"]]
            assert {key: got[key] for key in reward} == reward
        weights = run.prior(step["step"] + 1)
        assert {w: [round(x, 3) for x in xs] for w, xs in weights.items()} == step["prior"]
    if not retried:
        return
    tried_again = {"generate": set(), "judge": set()}
    for event in run.events("TrialRetryScheduled"):
        tried_again[event["data"]["stage"]].add(event["data"]["subject"])
    assert tried_again["generate"] == set(expected["generate_retried"])
    assert tried_again["judge"] == set(expected["judge_retried"])
    assert seen["counts"]["retried"]["generate"] == len(expected["generate_retried"])
    assert seen["counts"]["retried"]["judge"] == len(expected["judge_retried"])


def assert_model(run: RunSeen, settings: reference.Settings) -> None:
    """Compare with the tests' own model of the loop, weights to the last bit."""
    expected, trials, seen = reference.run(settings), run.trials(), run.get()
    judged = {t: trial for t, trial in trials.items() if trial["state"] == "judged"}
    assert set(judged) == set(expected.trials)
    for trial_id, made in expected.trials.items():
        got = judged[trial_id]
        want = made | {"files_written": made["files"]}
        keys = (*KEPT, "n_turns", "judge_score", "reward", "verified", "found_doc", "world_id")
        assert {key: got[key] for key in keys} == {key: want[key] for key in keys}
    for step, prior in enumerate(expected.priors):
        assert run.prior(step + 1) == prior
        assert seen["steps"][step]["mean_reward"] == round(expected.mean_rewards[step], 3)


def assert_once(run: RunSeen) -> None:
    """Nothing was asked for or done twice, and every trial has one end (I2, I3)."""
    for kind in ("TrialRequested", "TrajectoryRecorded", "TrialVerified"):
        assert set(run.slots(kind).values()) <= {1}
    ends = run.slots("Judged") + run.slots("TrialSkipped") + run.slots("TrialCancelled")
    assert set(ends) == set(run.slots("TrialRequested")) and set(ends.values()) == {1}
    assert set(run.slots("WorldBuilt", "world_id").values()) == {1}
    assert set(run.slots("StepApplied", "step").values()) == {1}
