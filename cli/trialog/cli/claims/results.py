"""Claims about what the run made: it is the golden run, to the letter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trialog.cli.claims.row import Row, compare, row
from trialog.cli.facts import Facts

if TYPE_CHECKING:
    from trialog.client.models import Trial, Weights


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
    return compare(
        "Trial ids, turns and answers are golden",
        "trials",
        {
            trial_id: (golden["turns"], golden["answer"], golden["world_id"])
            for trial_id, golden in facts.golden["trajectories"].items()
        },
        {
            trial_id: (trial["turns"], trial["answer"], trial["world_id"])
            for trial_id, trial in facts.trials.items()
        },
    )


def golden_files(facts: Facts) -> Row:
    """The files that each agent wrote are the golden ones."""
    expected = {t: golden["files"] for t, golden in facts.golden["trajectories"].items()}
    measured = {trial_id: trial["files_written"] for trial_id, trial in facts.trials.items()}
    return compare("Files written are golden", "trials", expected, measured)


def golden_rewards(facts: Facts) -> Row:
    """Verdicts, scores and rewards are the golden ones, to 3 decimals."""
    expected, measured = golden_earned(facts.golden), earned(facts.trials)
    return compare("Scores and rewards are golden", "trials", expected, measured)


def golden_earned(golden: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """Return what each trial of golden numbers is worth: verdict, document, score, reward."""
    return {
        reward["trial_id"]: (
            reward["verified"],
            reward["found_doc"],
            reward["judge_score"],
            reward["reward"],
        )
        for step in golden["steps"]
        for reward in step["rewards"]
    }


def earned(trials: Mapping[str, Trial]) -> dict[str, tuple[Any, ...]]:
    """Return the same of measured trials."""
    return {
        trial_id: (
            trial["verified"],
            trial["found_doc"],
            rounded(trial["judge_score"]),
            rounded(trial["reward"]),
        )
        for trial_id, trial in trials.items()
    }


def rounded(value: float | None, digits: int = 3) -> float | None:
    """Return a number as golden ones are kept."""
    return None if value is None else round(value, digits)


def golden_means(facts: Facts) -> Row:
    """Mean reward and mean turns of each step are the golden ones."""
    expected = {
        f"step {step['step']}": (step["mean_reward"], step["mean_turns"])
        for step in facts.golden["steps"]
    }
    measured = {
        f"step {step['step']}": (rounded(step["mean_reward"]), rounded(step["mean_turns"], 2))
        for step in facts.run["steps"]
    }
    return compare("Mean reward and turns are golden", "steps", expected, measured)


def golden_weights(facts: Facts) -> Row:
    """The weights after each step are the golden ones, to 3 decimals."""
    expected, measured = golden_priors(facts.golden), priors(facts.weights)
    return compare("Weights of each version are golden", "versions", expected, measured)


def golden_priors(golden: Mapping[str, Any]) -> dict[str, Any]:
    """Return the golden weights by version."""
    return {f"version {step['step'] + 1}": _prior(step["prior"]) for step in golden["steps"]}


def priors(weights: Mapping[int, Weights]) -> dict[str, Any]:
    """Return measured weights by version."""
    return {f"version {version}": _prior(one["doc_prior"]) for version, one in weights.items()}


def _prior(prior: Mapping[str, list[float]]) -> dict[str, list[float]]:
    return {world: [round(value, 3) for value in values] for world, values in prior.items()}
