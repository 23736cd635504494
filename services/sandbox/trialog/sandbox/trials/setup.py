"""Making a sandbox ready: folders of the format, files of a step, and waiting for health."""

from __future__ import annotations

from dataclasses import dataclass

from trialog.proto.tasks.config import Healthcheck
from trialog.sandbox.errors import TaskError
from trialog.sandbox.images import ImageSandbox, User
from trialog.sandbox.provider import ExecResult
from trialog.sandbox.trials.health import until_healthy
from trialog.sandbox.trials.plan import AGENT_LOGS, ARTIFACTS, TESTS, VERIFIER_LOGS, Stage

ROOT = 0
_LOGS = f"{AGENT_LOGS} {VERIFIER_LOGS} {ARTIFACTS}"
_SETUP_S, _STEP_SETUP_S = 60.0, 600.0
# Few programs are started: each takes a millisecond of the processor, in every trial.
_READY = (
    "if [ -e /logs ]; then old=yes; fi; "
    f"mkdir -p -m 777 {_LOGS} || exit 1; "
    f'if [ "$old" = yes ]; then chmod 777 {_LOGS}; fi; '
    'if [ ! -d "$1" ]; then mkdir -p "$1" || exit 1; fi; '
    f"if [ -e {TESTS} ]; then echo tests; fi"
)
_EMPTIED = f"rm -rf {_LOGS} && mkdir -p {_LOGS} && chmod 777 {_LOGS}"


@dataclass(frozen=True, slots=True)
class Ready:
    """What was found in a sandbox that is ready. ``baked_tests``: there is a /tests already."""

    baked_tests: bool


async def make_ready(sandbox: ImageSandbox, workdir: str | None) -> Ready:
    """Make the folders that every task has. Raises SandboxError."""
    folder = workdir or sandbox.image.workdir
    argv = ["sh", "-c", _READY, "ready", folder]
    made = await sandbox.exec("ready", argv, cwd="/", timeout_s=_SETUP_S, user=ROOT)
    if made.exit_code != 0:
        # Without a shell, or with a file where /logs should be: the image is not fit for a task.
        raise TaskError("RuntimeError", f"the sandbox cannot be made ready: {said(made)}")
    return Ready(b"tests" in made.stdout)


async def begin_step(sandbox: ImageSandbox, stage: Stage, workdir: str | None) -> None:
    """Put a step's files in place and run its setup.sh. What the step before left in the folders of
    logs is gone then: it was saved. Raises TaskError, SandboxError."""
    if stage.number > 0:
        await checked(sandbox, f"empty-{stage.number}", _EMPTIED)
    if stage.files is None:
        return
    folder = (workdir or sandbox.image.workdir).rstrip("/")
    await sandbox.upload(stage.files, folder or "/")
    if not (stage.files / "setup.sh").is_file():
        return
    argv = ["bash", f"{folder}/setup.sh"]
    exec_id = f"setup-{stage.number}"
    done = await sandbox.exec(exec_id, argv, timeout_s=_STEP_SETUP_S, user=stage.user)
    if done.exit_code != 0:
        raise TaskError("RuntimeError", f"setup.sh of step {stage.name!r} failed: {said(done)}")


async def wait_for_health(
    sandbox: ImageSandbox, check: Healthcheck | None, label: str, user: User | None = None
) -> None:
    """Run a healthcheck until it passes. Raises UnhealthyError, SandboxError."""
    if check is None:
        return

    async def run(n: int) -> tuple[int, str]:
        argv = ["sh", "-c", check.command]
        exec_id = f"health-{label}-{n}"
        result = await sandbox.exec(exec_id, argv, timeout_s=check.timeout_sec, user=user)
        return result.exit_code, said(result)

    await until_healthy(check, run)


async def checked(sandbox: ImageSandbox, exec_id: str, script: str, *words: str) -> ExecResult:
    """Run a short script of ours as root. Raises TaskError when it fails: what an agent may have
    broken, from its shell to its folders."""
    argv = ["sh", "-c", script, "trialog", *words]
    done = await sandbox.exec(exec_id, argv, cwd="/", timeout_s=_SETUP_S, user=ROOT)
    if done.exit_code != 0:
        raise TaskError("RuntimeError", f"{exec_id} failed in the sandbox: {said(done)}")
    return done


def said(result: ExecResult) -> str:
    """Return how a command ended and the end of what it said."""
    text = (result.stderr or result.stdout)[-200:].decode("utf-8", "replace").strip()
    if result.timed_out:
        return f"over its time {text}".rstrip()
    if result.limit is not None:
        return f"killed over the limit of {result.limit} {text}".rstrip()
    return f"exit code {result.exit_code} {text}".rstrip()
