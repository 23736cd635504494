"""A Ray head of the test's own: free port, short folder, ended with its whole process group."""

from __future__ import annotations

import contextlib
import os
import random
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
from ray._private.authentication_test_utils import reset_auth_token_state

# Some have fixed defaults: two heads on one machine would fight over them.
_PORTS = (
    "port",
    "node-manager-port",
    "object-manager-port",
    "dashboard-port",
    "dashboard-agent-listen-port",
    "dashboard-agent-grpc-port",
    "runtime-env-agent-port",
    "metrics-export-port",
)


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
        self._ports = dict(zip(_PORTS, _free_ports(len(_PORTS)), strict=True))
        self._process: subprocess.Popen[bytes] | None = None
        self._starts = 0

    @property
    def address(self) -> str:
        """Where the head listens, again after every start."""
        return f"127.0.0.1:{self._ports['port']}"

    def launch(self) -> None:
        """Start the head and return at once; ``kill`` it first when it runs."""
        self._starts += 1
        os.environ.update(self._env)
        reset_auth_token_state()  # Ray reads a token once a process, and may know another head's
        ray = Path(sys.executable).parent / "ray"
        argv = [str(ray), "start", "--head", "--block", "--disable-usage-stats"]
        argv += ["--num-cpus", "1", "--include-dashboard", "false"]
        argv += [f"--{name}={port}" for name, port in self._ports.items()]
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
        if self._process.poll() is not None:
            log = (self._dir / f"{self._starts}.log").read_text()
            raise AssertionError(f"Ray's head ended by itself:\n{log[-3000:]}")
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
        try:
            self.kill()
        finally:
            for key, value in self._before.items():
                if value is None:
                    os.environ.pop(key, None)
                else:
                    os.environ[key] = value
            shutil.rmtree(self._dir, ignore_errors=True)


def _free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on and no worker or outgoing connection takes meanwhile."""
    found = set[int]()
    while len(found) < count:
        port = random.randrange(20_000, 32_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            found.add(port)
    return list(found)
