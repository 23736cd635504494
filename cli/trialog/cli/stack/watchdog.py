"""The stack's end of its watchdog: a small process that cleans up once the stack is gone."""

import asyncio
import os
import sys
from pathlib import Path

from trialog.cli.stack.process import base_env

_SCRIPT = Path(__file__).with_name("reaper.py")


class Watchdog:
    """Starts the watchdog and tells it which process groups exist.

    It learns of the stack's end by the end of its stdin, so that a kill -9 counts as well. It
    shares the folder's lock: nobody starts on a folder that is still being cleaned.
    """

    def __init__(self, process: asyncio.subprocess.Process, lock: int) -> None:
        self._process = process
        self._lock = lock

    @property
    def pid(self) -> int:
        """The watchdog's pid."""
        return self._process.pid

    @classmethod
    async def start(cls, root: Path, lock: int) -> "Watchdog":
        """Start it for the stack in folder `root`. Takes over the lock."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", str(_SCRIPT), str(os.getpid()), str(root)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            env=base_env(),
            cwd="/",
            pass_fds=(lock,),
            start_new_session=True,
        )
        return cls(process, lock)

    def announce(self, pid: int, name: str) -> None:
        """Tell of a new process, which leads a group of its own."""
        self._tell(f"+{pid} {name}\n")

    def forget(self, pid: int) -> None:
        """Tell that a process has ended."""
        self._tell(f"-{pid}\n")

    def remove(self, folder: Path) -> None:
        """Have a temporary folder deleted at the end."""
        self._tell(f"*{folder}\n")

    def _tell(self, line: str) -> None:
        stdin = self._process.stdin
        if stdin is not None and not stdin.is_closing():
            stdin.write(os.fsencode(line))

    async def finish(self) -> None:
        """Let it end what is left and remove the folders; then give up the lock."""
        stdin = self._process.stdin
        if stdin is not None:
            stdin.close()
        await self._process.wait()
        os.close(self._lock)
