"""Free loopback ports, remembered by name so that a restart finds the same ones."""

import json
import random
import socket
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


class PortBook:
    """The ports of one data folder: name -> port, kept in a JSON file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ports: dict[str, int] = json.loads(path.read_text()) if path.exists() else {}
        self._settled: set[str] = set()

    def port(self, name: str) -> int:
        """Return the port of `name`: the one of last time where it is free, else a new one.

        Within one life of the book the answer stays the same. Raises MachineUnfit when no port
        is free.
        """
        known = self._ports.get(name)
        if known is not None and (name in self._settled or is_free(known)):
            self._settled.add(name)
            return known
        taken = set(self._ports.values())
        for _ in range(_TRIES):
            candidate = random.randint(_LOWEST, _HIGHEST)  # noqa: S311 - no secret
            if candidate not in taken and is_free(candidate):
                self._ports[name] = candidate
                self._settled.add(name)
                self._path.write_text(json.dumps(self._ports, indent=1, sort_keys=True))
                return candidate
        raise MachineUnfit(f"no free port between {_LOWEST} and {_HIGHEST} on {LOOPBACK}")
