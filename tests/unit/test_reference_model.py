"""The tests' own model of the reference loop gives the golden numbers, so it may judge others."""

import pytest
from support import golden, reference

SETTINGS = {
    "clean": reference.Settings(),
    "injected": reference.Settings(flaky=0.25, judge_flake=0.3),
    "fork_v2": reference.Settings(flaky=0.25, judge_flake=0.3, rubric="v2-efficiency"),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_model_gives_the_golden_run(name: str) -> None:
    expected, got = golden.RUNS[name], reference.run(SETTINGS[name])
    for trial_id, trajectory in expected["trajectories"].items():
        assert {k: got.trials[trial_id][k] for k in ("turns", "answer", "files")} == {
            k: trajectory[k] for k in ("turns", "answer", "files")
        }
    for step, row in enumerate(expected["steps"]):
        assert round(got.mean_rewards[step], 3) == row["mean_reward"]
        assert round(got.mean_turns[step], 2) == row["mean_turns"]
        rounded = {w: [round(x, 3) for x in v] for w, v in got.priors[step].items()}
        assert rounded == row["prior"]
    assert got.judge_retried == set(expected["judge_retried"])


def test_model_retries_what_the_golden_run_retried() -> None:
    expected = golden.RUNS["injected"]
    assert reference.run(SETTINGS["injected"]).generate_retried == set(expected["generate_retried"])
