"""The files of a Harbor job that stand above its trials' folders. Pure."""

from __future__ import annotations

from trialog.driver.export.kept import Json
from trialog.driver.export.run import ExportedRun
from trialog.driver.export.tally import Tally
from trialog.driver.views import Doc


def config(run: ExportedRun) -> Json:
    """Return a run's settings as the configuration of a job."""
    spec = run.spec
    path = spec.tasks.path if spec.tasks else None
    return {
        "schema_version": 1,
        "job_name": run.run_id,
        "jobs_dir": ".",
        "n_attempts": spec.n_samples,
        "retry": {"max_retries": spec.retries.trial},
        "environment": run.environment_config(),
        "agents": [run.agent_config()],
        "datasets": [{"path": path}] if path else [],
    }


def result(run: ExportedRun, doc: Doc, tally: Tally) -> Json:
    """Return a job's result. Its mean is over trials with a verdict; it names no trial, so it does
    not grow with the run: their own files have what it would repeat."""
    whole = tally.whole
    n_ended = whole.scored + whole.unscored
    stats = {
        "n_trials": whole.scored,
        "n_errors": sum(whole.errors.values()),
        "metrics": [] if whole.reward.mean is None else [{"mean": whole.reward.mean}],
    }
    return {
        "schema_version": 1,
        "id": run.uid,
        "started_at": doc["created_at"],
        "updated_at": doc["ended_at"] or doc["created_at"],
        "finished_at": doc["ended_at"],
        "n_total_trials": whole.trials,
        "stats": {
            "n_completed_trials": n_ended,
            "n_errored_trials": sum(whole.errors.values()),
            "n_cancelled_trials": whole.errors.get("cancelled", 0),
            "n_running_trials": 0,
            "n_pending_trials": whole.trials - n_ended,
            "n_retries": sum(doc["counts"]["retried"].values()),
            "evals": {f"{run.spec.agent}__adhoc": stats},
        },
    }
