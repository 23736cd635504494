"""The small shell of the in-memory twin of image sandboxes, over files that are a dict."""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from trialog.sandbox.memory_files import Tree
from trialog.sandbox.memory_script import (
    Command,
    Commands,
    For,
    Group,
    If,
    Node,
    Redirect,
    ScriptError,
    Simple,
    Word,
    assignment,
    parse,
)

NOT_FOUND, NOT_EXECUTABLE, MISUSED = 127, 126, 2
_SHELLS = ("sh", "bash", "/bin/sh", "/bin/bash", "/usr/bin/bash")
Spawn = Callable[[Coroutine[Any, Any, None]], None]
Write = Callable[[bytes], None]


class _ExitError(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


@dataclass(slots=True)
class Shell:
    """One shell: its files, folder and variables, and where its streams go."""

    tree: Tree
    cwd: str
    env: dict[str, str]
    out: Write
    err: Write
    spawn: Spawn
    stdin: bytes = b""
    args: tuple[str, ...] = ()
    last: int = 0
    _depth: int = field(default=0)

    async def run(self, argv: Sequence[str]) -> int:
        """Run a command as its caller gave it; return its exit code."""
        try:
            return await self._call(list(argv))
        except _ExitError as ended:
            return ended.code

    async def script(self, text: str, args: Sequence[str]) -> int:
        """Run a script in a shell of its own."""
        if self._depth > 20:
            raise ScriptError("too many shells within one another")
        inner = replace(self, env=dict(self.env), args=tuple(args), _depth=self._depth + 1)
        try:
            return await inner.commands(parse(text))
        except _ExitError as ended:
            return ended.code
        except (ScriptError, ValueError, IndexError) as error:
            self.err(f"sh: {error}\n".encode())
            return MISUSED

    async def commands(self, body: Commands) -> int:
        """Run a list; return the exit code of what ran last."""
        for item in body.items:
            if (item.when == "&&" and self.last != 0) or (item.when == "||" and self.last == 0):
                continue
            self.last = await self._item(item)
        return self.last

    async def _item(self, item: Command) -> int:
        if item.is_background:
            child = replace(self, env=dict(self.env))
            self.spawn(_quietly(child._pipe(item.pipe)))
            return 0
        return await self._pipe(item.pipe)

    async def _pipe(self, nodes: Sequence[Node]) -> int:
        if len(nodes) == 1:
            return await self._node(nodes[0])
        code, data = 0, self.stdin
        for n, node in enumerate(nodes):
            passed = bytearray()
            out = self.out if n == len(nodes) - 1 else passed.extend
            code = await replace(self, env=dict(self.env), stdin=data, out=out)._node(node)
            data = bytes(passed)
        return code

    async def _node(self, node: Node) -> int:
        match node:
            case Simple():
                return await self._simple(node)
            case Group():
                inner = replace(self, env=dict(self.env))
                try:
                    return await inner._redirected(node.redirects).commands(node.body)
                except _ExitError as ended:
                    return ended.code
            case If():
                for condition, body in node.branches:
                    if condition is None or await self.commands(condition) == 0:
                        self.last = 0
                        return await self.commands(body)
                return 0
            case For():
                values = self.args if node.words is None else self._expanded(node.words)
                self.last = 0
                for value in values:
                    self.env[node.name] = value
                    await self.commands(node.body)
                return self.last

    async def _simple(self, node: Simple) -> int:
        words = list(node.words)
        given: dict[str, str] = {}
        while words and (found := assignment(words[0])):
            given[found[0]] = "".join(self._expanded([found[1]]))
            words.pop(0)
        if not words:
            self.env |= given
            self._redirected(node.redirects)
            return 0
        try:
            inner = self._redirected(node.redirects)
        except FileNotFoundError as error:
            self.err(f"sh: {error}\n".encode())
            return MISUSED
        argv = self._expanded(words)
        if argv[0] in ("cd", "exit", "exec"):
            return await self._special(inner, argv)
        if given:
            inner = replace(inner, env={**self.env, **given})
        return await inner._call(argv)

    async def _special(self, inner: Shell, argv: list[str]) -> int:
        match argv:
            case ["cd", folder]:
                path = posixpath.normpath(posixpath.join(self.cwd, folder))
                if not self.tree.is_dir(path):
                    self.err(f"sh: cd: {folder}: No such file or directory\n".encode())
                    return MISUSED
                self.cwd = path
                return 0
            case ["exit"]:
                raise _ExitError(self.last)
            case ["exit", code]:
                raise _ExitError(int(code))
            case _:
                raise _ExitError(await inner._call(argv[1:]))

    def _redirected(self, redirects: Sequence[Redirect]) -> Shell:
        out, err, stdin = self.out, self.err, self.stdin
        for each in redirects:
            path = ""
            if each.target:
                path = posixpath.join(self.cwd, "".join(self._expanded([each.target])))
            match each.kind:
                case ">" | ">>":
                    out = self.tree.writer(path, append=each.kind == ">>")
                case "2>" | "2>>":
                    err = self.tree.writer(path, append=each.kind == "2>>")
                case "<":
                    stdin = self.tree.data(path)
                case "2>&1":
                    err = out
                case _:
                    out = err
        # The same environment and folder: only the streams are others.
        return replace(self, out=out, err=err, stdin=stdin)

    def _expanded(self, words: Sequence[Word]) -> list[str]:
        found: list[str] = []
        for word in words:
            if [piece.text for piece in word if piece.is_variable] == ["@"]:
                found += self.args
                continue
            text, is_quoted, is_split = "", False, False
            for piece in word:
                text += self._value(piece.text) if piece.is_variable else piece.text
                is_quoted |= piece.is_quoted
                is_split |= piece.is_variable and not piece.is_quoted
            found += text.split() if is_split and not is_quoted else [text]
        return found

    def _value(self, name: str) -> str:
        if name == "?":
            return str(self.last)
        if name == "#":
            return str(len(self.args))
        if name.isdigit():
            return self.args[int(name) - 1] if 0 < int(name) <= len(self.args) else ""
        return self.env.get(name, "")

    async def _call(self, argv: list[str]) -> int:
        name, rest = argv[0], [word for word in argv[1:] if word != "--"]
        if name in _SHELLS:
            if rest[:1] in (["-c"], ["-ec"]):
                return await self.script(rest[1], rest[3:])
            return await self._file(rest[0], rest[1:], is_run=False)
        builtin = _BUILTINS.get(name)
        if builtin is not None:
            return await builtin(self, rest)
        if "/" in name:
            return await self._file(name, rest, is_run=True)
        self.err(f"sh: {name}: not found\n".encode())
        return NOT_FOUND

    async def _file(self, path: str, args: Sequence[str], *, is_run: bool) -> int:
        full = posixpath.join(self.cwd, path)
        try:
            text = self.tree.data(full).decode()
        except FileNotFoundError:
            self.err(f"sh: {path}: not found\n".encode())
            return NOT_FOUND
        if is_run and not self.tree.mode(full) & 0o111:
            self.err(f"sh: {path}: Permission denied\n".encode())
            return NOT_EXECUTABLE
        return await self.script(text, args)


async def _quietly(work: Coroutine[Any, Any, int]) -> None:
    try:
        await work
    except _ExitError:
        return


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
    for path in (word for word in words if not word.startswith("-")):
        shell.tree.mkdir(posixpath.join(shell.cwd, path))
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
    known = name in _BUILTINS or name in _SHELLS
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
    for path in words:
        shell.tree.writer(posixpath.join(shell.cwd, path), append=True)
    return 0


_BUILTINS: Mapping[str, Callable[[Shell, list[str]], Coroutine[Any, Any, int]]] = {
    "sleep": _sleep,
    "cat": _cat,
    "echo": _echo,
    "printf": _printf,
    "tail": _tail,
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
