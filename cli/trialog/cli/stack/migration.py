"""Brings the database's schema up to date before the services start."""

import asyncio
import sys
from pathlib import Path

from trialog.cli.stack.errors import ProcessNotReady
from trialog.cli.stack.process import ProcessSpec, base_env, log_tail, spawn

_TIMEOUT_S = 120.0


async def _never(pid: int) -> bool:
    del pid
    return False  # it serves nothing: its end is what counts


async def migrate(env: dict[str, str], root: Path, log: Path) -> None:
    """Run `trialog.spine.migrate`, which also makes the app role; its output goes to `log`.

    `env` holds the owner's and the app role's database address. Raises ProcessNotReady with the
    end of the log when it fails.
    """
    # The folder's lock is ours: whoever was registered in it before is dead.
    argv = (sys.executable, "-m", "trialog.spine.migrate", "--alone")
    process = await spawn(ProcessSpec("migrate", argv, {**base_env(), **env}, _never), root, log)
    outcome = f"is not done after {_TIMEOUT_S:.0f} s"
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            if await process.wait() == 0:
                return
        outcome = f"failed ({process.returncode})"
    except TimeoutError:
        pass
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    raise ProcessNotReady(f"the migration {outcome}. The end of {log}:\n{log_tail(log)}")
