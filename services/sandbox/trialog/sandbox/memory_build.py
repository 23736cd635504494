"""Images of the in-memory twin: a Dockerfile's lines, run in its small shell."""

from __future__ import annotations

import posixpath
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from trialog.sandbox.errors import ImageError
from trialog.sandbox.images import Image, Recipe
from trialog.sandbox.memory_files import Node, Tree
from trialog.sandbox.memory_shell import Shell
from trialog.sandbox.provider import ExecResult

PATH = "/usr/local/bin:/usr/bin:/bin"
_FOLDERS = ("/bin", "/etc", "/opt", "/root", "/run", "/tmp", "/usr", "/var", "/var/tmp")  # noqa: S108
_BASE = {path: Node("dir") for path in _FOLDERS} | {
    "/etc/passwd": Node("file", b"root:x:0:0:root:/root:/bin/sh\n", 0o644)
}


def _refuse(work: Coroutine[Any, Any, None]) -> None:
    """Nothing goes on in the background while an image is built."""
    work.close()


class CommandRun:
    """A command's shell and what it said."""

    def __init__(self, tree: Tree, cwd: str, env: dict[str, str], stdin: bytes, limit: int) -> None:
        self._out, self._err, self._limit = bytearray(), bytearray(), limit
        self.shell = Shell(tree, cwd, env, self._out.extend, self._err.extend, _refuse, stdin)

    def result(self, code: int, *, timed_out: bool = False) -> ExecResult:
        """Return how it ended."""
        limit = self._limit
        truncated = len(self._out) > limit or len(self._err) > limit
        out, err = bytes(self._out[:limit]), bytes(self._err[:limit])
        return ExecResult(code, out, err, truncated, timed_out)


async def build(digest: str, recipe: Recipe) -> tuple[Image, dict[str, Node]]:
    """Return a recipe's image and its files. Raises ImageError with what went wrong."""
    lines = [f"FROM {recipe.docker_image}"]
    if recipe.docker_image is None:
        try:
            text = (recipe.context / (recipe.dockerfile or "Dockerfile")).read_text()
        except FileNotFoundError as error:
            raise ImageError(f"there is no {recipe.dockerfile}") from error
        lines = [line for line in text.splitlines() if line.strip() and line[0] != "#"]
    tree, env, workdir, user = Tree(_BASE), dict[str, str](), "/", "0"
    for line in lines:
        word, _, rest = line.strip().partition(" ")
        match word.upper():
            case "FROM":
                if rest not in recipe.images:
                    raise ImageError(f"{rest} is none of the declared images")
            case "RUN":
                run = CommandRun(tree, workdir, {"PATH": PATH, **env}, b"", 1 << 20)
                code = await run.shell.run(["sh", "-c", rest])
                if code != 0:
                    said = run.result(code).stderr.decode()
                    raise ImageError(f"{rest!r} failed with {code}: {said}")
            case "COPY" | "ADD":
                source, target = rest.split()
                _copy(recipe.context / source, tree, posixpath.join(workdir, target))
            case "ENV":
                name, _, value = rest.partition("=")
                env[name] = value
            case "WORKDIR":
                workdir = posixpath.join(workdir, rest)
                tree.mkdir(workdir)
            case "USER":
                user = rest
            case _:
                raise ImageError(f"unknown instruction {word}")
    return Image(digest, env, workdir, int(user) if user.isdigit() else user), tree.nodes


def _copy(source: Path, tree: Tree, target: str) -> None:
    if source.is_file():
        place = posixpath.join(target, source.name) if target.endswith("/") else target
        tree.put(posixpath.normpath(place), source.read_bytes(), source.stat().st_mode & 0o777)
        return
    for path in sorted(source.rglob("*")):
        if path.is_file():
            place = posixpath.normpath(posixpath.join(target, str(path.relative_to(source))))
            tree.put(place, path.read_bytes(), path.stat().st_mode & 0o777)
