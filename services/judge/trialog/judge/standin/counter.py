"""How often the stand-in was called, by idempotency key; kept in a file when one is given."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any


class CallCounter:
    """Counts calls in memory and appends each as a JSON line to a file.

    One ``write`` a call without fsync: it survives the process, not the machine. Only one process
    may count in a file at a time.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._calls: Counter[str] = Counter()
        self._file = -1
        if path is not None:
            self._load(path)
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def count(self, key: str) -> None:
        """Count a call, before it is answered: a call whose answer got lost was made too."""
        if self._file >= 0:
            os.write(self._file, json.dumps({"key": key}).encode() + b"\n")
        self._calls[key] += 1

    def report(self) -> dict[str, Any]:
        """Return {"calls": total, "keys": how many, "by_key": {key: calls}}."""
        return {
            "calls": self._calls.total(),
            "keys": len(self._calls),
            "by_key": dict(self._calls),
        }

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _load(self, path: Path) -> None:
        if not path.exists():
            return
        data = path.read_bytes()
        whole, _, torn = data.rpartition(b"\n")
        for line in whole.splitlines():
            self._calls[json.loads(line)["key"]] += 1
        if torn:  # a line cut short by a full disk; the next one must start on its own
            os.truncate(path, len(data) - len(torn))
