"""The files of the in-memory twin of image sandboxes: a tree that is a dict."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

_HOPS = 20


@dataclass(frozen=True, slots=True)
class Node:
    """A file with its bytes, a link with its target as bytes, or a folder."""

    kind: Literal["file", "symlink", "dir"]
    data: bytes = b""
    mode: int = 0o755


class Tree:
    """Files by absolute path. ``base`` is what it began as."""

    def __init__(self, base: dict[str, Node] | None = None) -> None:
        self.base = dict(base or {})
        self.nodes = {"/": Node("dir"), **self.base}

    def resolved(self, path: str, hops: int = _HOPS) -> str:
        """Return a path with all links followed. Raises FileNotFoundError for a circle."""
        at = "/"
        for part in posixpath.normpath(path).strip("/").split("/"):
            at = posixpath.join(at, part) if part else at
            node = self.nodes.get(at)
            if node is not None and node.kind == "symlink":
                if hops == 0:
                    raise FileNotFoundError(f"{path}: too many links")
                target = posixpath.join(posixpath.dirname(at), node.data.decode())
                at = self.resolved(target, hops - 1)
        return at

    def links_on_the_way(self, path: str) -> bool:
        """Whether a path leads over a link, or is one."""
        parts = posixpath.normpath(path).strip("/").split("/")
        return any(self.is_link("/" + "/".join(parts[: n + 1])) for n in range(len(parts)))

    def exists(self, path: str, *, follow: bool = True) -> bool:
        """Whether something is there."""
        full = posixpath.normpath(path)
        return (self.resolved(full) if follow else full) in self.nodes or path == "/dev/null"

    def is_dir(self, path: str) -> bool:
        """Whether a folder is there."""
        node = self.nodes.get(self.resolved(path))
        return node is not None and node.kind == "dir"

    def is_link(self, path: str) -> bool:
        """Whether a link is there."""
        node = self.nodes.get(posixpath.normpath(path))
        return node is not None and node.kind == "symlink"

    def data(self, path: str) -> bytes:
        """Return a file's bytes. Raises FileNotFoundError."""
        if path == "/dev/null":
            return b""
        node = self.nodes.get(self.resolved(path))
        if node is None or node.kind != "file":
            raise FileNotFoundError(f"{path}: No such file")
        return node.data

    def mode(self, path: str) -> int:
        """Return the mode of what is there."""
        return self.nodes[self.resolved(path)].mode

    def chmod(self, path: str, mode: int) -> None:
        """Set the mode of what is there."""
        full = self.resolved(path)
        node = self.nodes[full]
        self.nodes[full] = Node(node.kind, node.data, mode)

    def put(self, path: str, data: bytes, mode: int = 0o644) -> None:
        """Put a file in place, making missing folders."""
        full = self.resolved(path)
        self.mkdir(posixpath.dirname(full))
        self.nodes[full] = Node("file", data, mode)

    def writer(self, path: str, *, append: bool) -> Callable[[bytes], None]:
        """Return what writes to a file. Raises FileNotFoundError where its folder is not."""
        if path == "/dev/null":
            return lambda data: None
        full = self.resolved(path)
        if not self.is_dir(posixpath.dirname(full)):
            raise FileNotFoundError(f"{path}: No such file or directory")
        old = self.nodes.get(full)
        kept, mode = (b"", 0o644) if old is None else (old.data, old.mode)
        self.nodes[full] = Node("file", kept if append else b"", mode)

        def write(data: bytes) -> None:
            now = self.nodes.get(full)
            self.nodes[full] = Node("file", (now.data if now else b"") + data, mode)

        return write

    def mkdir(self, path: str) -> None:
        """Make a folder and those above it."""
        full = self.resolved(path)
        while full not in self.nodes:
            self.nodes[full] = Node("dir")
            full = posixpath.dirname(full)

    def link(self, path: str, target: str) -> None:
        """Put a link in place."""
        self.nodes[posixpath.normpath(path)] = Node("symlink", target.encode(), 0o777)

    def remove(self, path: str) -> None:
        """Remove what is there, with all below it."""
        full = posixpath.normpath(path)
        for found in [full, *self.below(full)]:
            if found != "/":
                self.nodes.pop(found, None)

    def below(self, folder: str) -> Iterator[str]:
        """Yield the paths below a folder, sorted."""
        prefix = posixpath.normpath(folder).rstrip("/") + "/"
        yield from sorted(path for path in self.nodes if path.startswith(prefix) and path != prefix)

    def changes(self) -> dict[str, Node | None]:
        """Return what differs from the base; None: it is gone."""
        base = {"/": Node("dir"), **self.base}
        changed: dict[str, Node | None] = {
            path: node for path, node in self.nodes.items() if base.get(path) != node
        }
        return changed | {path: None for path in base if path not in self.nodes}

    def apply(self, changes: dict[str, Node | None]) -> None:
        """Lay changes over it."""
        for path, node in changes.items():
            if node is None:
                self.nodes.pop(path, None)
            else:
                self.nodes[path] = node
