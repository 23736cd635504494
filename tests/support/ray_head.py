"""A Ray head of the test's own: free port, short folder, ended with its whole process group."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Self

import psutil


class RayHead:
    """A context that starts ``ray start --head`` and ends it.

    Sets RAY_AUTH_MODE and RAY_AUTH_TOKEN_PATH in this process's environment, where Ray reads them.
    """

    def __init__(self) -> None:
        # Ray puts sockets below this folder, and a socket's path has at most 107 bytes.
        self._dir = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
        token = self._dir / "token"
        token.write_text(secrets.token_hex(32))
        token.chmod(0o600)
        self._env = {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        self._before = {key: os.environ.get(key) for key in self._env}
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None
        self._starts = 0

    @property
    def address(self) -> str:
        """Where the head listens, again after every start."""
        return f"127.0.0.1:{self._port}"

    def launch(self) -> None:
        """Start the head and return at once; ``kill`` it first when it runs."""
        self._starts += 1
        os.environ.update(self._env)
        ray = Path(sys.executable).parent / "ray"
        argv = [str(ray), "start", "--head", "--block", "--disable-usage-stats"]
        argv += ["--port", str(self._port), "--num-cpus", "1", "--include-dashboard", "false"]
        argv += ["--temp-dir", str(self._dir / str(self._starts))]
        argv += ["--object-store-memory", "80000000", "--node-ip-address", "127.0.0.1"]
        with (self._dir / f"{self._starts}.log").open("wb") as log:
            self._process = subprocess.Popen(
                argv, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )

    def kill(self) -> None:
        """SIGKILL the head with everything it started, and wait until all are gone."""
        if self._process is None:
            return
        with contextlib.suppress(psutil.NoSuchProcess):
            family = psutil.Process(self._process.pid).children(recursive=True)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            for each in family:  # Ray's workers have process groups of their own
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.kill()
            psutil.wait_procs(family, timeout=30)
        self._process.wait(30)
        self._process = None

    def __enter__(self) -> Self:
        self.launch()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        for key, value in self._before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value
        shutil.rmtree(self._dir, ignore_errors=True)
