"""Free loopback ports, remembered by name so that a restart finds the same ones."""

import json
import os
import random
import socket
import sys
from pathlib import Path

from trialog.cli.stack.errors import MachineUnfit

LOOPBACK = "127.0.0.1"
# Below the kernel's range for outgoing connections: while a process restarts, no stray connection
# can take its port. Above Ray's default range for workers.
_LOWEST, _HIGHEST = 20_000, 32_000
_TRIES = 200


def is_free(port: int, host: str = LOOPBACK) -> bool:
    """Say whether a listener could bind `port` now (closed connections do not count)."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def _claim(port: int) -> int | None:
    """Claim a port among the stacks of this machine; return what holds the claim, or None.

    Between the choice of a port and its use lie seconds, in which another stack that starts would
    choose it as well. The claim is an abstract socket's name: it spans users, leaves no file, and
    ends with its holder. Elsewhere than on Linux every claim succeeds.
    """
    if sys.platform != "linux":
        return -1
    holder = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        holder.bind(f"\0trialog-port-{port}")
    except OSError:
        holder.close()
        return None
    return holder.detach()


class PortBook:
    """The ports of one data folder: name -> port, kept in a JSON file and claimed until `close`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ports: dict[str, int] = json.loads(path.read_text()) if path.exists() else {}
        self._claims: dict[int, int] = {}

    def port(self, name: str) -> int:
        """Return the port of `name`: the one of last time where it is free, else a new one.

        Within one life of the book the answer stays the same. Raises MachineUnfit when no port
        is free.
        """
        known = self._ports.get(name)
        if known is not None and (known in self._claims or self._take(known)):
            return known
        taken = set(self._ports.values())
        for _ in range(_TRIES):
            candidate = random.randint(_LOWEST, _HIGHEST)  # noqa: S311 - no secret
            if candidate not in taken and self._take(candidate):
                self._ports[name] = candidate
                self._path.write_text(json.dumps(self._ports, indent=1, sort_keys=True))
                return candidate
        raise MachineUnfit(f"no free port between {_LOWEST} and {_HIGHEST} on {LOOPBACK}")

    def _take(self, port: int) -> bool:
        claim = _claim(port)
        if claim is None:
            return False
        if not is_free(port):
            _release(claim)
            return False
        self._claims[port] = claim
        return True

    def close(self) -> None:
        """Give up the claims."""
        while self._claims:
            _release(self._claims.popitem()[1])


def _release(claim: int) -> None:
    if claim >= 0:
        os.close(claim)
