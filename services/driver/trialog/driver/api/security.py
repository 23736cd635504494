"""Who may ask, and how much: checked before a route is looked for."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trialog.driver.api.problems import ProblemError

_OPEN = frozenset({"/livez", "/readyz"})


class Guard:
    """Refuses requests without the key, from other sites' pages, and with too large a body.

    Without a key the API answers on loopback only (settings.py), where any web page in a browser
    of this machine could reach it: by a name that it makes point here (so the Host must be an
    address or localhost), or by posting across sites (so an Origin must be our own).
    """

    def __init__(
        self,
        app: ASGIApp,
        api_key: str | None,
        max_body_bytes: int,
        larger: Mapping[str, int] | None = None,
    ) -> None:
        """``larger`` are limits of paths whose bodies may be larger."""
        self._app = app
        self._larger = dict(larger or {})
        self._key = None if api_key is None else f"Bearer {api_key}".encode()
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a problem, or pass the request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        limit = self._larger.get(scope["path"], self._max_body_bytes)
        try:
            self._check_caller(scope, headers)
            _check_length(headers, limit)
        except ProblemError as problem:
            await problem.response(scope["path"])(scope, receive, send)
            return
        await self._app(scope, _bounded(receive, limit), send)

    def _check_caller(self, scope: Scope, headers: Headers) -> None:
        if scope["path"] in _OPEN:
            return
        if self._key is None:
            _check_local(headers)
        elif not hmac.compare_digest(headers.get("authorization", "").encode("latin-1"), self._key):
            raise ProblemError(
                401,
                "unauthorized",
                "API key missing or wrong",
                "send it as Authorization: Bearer KEY",
                headers={"WWW-Authenticate": 'Bearer realm="trialog"'},
            )


def _check_length(headers: Headers, limit: int) -> None:
    length = headers.get("content-length", "0")
    if length.isdecimal() and int(length) > limit:
        raise _too_large(limit)


def _bounded(receive: Receive, limit: int) -> Receive:
    """Count a body that comes in chunks and does not say how long it is."""
    received = 0

    async def bounded() -> Message:
        nonlocal received
        message = await receive()
        if message["type"] == "http.request":
            received += len(message.get("body", b""))
            if received > limit:
                raise _too_large(limit)
        return message

    return bounded


def _too_large(limit: int) -> ProblemError:
    return ProblemError(413, "too-large", "Body too large", f"the limit is {limit} bytes")


def _check_local(headers: Headers) -> None:
    host = headers.get("host", "")
    if host and not _is_local_name(host):
        raise ProblemError(
            421, "misdirected", "Misdirected request", f"without an API key, {host} is not served"
        )
    origin = headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != host:
        raise ProblemError(403, "forbidden", "Forbidden", "requests of other sites are refused")


def _is_local_name(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or bool(ip_address(name))
    except ValueError:
        return False
