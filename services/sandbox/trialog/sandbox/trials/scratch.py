"""Folders for files on their way, one tree a worker: what a killed one left is removed."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import secrets
import tempfile
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from trialog.sandbox.trees import remove_tree

_LOCK = ".lock"


class Scratch:
    """A worker's tree below a folder that workers of a host share.

    The lock on a tree is its worker's as long as that lives; the kernel gives it back whatever
    ends the process.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._own: Path | None = None
        self._lock = -1
        self._making = threading.Lock()

    @asynccontextmanager
    async def folder(self) -> AsyncGenerator[Path]:
        """Yield a new folder, and remove it whatever is in it."""
        made = await asyncio.to_thread(self._made)
        try:
            yield made
        finally:
            await asyncio.to_thread(remove_tree, made)

    def _made(self) -> Path:
        return Path(tempfile.mkdtemp(dir=self._tree()))

    def _tree(self) -> Path:
        with self._making:  # several trials may ask at once, each in a thread
            if self._own is None:
                own = self._root / secrets.token_hex(8)
                # It has its name, by which others find it, only once it is locked.
                unnamed = self._root / f".{own.name}"
                unnamed.mkdir(parents=True)
                self._lock = os.open(unnamed / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
                fcntl.flock(self._lock, fcntl.LOCK_EX)
                unnamed.rename(own)
                self._own = own
            return self._own

    def sweep(self) -> list[str]:
        """Remove the trees of workers that are gone; return their names."""
        if not self._root.is_dir():
            return []
        trees = [path for path in self._root.glob("[!.]*") if path != self._own]
        return [tree.name for tree in trees if _removed(tree)]

    def close(self) -> None:
        """Remove the own tree."""
        if self._own is not None:
            remove_tree(self._own)
            os.close(self._lock)
            self._own = None


def _removed(tree: Path) -> bool:
    """Remove a tree whose lock is free; one that others remove this moment is theirs."""
    with contextlib.suppress(FileNotFoundError):
        lock = os.open(tree / _LOCK, os.O_RDWR)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_tree(tree)
        except BlockingIOError:
            return False
        finally:
            os.close(lock)
        return True
    return False
