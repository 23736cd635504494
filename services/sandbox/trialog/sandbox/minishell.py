"""The few words of shell that the in-memory twin understands.

``sleep``, ``cat``, ``echo``, ``rm``, ``true``, ``false``, ``exit``, joined by ``;`` or ``&&``, with
``> FILE``. Anything else is "not found" (127), so a test that needs more fails loudly.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from trialog.sandbox.provider import inside

NOT_FOUND = 127


class Files(Protocol):
    """The files a script sees, by absolute path."""

    def lookup(self, path: str) -> bytes | None:
        """Return a file's bytes, or None."""
        ...

    def store(self, path: str, data: bytes | None) -> None:
        """Write a file, or delete it (None)."""
        ...


@dataclass(frozen=True, slots=True)
class _Context:
    files: Files
    cwd: str
    stdin: bytes


Outcome = tuple[int, bytes, bytes]


async def run_script(files: Files, argv: Sequence[str], cwd: str, stdin: bytes) -> Outcome:
    """Run ``sh -c SCRIPT`` or one plain command; return exit code, stdout and stderr."""
    context = _Context(files, cwd, stdin)
    if list(argv[:2]) != ["sh", "-c"]:
        return await _simple(context, list(argv))
    code, out, err = 0, b"", b""
    for joint, words in _commands(argv[2]):
        if joint == "&&" and code != 0:
            continue
        if words[0] == "exit":
            return int(words[1]), out, err
        code, more_out, more_err = await _simple(context, words)
        out, err = out + more_out, err + more_err
    return code, out, err


def _commands(script: str) -> list[tuple[str, list[str]]]:
    lexer = shlex.shlex(script, posix=True, punctuation_chars=";&>")
    lexer.whitespace_split = True
    found: list[tuple[str, list[str]]] = []
    joint, words = ";", list[str]()
    for token in [*lexer, ";"]:
        if token in (";", "&&"):
            if words:
                found.append((joint, words))
            joint, words = token, []
        else:
            words.append(token)
    return found


async def _simple(context: _Context, words: list[str]) -> Outcome:
    if ">" in words:
        at = words.index(">")
        code, out, err = await _simple(context, words[:at])
        context.files.store(inside(words[at + 1], context.cwd), out)
        return code, b"", err
    match words:
        case ["sleep", "infinity"]:
            await asyncio.Event().wait()
            return 0, b"", b""
        case ["sleep", duration]:
            await asyncio.sleep(float(duration))
            return 0, b"", b""
        case ["true"]:
            return 0, b"", b""
        case ["false"]:
            return 1, b"", b""
        case ["echo", *rest]:
            return 0, (" ".join(rest) + "\n").encode(), b""
        case ["cat"]:
            return 0, context.stdin, b""
        case ["cat", *paths]:
            return _cat(context, paths)
        case ["rm", path]:
            return _rm(context, path)
        case _:
            return NOT_FOUND, b"", f"{words[0]}: not found\n".encode()


def _cat(context: _Context, paths: list[str]) -> Outcome:
    code, out, err = 0, b"", b""
    for path in paths:
        data = b"" if path == "/dev/null" else context.files.lookup(inside(path, context.cwd))
        if data is None:
            code, err = 1, err + f"cat: {path}: No such file or directory\n".encode()
        else:
            out += data
    return code, out, err


def _rm(context: _Context, path: str) -> Outcome:
    full = inside(path, context.cwd)
    if context.files.lookup(full) is None:
        return 1, b"", f"rm: cannot remove '{path}': No such file or directory\n".encode()
    context.files.store(full, None)
    return 0, b"", b""
