"""Reading the small shell of the in-memory twin: its words, and how commands are put together.

Lists with ``;``, ``&&``, ``||`` and ``&``, pipes, redirections, ``( )``, ``if``, ``for``, variables
and quotes. No globs, no arithmetic, no here-documents: what is not known is an error.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

_OPERATOR = re.compile(r"2>&1|2>>|2>|>&2|>>|&&|\|\||[;&|()<>\n]")
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+|[@?#]))")
_PLAIN = re.compile(r"[^\s;&|()<>\n'\"$\\#]+|#")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_ENDS = ("then", "else", "elif", "fi", "do", "done", ")")


class ScriptError(ValueError):
    """A script that this shell cannot read."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a word: text, or the name of a variable."""

    text: str
    is_variable: bool = False
    is_quoted: bool = False


Word = tuple[Piece, ...]
Token = Word | str


@dataclass(frozen=True, slots=True)
class Redirect:
    """Where a stream goes: ``kind`` is the operator, ``target`` the file's word if it has one."""

    kind: str
    target: Word = ()


@dataclass(frozen=True, slots=True)
class Simple:
    """A command of words, after its assignments."""

    words: tuple[Word, ...]
    redirects: tuple[Redirect, ...] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """A list in a subshell."""

    body: Commands
    redirects: tuple[Redirect, ...] = ()


@dataclass(frozen=True, slots=True)
class If:
    """``if`` with its branches; the last condition is None for ``else``."""

    branches: tuple[tuple[Commands | None, Commands], ...]


@dataclass(frozen=True, slots=True)
class For:
    """``for``; ``words`` None stands for the script's arguments."""

    name: str
    words: tuple[Word, ...] | None
    body: Commands


Node = Simple | Group | If | For


@dataclass(frozen=True, slots=True)
class Command:
    """A pipe of commands, and when it runs: always, after success, after failure."""

    when: Literal[";", "&&", "||"]
    pipe: tuple[Node, ...]
    is_background: bool = False


@dataclass(frozen=True, slots=True)
class Commands:
    """A list of commands."""

    items: tuple[Command, ...] = field(default=())


def parse(script: str) -> Commands:
    """Return what a script says. Raises ScriptError."""
    parser = _Parser(_tokens(script))
    found = parser.commands()
    if parser.peek() is not None:
        raise ScriptError(f"unexpected {parser.peek()!r}")
    return found


def _tokens(script: str) -> list[Token]:
    found: list[Token] = []
    word: list[Piece] = []
    at = 0

    def end() -> None:
        if word:
            found.append(tuple(word))
            word.clear()

    while at < len(script):
        char = script[at]
        if char in " \t" or script.startswith("\\\n", at):
            end()
            at += 2 if char == "\\" else 1
        elif char == "#" and not word:
            line_end = script.find("\n", at)
            at = len(script) if line_end < 0 else line_end
        elif (char != "2" or not word) and (match := _OPERATOR.match(script, at)):
            end()
            found.append(match[0])
            at = match.end()
        else:
            at = _piece(script, at, word)
    end()
    return found


def _piece(script: str, at: int, word: list[Piece]) -> int:
    """Add the next part of a word; return where the one after it begins."""
    char = script[at]
    if char == "'":
        close = script.index("'", at + 1)
        word.append(Piece(script[at + 1 : close], is_quoted=True))
        return close + 1
    if char == '"':
        return _quoted(script, at + 1, word)
    if char == "\\":
        word.append(Piece(script[at + 1], is_quoted=True))
        return at + 2
    if char == "$":
        return _variable(script, at, word, is_quoted=False)
    match = _PLAIN.match(script, at)
    if match is None:
        raise ScriptError(f"cannot read {script[at : at + 20]!r}")
    word.append(Piece(match[0]))
    return match.end()


def _quoted(script: str, at: int, word: list[Piece]) -> int:
    word.append(Piece("", is_quoted=True))
    while script[at] != '"':
        if script[at] == "$":
            at = _variable(script, at, word, is_quoted=True)
        elif script[at] == "\\" and script[at + 1] in '"\\$`\n':
            word.append(Piece(script[at + 1], is_quoted=True))
            at += 2
        else:
            word.append(Piece(script[at], is_quoted=True))
            at += 1
    return at + 1


def _variable(script: str, at: int, word: list[Piece], *, is_quoted: bool) -> int:
    match = _VARIABLE.match(script, at)
    if match is None:
        raise ScriptError(f"cannot read {script[at : at + 20]!r}")
    word.append(Piece(match[1] or match[2], is_variable=True, is_quoted=is_quoted))
    return match.end()


class _Parser:
    def __init__(self, tokens: list[Token]) -> None:
        self._tokens, self._at = tokens, 0

    def peek(self) -> str | None:
        """Return the next token's text; a word that is quoted is none of the language's."""
        if self._at >= len(self._tokens):
            return None
        token = self._tokens[self._at]
        if isinstance(token, str):
            return token
        plain = len(token) == 1 and not token[0].is_quoted and not token[0].is_variable
        return token[0].text if plain else ""

    def commands(self) -> Commands:
        items: list[Command] = []
        when: Literal[";", "&&", "||"] = ";"
        while True:
            while self.peek() in ("\n", ";"):
                self._at += 1
                when = ";"
            if self.peek() is None or self.peek() in _ENDS:
                return Commands(tuple(items))
            pipe = self._pipe()
            joint = self.peek()
            items.append(Command(when, pipe, joint == "&"))
            when = ";"
            if joint == "&&" or joint == "||":
                when = joint
            if joint in (";", "\n", "&", "&&", "||"):
                self._at += 1
            while when != ";" and self.peek() == "\n":
                self._at += 1

    def _pipe(self) -> tuple[Node, ...]:
        nodes = [self._node()]
        while self.peek() == "|":
            self._at += 1
            nodes.append(self._node())
        return tuple(nodes)

    def _node(self) -> Node:
        match self.peek():
            case "(":
                self._at += 1
                body = self.commands()
                self._expect(")")
                return Group(body, self._redirects())
            case "if":
                return self._if()
            case "for":
                return self._for()
            case _:
                return self._simple()

    def _if(self) -> If:
        branches: list[tuple[Commands | None, Commands]] = []
        while self.peek() in ("if", "elif"):
            self._at += 1
            condition = self.commands()
            self._expect("then")
            branches.append((condition, self.commands()))
        if self.peek() == "else":
            self._at += 1
            branches.append((None, self.commands()))
        self._expect("fi")
        return If(tuple(branches))

    def _for(self) -> For:
        self._at += 1
        name = self.peek() or ""
        self._at += 1
        words: list[Word] | None = None
        if self.peek() == "in":
            self._at += 1
            words = []
            while self.peek() not in (";", "\n", None):
                words.append(self._word())
        while self.peek() in (";", "\n"):
            self._at += 1
        self._expect("do")
        body = self.commands()
        self._expect("done")
        return For(name, None if words is None else tuple(words), body)

    def _simple(self) -> Simple:
        words: list[Word] = []
        redirects: list[Redirect] = []
        while self._at < len(self._tokens):
            if found := self._redirects():
                redirects += found
            elif isinstance(self._tokens[self._at], str):
                break
            else:
                words.append(self._word())
        if not words and not redirects:
            raise ScriptError(f"unexpected {self.peek()!r}")
        return Simple(tuple(words), tuple(redirects))

    def _redirects(self) -> tuple[Redirect, ...]:
        found: list[Redirect] = []
        while self.peek() in (">", ">>", "<", "2>", "2>>", "2>&1", ">&2"):
            kind = self.peek() or ""
            self._at += 1
            found.append(Redirect(kind) if "&" in kind else Redirect(kind, self._word()))
        return tuple(found)

    def _word(self) -> Word:
        token = self._tokens[self._at]
        if isinstance(token, str):
            raise ScriptError(f"unexpected {token!r}")
        self._at += 1
        return token

    def _expect(self, text: str) -> None:
        if self.peek() != text:
            raise ScriptError(f"{text!r} is missing before {self.peek()!r}")
        self._at += 1


def assignment(word: Word) -> tuple[str, Word] | None:
    """Return the name and the value of a word that assigns a variable."""
    first = word[0]
    match = None if first.is_quoted or first.is_variable else _ASSIGNMENT.fullmatch(first.text)
    return None if match is None else (match[1], (Piece(match[2]), *word[1:]))
