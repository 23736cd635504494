"""Messages to and from the sandbox's PID 1 (the other side is init/init.h)."""

from __future__ import annotations

import asyncio
import enum
import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trialog.sandbox.errors import (
    FileMissingError,
    FileRefusedError,
    InvalidNameError,
    ResultDroppedError,
    SandboxGoneError,
)
from trialog.sandbox.provider import ExecResult

MAX_MESSAGE_BYTES = 64 << 20
_MAX_U32 = 0xFFFF_FFFF


class Op(enum.IntEnum):
    """What PID 1 is asked for."""

    PING = 1
    EXEC = 2
    KILL_ALL = 3
    READ = 4
    WRITE = 5
    EXIT = 6
    COUNT = 7
    FREEZE = 8
    THAW = 9
    LIST = 10
    CHUNK = 11
    PUT = 12
    STAT = 13
    UNLINKED = 14
    ORPHAN = 15


class _Status(enum.IntEnum):
    OK = 0
    BAD = 1
    DROPPED = 2
    MISSING = 3
    REFUSED = 4


_TRUNCATED, _TIMED_OUT = 1, 2
_LIMITS = {4: "memory", 8: "pids"}


def exec_request(
    exec_id: str,
    argv: Sequence[str],
    *,
    cwd: str,
    env: Mapping[str, str],
    stdin: bytes,
    timeout_s: float,
    output_limit_bytes: int,
    user: str = "",
) -> bytes:
    """Return the body of an exec request; an empty user is root, as PID 1 is."""
    if not argv or any("\0" in text for text in (*argv, *env, *env.values(), user)):
        raise InvalidNameError("a command is at least one word, without NUL characters")
    timeout_ms = min(max(int(timeout_s * 1000), 1), _MAX_U32)
    return b"".join(
        (
            bytes([Op.EXEC]),
            _text(exec_id),
            _text(cwd),
            struct.pack(">II", timeout_ms, min(output_limit_bytes, MAX_MESSAGE_BYTES // 4)),
            _list(argv),
            _list([f"{key}={value}" for key, value in env.items()]),
            _bytes(stdin),
            _text(user),
        )
    )


def exec_result(body: bytes) -> ExecResult:
    """Return the result in an exec reply. Raises ResultDroppedError, SandboxGoneError."""
    status = body[0]
    if status == _Status.DROPPED:
        raise ResultDroppedError("the command ran, and its output was dropped since")
    if status != _Status.OK:
        raise SandboxGoneError(f"the sandbox's init refused: {_message(body)}")
    code, flags = struct.unpack_from(">iB", body, 1)
    stdout, at = _take(body, 6)
    stderr, _ = _take(body, at)
    limit = next((name for bit, name in _LIMITS.items() if flags & bit), None)
    return ExecResult(
        code, stdout, stderr, bool(flags & _TRUNCATED), bool(flags & _TIMED_OUT), limit
    )


def read_request(path: str, limit_bytes: int) -> bytes:
    """Return the body of a request for a file's bytes."""
    limit = min(limit_bytes, MAX_MESSAGE_BYTES - 64)
    return bytes([Op.READ]) + _text(path) + struct.pack(">I", limit)


def write_request(path: str, data: bytes, mode: int = 0o644) -> bytes:
    """Return the body of a request to put a file in place."""
    return bytes([Op.WRITE]) + _text(path) + struct.pack(">I", mode) + _bytes(data)


def chunk_request(path: str, offset: int, length: int) -> bytes:
    """Return the body of a request for a part of a file."""
    return bytes([Op.CHUNK]) + _text(path) + struct.pack(">QI", offset, length)


@dataclass(frozen=True, slots=True)
class Listed:
    """One path below a folder; ``kind`` is f, d, l (symlink, to ``target``) or o (other)."""

    kind: str
    mode: int
    size: int
    path: str
    target: bytes = b""


def list_request(path: str, limit: int, exclude: Sequence[str]) -> bytes:
    """Return the body of a request for all paths below one."""
    return bytes([Op.LIST]) + _text(path) + struct.pack(">I", limit) + _list(exclude)


def listing(path: str, body: bytes) -> tuple[list[Listed], bool]:
    """Return the paths in a reply and whether there were more. Raises as ``file_bytes``."""
    if body[0] != _Status.OK:
        file_bytes(path, body)
    cut, count = struct.unpack_from(">BI", body, 1)
    found: list[Listed] = []
    at = 6
    for _ in range(count):
        kind, mode, size = struct.unpack_from(">cIQ", body, at)
        name, at = _take(body, at + 13)
        target, at = _take(body, at)
        path_below = name.decode("utf-8", "surrogateescape")
        found.append(Listed(kind.decode(), mode, size, path_below, target))
    return found, bool(cut)


@dataclass(frozen=True, slots=True)
class Stat:
    """What a path is: f (file), d (folder), o (other), or - (missing, or behind a symlink)."""

    kind: str
    mode: int
    uid: int
    gid: int
    size: int
    disk_bytes: int
    mtime: int


def stat_request(paths: Sequence[str]) -> bytes:
    """Return the body of a request for what paths are."""
    return bytes([Op.STAT]) + _list(paths)


def stats(body: bytes) -> list[Stat]:
    """Return what the paths of a request are, in their order. Raises SandboxGoneError."""
    if body[0] != _Status.OK:
        raise SandboxGoneError(f"the sandbox's init refused: {_message(body)}")
    found = struct.iter_unpack(">cIIIQQQ", _take(body, 1)[0])
    return [Stat(kind.decode(), *numbers) for kind, *numbers in found]


@dataclass(frozen=True, slots=True)
class Put:
    """One path to put in place: d (folder), m (folder unless there), f (file), w (a file's content
    where it stands), a (more of a file), l (symlink, ``data`` its target). Without an owner it is
    PID 1's."""

    kind: str
    path: str
    mode: int = 0o755
    data: bytes = b""
    uid: int | None = None
    gid: int | None = None

    def encoded(self) -> bytes:
        """Return the entry as it stands in a request."""
        uid = _MAX_U32 if self.uid is None else self.uid
        gid = _MAX_U32 if self.gid is None else self.gid
        head = struct.pack(">IIII", ord(self.kind), self.mode, uid, gid)
        return head + _text(self.path) + _bytes(self.data)


def put_request(entries: Sequence[bytes], *, follow: bool = False) -> bytes:
    """Return the body of a request to put encoded entries in place, in their order."""
    return bytes([Op.PUT]) + struct.pack(">II", follow, len(entries)) + b"".join(entries)


def count(body: bytes) -> int:
    """Return the number in a reply to COUNT."""
    if body[0] != _Status.OK:
        raise SandboxGoneError(f"the sandbox's init refused: {_message(body)}")
    (number,) = struct.unpack_from(">I", body, 1)
    return number


def unlinked_bytes(body: bytes) -> int:
    """Return the bytes in a reply to UNLINKED."""
    if body[0] != _Status.OK:
        raise SandboxGoneError(f"the sandbox's init refused: {_message(body)}")
    (number,) = struct.unpack_from(">Q", body, 1)
    return number


def orphan_request(orphan_s: float | None) -> bytes:
    """Return the body of a request to live that long without a worker; None: as started with."""
    orphan_ms = _MAX_U32 if orphan_s is None else min(int(orphan_s * 1000), _MAX_U32)
    return bytes([Op.ORPHAN]) + struct.pack(">I", orphan_ms)


def file_bytes(path: str, body: bytes) -> bytes:
    """Return the bytes in a reply about a file. Raises FileMissingError, FileRefusedError."""
    match body[0]:
        case _Status.OK:
            return _take(body, 1)[0]
        case _Status.MISSING:
            raise FileMissingError(f"{path}: {_message(body)}")
        case _:
            raise FileRefusedError(f"{path}: {_message(body)}")


async def ask(address: str, body: bytes) -> bytes:
    """Send one request over a connection of its own and return the reply's body.

    Cancelling abandons the reply, not the command. Raises SandboxGoneError when nobody answers.
    """
    async with Channel(address) as channel:
        return await channel.ask(body)


class Channel:
    """A connection for several requests, one after another."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.setblocking(False)

    async def __aenter__(self) -> Channel:
        try:
            await asyncio.get_running_loop().sock_connect(self._socket, self._address)
        except BaseException as error:  # the descriptor must not leak, whatever it was
            self._socket.close()
            if isinstance(error, OSError):
                raise SandboxGoneError(f"the sandbox does not answer: {error}") from error
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._socket.close()

    async def ask(self, body: bytes) -> bytes:
        """Send a request and return the reply's body. Raises SandboxGoneError."""
        if len(body) > MAX_MESSAGE_BYTES:
            raise FileRefusedError(f"a message of {len(body)} bytes is above {MAX_MESSAGE_BYTES}")
        loop = asyncio.get_running_loop()
        try:
            await loop.sock_sendall(self._socket, struct.pack(">I", len(body)) + body)
            (size,) = struct.unpack(">I", await _exactly(self._socket, 4))
            return await _exactly(self._socket, size)
        except OSError as error:
            raise SandboxGoneError(f"the sandbox does not answer: {error}") from error


async def _exactly(channel: socket.socket, size: int) -> bytes:
    loop = asyncio.get_running_loop()
    data = bytearray()
    while len(data) < size:
        more = await loop.sock_recv(channel, min(size - len(data), 1 << 20))
        if not more:
            raise SandboxGoneError("the sandbox ended before it answered")
        data += more
    return bytes(data)


def _bytes(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data + b"\0"


def _text(text: str) -> bytes:
    return _bytes(text.encode("utf-8", "surrogateescape"))


def _list(texts: Sequence[str]) -> bytes:
    return struct.pack(">I", len(texts)) + b"".join(map(_text, texts))


def _take(body: bytes, at: int) -> tuple[bytes, int]:
    (size,) = struct.unpack_from(">I", body, at)
    return body[at + 4 : at + 4 + size], at + 4 + size + 1


def _message(body: bytes) -> str:
    return _take(body, 1)[0].decode("utf-8", "replace")
