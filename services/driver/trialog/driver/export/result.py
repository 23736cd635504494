"""``result.json`` and ``config.json`` of Harbor's trial folders, from the facts of a trial. Pure.

A trial is as valid there as it is here: one without a verdict has no rewards, whatever its verifier
said before its judge failed, and says by an exception why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from trialog.driver.export import atif
from trialog.driver.export.facts import At, TrialFacts
from trialog.driver.export.kept import Json, Kept
from trialog.driver.export.run import ExportedRun
from trialog.driver.export.tokens import rollouts
from trialog.driver.views import Doc, timestamp
from trialog.proto import events as ev

_MODES = {"separate": "separate", "shared": "shared", "restored": "shared"}


@dataclass(frozen=True, slots=True)
class Trial:
    """All that a trial's result is made from. ``documents`` are its trajectories, one a part;
    ``rewards`` what each step's verifier gave, by the step's name; ``trace`` where the agent's own
    code broke in the attempt that was the last."""

    run: ExportedRun
    doc: Doc
    facts: TrialFacts
    kept: Kept
    documents: Sequence[Json]
    rewards: Mapping[str, dict[str, float]] = field(default_factory=dict[str, dict[str, float]])
    trace: str = ""

    @property
    def trial_id(self) -> str:
        """The id within the run, and the name of the folder."""
        return self.facts.trial_id


def config(trial: Trial) -> Json:
    """Return a trial's configuration as Harbor has it."""
    run = trial.run
    return {
        "schema_version": 1,
        "task": {"path": run.task_path(run.task_name(trial.trial_id))},
        "trial_name": trial.trial_id,
        "trials_dir": ".",
        "agent": run.agent_config(),
        "environment": run.environment_config(),
        "job_id": run.uid,
    }


def result(trial: Trial) -> Json:
    """Return a trial's result as Harbor has it; what only we know stands in the metadata."""
    run, facts, of_steps = trial.run, trial.facts, trial.kept.of_steps
    name = run.task_name(trial.trial_id)
    task, verified = run.task(trial.trial_id), facts.verified
    mode = verified.fact.mode if verified and not of_steps else ""
    return {
        "schema_version": 1,
        "id": run.trial_uid(trial.trial_id),
        "task_name": name,
        "trial_name": trial.trial_id,
        "trial_uri": run.trial_uri(trial.trial_id),
        "task_id": {"path": run.task_path(name)},
        "source": None,
        "task_checksum": task.blob if task else _world_digest(facts),
        "config": config(trial),
        "agent_info": _agent_info(trial),
        "agent_result": _agent_result(trial.documents, _metadata(trial)),
        "verifier_result": _verifier_result(trial),
        "verifier_environment_mode": _MODES.get(mode),
        "exception_info": exception(facts, trial.kept, trial.trace),
        "started_at": timestamp(facts.requested.at) if facts.requested else None,
        "finished_at": timestamp(facts.ended_at) if facts.ended_at else None,
        "environment_setup": None,
        "agent_setup": None,
        "agent_execution": _agent_timing(trial),
        "verifier": _verifier_timing(facts),
        "step_results": _step_results(trial) if of_steps else None,
    }


def rewards_of(facts: TrialFacts) -> dict[str, float] | None:
    """Return the rewards of a trial with a verdict: its verifier's, or of the reference world the
    judge's; None without a verdict."""
    if facts.judged is None:
        return None
    given = facts.verified.fact.rewards if facts.verified else {}
    return dict(given) or {"reward": facts.judged.fact.reward}


def exception(facts: TrialFacts, kept: Kept, trace: str = "") -> Json | None:
    """Return how a trial ended when not by itself: the class of its error, by Harbor's name where
    it has one; of a trial without a verdict there always is one. ``trace`` is the traceback of what
    an agent's own code raised."""
    if facts.cancelled is not None:
        return _exception("CancelledError", "the run was cancelled or failed", facts.cancelled.at)
    if facts.skipped is not None:
        skip = facts.skipped.fact
        text = f"{skip.reason}: {skip.message}" if skip.message else skip.reason
        return _exception(skip.error or "TrialSkippedError", text, facts.skipped.at, trace)
    ended: list[At[ev.TrajectoryRecorded] | At[ev.TrialVerified]] = [
        one for one in (facts.verified, facts.trajectory) if one is not None and one.fact.error
    ]
    if not ended:
        return None
    error = ended[0].fact.error
    said = next((part.message for part in kept.parts if part.error == error), "")
    return _exception(error, said, ended[0].at)


def _exception(kind: str, message: str, at: datetime, trace: str = "") -> Json:
    return {
        "exception_type": kind,
        "exception_message": message,
        "exception_traceback": trace,
        "occurred_at": timestamp(at),
    }


def _world_digest(facts: TrialFacts) -> str:
    return facts.requested.fact.world_digest if facts.requested else ""


def _agent_info(trial: Trial) -> Json:
    model = next((name for one in trial.documents if (name := atif.model_of(one))), None)
    return {
        "name": trial.run.spec.agent,
        "version": trial.run.agent_version,
        "model_info": {"name": model} if model else None,
    }


def _agent_result(documents: Sequence[Json], metadata: Json | None) -> Json:
    used = atif.usage(documents)
    return {
        "n_input_tokens": used.prompt_tokens,
        "n_cache_tokens": used.cached_tokens,
        "n_output_tokens": used.completion_tokens,
        "cost_usd": used.cost_usd,
        "rollout_details": rollouts(documents) or None,
        "metadata": metadata,
    }


def _metadata(trial: Trial) -> Json:
    doc, verified = trial.doc, trial.facts.verified
    names = ("step", "world_id", "state", "reward", "judge_score", "scores", "weights_version")
    known = {name: doc[name] for name in (*names, "attempts", "provenance")}
    mode = verified.fact.mode if verified else ""
    return {"trialog": known | {"run_id": trial.run.run_id, "mode": mode or None}}


def _verifier_result(trial: Trial) -> Json | None:
    rewards = rewards_of(trial.facts)
    return None if rewards is None else {"rewards": rewards}


def _agent_timing(trial: Trial) -> Json | None:
    """A task's worker tells when. Of the reference world the log does, unless it was recovered:
    then it was not done now."""
    recorded, parts = trial.facts.trajectory, trial.kept.parts
    if parts:
        return {"started_at": parts[0].started_at, "finished_at": parts[-1].finished_at}
    if recorded is None or recorded.fact.provenance is not None:
        return None
    return {"started_at": None, "finished_at": timestamp(recorded.at)}


def _verifier_timing(facts: TrialFacts) -> Json | None:
    recorded, verified = facts.trajectory, facts.verified
    if verified is None or verified.fact.provenance is not None or recorded is None:
        return None
    return {"started_at": timestamp(recorded.at), "finished_at": timestamp(verified.at)}


def _step_results(trial: Trial) -> list[Json]:
    at = trial.facts.trajectory.at if trial.facts.trajectory else datetime.min
    results: list[Json] = []
    for part, document in zip(trial.kept.parts, trial.documents, strict=True):
        began, ended = part.grading
        graded = part.graded.get("error")
        error = part.error or (graded if isinstance(graded, str) else "")
        rewards = trial.rewards.get(part.step or "") or part.rewards
        results.append(
            {
                "step_name": part.step or "step",
                "agent_result": _agent_result([document], None),
                "verifier_result": {"rewards": rewards} if rewards else None,
                "exception_info": _exception(error, part.message, at) if error else None,
                "agent_execution": {"started_at": part.started_at, "finished_at": part.finished_at},
                "verifier": {"started_at": began, "finished_at": ended} if began else None,
            }
        )
    return results
