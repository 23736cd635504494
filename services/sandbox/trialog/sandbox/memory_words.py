"""The words that the shell of the in-memory twin knows, beside those of its language."""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from trialog.sandbox.memory_script import ScriptError

if TYPE_CHECKING:
    from trialog.sandbox.memory_shell import Shell

SHELLS = ("sh", "bash", "/bin/sh", "/bin/bash", "/usr/bin/bash")


async def _sleep(shell: Shell, words: list[str]) -> int:
    await (asyncio.Event().wait() if words == ["infinity"] else asyncio.sleep(float(words[0])))
    return 0


async def _cat(shell: Shell, words: list[str]) -> int:
    code = 0
    if not words:
        shell.out(shell.stdin)
    for path in words:
        try:
            shell.out(shell.tree.data(posixpath.join(shell.cwd, path)))
        except FileNotFoundError:
            shell.err(f"cat: {path}: No such file or directory\n".encode())
            code = 1
    return code


async def _echo(shell: Shell, words: list[str]) -> int:
    end = "" if words[:1] == ["-n"] else "\n"
    shell.out((" ".join(words[0 if end else 1 :]) + end).encode())
    return 0


async def _printf(shell: Shell, words: list[str]) -> int:
    text = words[0].replace("\\n", "\n").replace("\\0", "\0")
    for value in words[1:]:
        text = text.replace("%s", value, 1)
    shell.out(text.encode())
    return 0


async def _tail(shell: Shell, words: list[str]) -> int:
    shell.out(shell.tree.data(posixpath.join(shell.cwd, words[2]))[-int(words[1]) :])
    return 0


async def _head(shell: Shell, words: list[str]) -> int:
    size, path = int(words[1]), posixpath.join(shell.cwd, words[2])
    shell.out(bytes(size) if path == "/dev/zero" else shell.tree.data(path)[:size])
    return 0


async def _ls(shell: Shell, words: list[str]) -> int:
    path = posixpath.join(shell.cwd, words[-1])
    if not shell.tree.exists(path):
        shell.err(f"ls: {words[-1]}: No such file or directory\n".encode())
        return 2
    names = [words[-1]]
    if "-d" not in words and shell.tree.is_dir(path):
        inside = (found.removeprefix(path.rstrip("/") + "/") for found in shell.tree.below(path))
        names = [name for name in inside if "/" not in name]
    shell.out("".join(f"{name}\n" for name in names).encode())
    return 0


async def _stat(shell: Shell, words: list[str]) -> int:
    for path in words[2:]:
        full = posixpath.join(shell.cwd, path)
        mode = f"{shell.tree.mode(full):o}"
        shell.out((words[1].replace("%a", mode).replace("%u", "0") + "\n").encode())
    return 0


async def _rm(shell: Shell, words: list[str]) -> int:
    options = {letter for word in words if word.startswith("-") for letter in word[1:]}
    code = 0
    for path in (word for word in words if not word.startswith("-")):
        full = posixpath.join(shell.cwd, path)
        if not shell.tree.exists(full, follow=False) and "f" not in options:
            shell.err(f"rm: {path}: No such file or directory\n".encode())
            code = 1
        shell.tree.remove(full)
    return code


async def _mkdir(shell: Shell, words: list[str]) -> int:
    mode = 0o755
    if "-m" in words:
        at = words.index("-m")
        mode, words = int(words[at + 1], 8), words[:at] + words[at + 2 :]
    for path in (word for word in words if not word.startswith("-")):
        full = posixpath.join(shell.cwd, path)
        is_new = not shell.tree.exists(full)
        shell.tree.mkdir(full)
        if is_new:
            shell.tree.chmod(full, mode)
    return 0


async def _chmod(shell: Shell, words: list[str]) -> int:
    for path in words[1:]:
        full = posixpath.join(shell.cwd, path)
        if not shell.tree.exists(full):
            return 1
        mode = shell.tree.mode(full) | 0o111 if words[0] == "+x" else int(words[0], 8)
        shell.tree.chmod(full, mode)
    return 0


async def _ln(shell: Shell, words: list[str]) -> int:
    target, path = [word for word in words if not word.startswith("-")]
    shell.tree.link(posixpath.join(shell.cwd, path), target)
    return 0


async def _test(shell: Shell, words: list[str]) -> int:
    match [word for word in words if word != "]"]:
        case ["!", *rest]:
            return 1 - await _test(shell, rest)
        case ["-e", path]:
            found = shell.tree.exists(posixpath.join(shell.cwd, path))
        case ["-d", path]:
            found = shell.tree.is_dir(posixpath.join(shell.cwd, path))
        case ["-f", path]:
            full = posixpath.join(shell.cwd, path)
            found = shell.tree.exists(full) and not shell.tree.is_dir(full)
        case ["-L", path]:
            found = shell.tree.is_link(posixpath.join(shell.cwd, path))
        case [one, "=", other]:
            found = one == other
        case [one, "!=", other]:
            found = one != other
        case [text]:
            found = bool(text)
        case _:
            raise ScriptError(f"test does not know {words}")
    return 0 if found else 1


async def _command(shell: Shell, words: list[str]) -> int:
    name = words[-1]
    known = name in BUILTINS or name in SHELLS
    if known:
        shell.out(f"{name}\n".encode())
    return 0 if known else 1


async def _code(shell: Shell, words: list[str], code: int = 0) -> int:
    return code


async def _false(shell: Shell, words: list[str]) -> int:
    return 1


async def _env(shell: Shell, words: list[str]) -> int:
    shell.out("".join(f"{name}={value}\n" for name, value in shell.env.items()).encode())
    return 0


async def _pwd(shell: Shell, words: list[str]) -> int:
    shell.out(f"{shell.cwd}\n".encode())
    return 0


async def _touch(shell: Shell, words: list[str]) -> int:
    for path in words[2:] if words[:1] == ["-d"] else words:
        shell.tree.writer(posixpath.join(shell.cwd, path), append=True)
    return 0


BUILTINS: Mapping[str, Callable[[Shell, list[str]], Coroutine[Any, Any, int]]] = {
    "sleep": _sleep,
    "cat": _cat,
    "echo": _echo,
    "printf": _printf,
    "tail": _tail,
    "head": _head,
    "ls": _ls,
    "stat": _stat,
    "rm": _rm,
    "mkdir": _mkdir,
    "chmod": _chmod,
    "ln": _ln,
    "test": _test,
    "[": _test,
    "command": _command,
    "true": _code,
    ":": _code,
    "false": _false,
    "env": _env,
    "pwd": _pwd,
    "touch": _touch,
}
