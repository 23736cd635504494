"""Server-sent events: the stream format of the HTML standard, section 9.2.6, as a push parser.

httpx's own line iterator splits at U+2028 and the like, which JSON texts may hold.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_LONGEST_LINE_BYTES = 8 * 2**20
_LINE_END = re.compile(rb"\r\n|\n|\r")


@dataclass(frozen=True)
class ServerEvent:
    """One dispatched event; ``id`` is the last id that the stream has named."""

    type: str
    data: str
    id: str


class SseParser:
    """Takes bytes as they come; gives an event at each blank line that ends one."""

    def __init__(self) -> None:
        self._rest = b""
        self._type = ""
        self._data: list[str] = []
        self._id = ""

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """Take a piece of the stream; return the events that it completes.

        Raises ValueError for a line beyond 8 MB.
        """
        *lines, self._rest = _split(self._rest + chunk)
        if len(self._rest) > _LONGEST_LINE_BYTES:
            raise ValueError("the event stream sent a line beyond 8 MB")
        completed = (self._line(line.decode("utf-8", "replace")) for line in lines)
        return [event for event in completed if event is not None]

    def _line(self, line: str) -> ServerEvent | None:
        if not line:
            return self._dispatch()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match name:
            case "data":
                self._data.append(value)
            case "event":
                self._type = value
            case "id" if "\0" not in value:
                self._id = value
            case _:
                pass  # a comment (name is empty), retry, or a field of the future
        return None

    def _dispatch(self) -> ServerEvent | None:
        data, kind = self._data, self._type
        self._data, self._type = [], ""
        return ServerEvent(kind or "message", "\n".join(data), self._id) if data else None


def _split(text: bytes) -> list[bytes]:
    """Split at line ends; a CR at the very end waits, since an LF may follow it."""
    if text.endswith(b"\r"):
        *lines, last = _LINE_END.split(text[:-1])
        return [*lines, last + b"\r"]
    return _LINE_END.split(text)
