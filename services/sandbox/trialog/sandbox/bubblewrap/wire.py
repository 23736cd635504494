"""Messages to and from the sandbox's PID 1 (the other side is init/init.h)."""

from __future__ import annotations

import asyncio
import enum
import socket
import struct
from collections.abc import Mapping, Sequence

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
) -> bytes:
    """Return the body of an exec request."""
    if not argv or any("\0" in text for text in (*argv, *env, *env.values())):
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


def write_request(path: str, data: bytes) -> bytes:
    """Return the body of a request to put a file in place."""
    return bytes([Op.WRITE]) + _text(path) + _bytes(data)


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
    if len(body) > MAX_MESSAGE_BYTES:
        raise FileRefusedError(f"a message of {len(body)} bytes is above {MAX_MESSAGE_BYTES}")
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
        channel.setblocking(False)
        try:
            await loop.sock_connect(channel, address)
            await loop.sock_sendall(channel, struct.pack(">I", len(body)) + body)
            (size,) = struct.unpack(">I", await _exactly(channel, 4))
            return await _exactly(channel, size)
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
