"""The small shell of the in-memory twin of image sandboxes, over files that are a dict."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Coroutine, Sequence
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
from trialog.sandbox.memory_words import BUILTINS, SHELLS

NOT_FOUND, NOT_EXECUTABLE, MISUSED = 127, 126, 2
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
        if name in SHELLS:
            if rest[:1] in (["-c"], ["-ec"]):
                return await self.script(rest[1], rest[3:])
            return await self._file(rest[0], rest[1:], is_run=False)
        builtin = BUILTINS.get(name)
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
