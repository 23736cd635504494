"""What both clients tell httpx, and how they read its failures."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, TypedDict, cast
from urllib.parse import urlsplit

import httpx

from trialog.client.calls import DEFAULT_URL, TAR, Call, problem
from trialog.client.errors import ApiError, UnexpectedAnswer, api_error
from trialog.client.models import Event
from trialog.client.sse import SseParser

# Servers send a comment at least every 15 s; a stream silent for longer is dead.
STREAM_TIMEOUT = httpx.Timeout(10.0, read=60.0)
# An archive is made before its first byte is sent.
DOWNLOAD_TIMEOUT = httpx.Timeout(10.0, read=90.0)
# What was uploaded is looked at before the answer.
UPLOAD_TIMEOUT = httpx.Timeout(60.0, connect=5.0, read=600.0)
REOPEN_S = 0.1
_PIECE = 1 << 20
NOTHING_TO_COME = 204  # the run ended at or before the position that a stream goes on after


class ClientOptions(TypedDict):
    """Keyword arguments of httpx.Client and httpx.AsyncClient."""

    base_url: str
    headers: dict[str, str]
    timeout: httpx.Timeout
    trust_env: bool


def address(url: str | None) -> str:
    """Return the address of the server: that which is given, else $TRIALOG_URL, else the default.

    Raises ValueError for what is none.
    """
    return check_url(url or os.environ.get("TRIALOG_URL") or DEFAULT_URL)


def check_url(url: str) -> str:
    """Return the address without a trailing slash; raises ValueError when it is none."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url!r} is no address: expected http://HOST:PORT or https://HOST")
    return url.rstrip("/")


def client_options(url: str, api_key: str | None, timeout_s: float) -> ClientOptions:
    """Return httpx settings: the key (default: $TRIALOG_API_KEY), limits, no proxy on loopback."""
    key = api_key if api_key is not None else os.environ.get("TRIALOG_API_KEY")
    headers = {"Accept": "application/json"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    return ClientOptions(
        base_url=check_url(url),
        headers=headers,
        timeout=httpx.Timeout(timeout_s, connect=min(timeout_s, 5.0)),
        trust_env=not _is_loopback(url),
    )


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def request(client: httpx.Client | httpx.AsyncClient, call: Call) -> httpx.Request:
    """Return the httpx request of a call."""
    params, headers = cast(dict[str, Any], call.params), dict(call.headers)
    if call.file is None:
        return client.build_request(
            call.method, call.path, params=params, headers=headers, json=call.body
        )
    headers["Content-Length"] = str(call.file.stat().st_size)
    pieces = _pieces(call.file)
    content = _in_turn(pieces) if isinstance(client, httpx.AsyncClient) else pieces
    built = client.build_request(
        call.method, call.path, params=params, headers=headers, content=content
    )
    built.extensions["timeout"] = UPLOAD_TIMEOUT.as_dict()
    return built


def _pieces(file: Path) -> Iterator[bytes]:
    with file.open("rb") as opened:
        while piece := opened.read(_PIECE):
            yield piece


async def _in_turn(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
        yield piece


def cause_of(error: httpx.TransportError) -> str:
    """Return a transport failure in a few words."""
    words = str(error).strip()
    if "refused" in words or "All connection attempts failed" in words:
        return "connection refused"
    return words or type(error).__name__


def refused_stream(response: httpx.Response, body: bytes, url: str) -> ApiError | UnexpectedAnswer:
    """Return the error of a stream that did not open."""
    kind = response.headers.get("content-type", "")
    if response.status_code >= 400:
        return api_error(problem(response.status_code, kind, body))
    return UnexpectedAnswer(f"{url} answered {kind or 'nothing'} instead of an event stream")


def refused_download(
    response: httpx.Response, body: bytes, url: str
) -> ApiError | UnexpectedAnswer | None:
    """Return the error of a download that did not begin, None for one that did."""
    kind = response.headers.get("content-type", "")
    if response.status_code >= 400:
        return api_error(problem(response.status_code, kind, body))
    if response.status_code == 200 and kind.startswith(TAR):
        return None
    return UnexpectedAnswer(f"{url} answered {kind or 'nothing'} instead of an archive")


def is_stream(response: httpx.Response) -> bool:
    """Say whether the response is an open event stream."""
    kind = response.headers.get("content-type", "")
    return response.status_code == 200 and kind.startswith("text/event-stream")


def events_of(parser: SseParser, chunk: bytes) -> list[Event]:
    """Return the log's events that a piece of a stream completes; a ping is none.

    Raises UnexpectedAnswer when the stream does not hold JSON.
    """
    try:
        found: list[Any] = [json.loads(message.data) for message in parser.feed(chunk)]
    except ValueError as error:
        raise UnexpectedAnswer(f"the event stream cannot be read: {error}") from error
    return [cast(Event, one) for one in found if isinstance(one, dict) and "position" in one]
