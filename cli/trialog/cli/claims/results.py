"""Claims about what the run made: it is the golden run, to the letter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from trialog.cli.claims.row import Row, compare, row
from trialog.cli.facts import Facts


def completed(facts: Facts) -> Row:
    """The run completed all its steps."""
    return row("The run completes", "completed", facts.run["state"])


def all_judged(facts: Facts) -> Row:
    """Every requested trial reached one end, and that a judgment (I3)."""
    wanted = len(facts.golden["trajectories"])
    requested = [data["trial_id"] for data in facts.data_of("TrialRequested")]
    ends = Counter(data["trial_id"] for data in facts.data_of("Judged"))
    others = facts.data_of("TrialSkipped", "TrialCancelled")
    ok = (
        len(requested) == wanted
        and set(ends) == set(requested)
        and set(ends.values()) == {1}
        and not others
    )
    measured = f"{len(ends)} of {len(requested)} judged, {len(others)} otherwise"
    return row(
        "Every trial ends judged, once", f"{wanted} of {wanted} judged, 0 otherwise", measured, ok
    )


def golden_turns(facts: Facts) -> Row:
    """Trial ids, turns and answers are the golden ones, to the letter."""
    expected = {
        trial_id: (golden["turns"], golden["answer"], golden["world_id"])
        for trial_id, golden in facts.golden["trajectories"].items()
    }
    measured = {
        trial_id: (trial["turns"], trial["answer"], trial["world_id"])
        for trial_id, trial in facts.trials.items()
    }
    return compare("Trial ids, turns and answers are golden", "trials", expected, measured)


def golden_files(facts: Facts) -> Row:
    """The files that each agent wrote are the golden ones."""
    expected = {t: golden["files"] for t, golden in facts.golden["trajectories"].items()}
    measured = {trial_id: trial["files_written"] for trial_id, trial in facts.trials.items()}
    return compare("Files written are golden", "trials", expected, measured)


def golden_rewards(facts: Facts) -> Row:
    """Verdicts, scores and rewards are the golden ones, to 3 decimals."""
    keys = ("verified", "found_doc", "judge_score", "reward")
    expected = {
        reward["trial_id"]: tuple(reward[key] for key in keys)
        for step in facts.golden["steps"]
        for reward in step["rewards"]
    }
    measured = {
        trial_id: (
            trial["verified"],
            trial["found_doc"],
            _rounded(trial["judge_score"]),
            _rounded(trial["reward"]),
        )
        for trial_id, trial in facts.trials.items()
    }
    return compare("Scores and rewards are golden", "trials", expected, measured)


def _rounded(value: float | None, digits: int = 3) -> float | None:
    return None if value is None else round(value, digits)


def golden_means(facts: Facts) -> Row:
    """Mean reward and mean turns of each step are the golden ones."""
    expected = {
        f"step {step['step']}": (step["mean_reward"], step["mean_turns"])
        for step in facts.golden["steps"]
    }
    measured = {
        f"step {step['step']}": (_rounded(step["mean_reward"]), _rounded(step["mean_turns"], 2))
        for step in facts.run["steps"]
    }
    return compare("Mean reward and turns are golden", "steps", expected, measured)


def golden_weights(facts: Facts) -> Row:
    """The weights after each step are the golden ones, to 3 decimals."""
    expected = {
        f"version {step['step'] + 1}": _prior(step["prior"]) for step in facts.golden["steps"]
    }
    measured = {
        f"version {version}": _prior(weights["doc_prior"])
        for version, weights in facts.weights.items()
    }
    return compare("Weights of each version are golden", "versions", expected, measured)


def _prior(prior: Mapping[str, list[float]]) -> dict[str, list[float]]:
    return {world: [round(value, 3) for value in values] for world, values in prior.items()}
