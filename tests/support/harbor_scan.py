"""Run by harbor's interpreter: loads the jobs of a folder and writes what it found as JSON."""
# pyright: reportMissingImports=false
# Our own interpreter has no harbor.

import json
import sys
from pathlib import Path

from harbor.models.trajectories import Trajectory
from harbor.models.trial.artifact_manifest import ArtifactManifestEntry
from harbor.models.trial.config import TrialConfig
from harbor.models.trial.result import TrialResult
from harbor.viewer.scanner import JobScanner


def trial(folder: Path) -> dict[str, object]:
    """Load all of a trial's files by their models."""
    result = TrialResult.model_validate_json((folder / "result.json").read_text())
    config = TrialConfig.model_validate_json((folder / "config.json").read_text())
    assert config.trial_name == result.trial_name == folder.name
    for path in folder.rglob("agent/trajectory.json"):
        Trajectory.model_validate_json(path.read_text())
    for path in folder.rglob("artifacts/manifest.json"):
        for entry in json.loads(path.read_text()):
            ArtifactManifestEntry.model_validate(entry)
    return result.model_dump(mode="json")


def main(jobs: Path) -> None:
    scanner, found = JobScanner(jobs), {}
    for job in scanner.list_jobs():
        config, result = scanner.get_job_config(job), scanner.get_job_result(job)
        names = scanner.list_trials(job)
        found[job] = {
            "config": config and config.model_dump(mode="json"),
            "result": result and result.model_dump(mode="json"),
            "trials": {name: trial(jobs / job / name) for name in names},
        }
    json.dump(found, sys.stdout)


main(Path(sys.argv[1]))
