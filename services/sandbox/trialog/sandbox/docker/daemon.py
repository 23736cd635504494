"""Speaking to a Docker daemon of this host, over its Unix socket."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Mapping
from typing import Any

import httpx

from trialog.sandbox.errors import ProviderUnavailableError, SandboxError

_USUAL_ADDRESS = "unix:///var/run/docker.sock"
_ANSWER_TIMEOUT_S = 120.0
_CONNECT_TIMEOUT_S = 10.0
_MANY = 256  # connections at once: each waits for one answer of a local daemon

# A name may stand several times.
Params = Mapping[str, str] | list[tuple[str, str | int | float | bool | None]]


class DaemonError(SandboxError):
    """The daemon refused: ``status`` is HTTP's, the message the daemon's own."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Daemon:
    """A client of one daemon. It is used in one event loop and closed there."""

    def __init__(self, address: str) -> None:
        if not address.startswith("unix://"):
            raise ProviderUnavailableError(
                f"the Docker daemon at {address} is not reached by a Unix socket: sandboxes need "
                "folders that they share with the worker, so name a daemon of this host "
                f"(TRIALOG_DOCKER_HOST={_USUAL_ADDRESS})"
            )
        self.address = address
        self._client = httpx.AsyncClient(
            transport=httpx.AsyncHTTPTransport(
                uds=address.removeprefix("unix://"),
                limits=httpx.Limits(max_connections=_MANY, max_keepalive_connections=16),
            ),
            base_url="http://docker",
            timeout=httpx.Timeout(_ANSWER_TIMEOUT_S, connect=_CONNECT_TIMEOUT_S),
        )
        self._version = ""

    async def version(self) -> dict[str, Any]:
        """Return what the daemon says of itself. Raises ProviderUnavailableError with the mend."""
        try:
            answer = await self._client.get("/version")
        except httpx.TransportError as error:
            raise self._silent(error) from error
        return _parsed(answer.status_code, answer.content)

    async def ask(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: object = None,
        timeout_s: float = _ANSWER_TIMEOUT_S,
    ) -> Any:
        """Return the answer's JSON (None: it is empty).

        Raises DaemonError, ProviderUnavailableError when nobody answers.
        """
        try:
            answer = await self._client.request(
                method,
                await self._prefixed(path),
                params=params,
                json=body,
                timeout=httpx.Timeout(timeout_s, connect=_CONNECT_TIMEOUT_S),
            )
        except httpx.TransportError as error:
            raise self._silent(error) from error
        return _parsed(answer.status_code, answer.content)

    async def lines(
        self,
        path: str,
        *,
        params: Params,
        content: AsyncIterable[bytes] | bytes = b"",
    ) -> AsyncIterator[dict[str, Any]]:
        """Post a tar archive and yield the messages that come back, as long as that takes.

        Raises DaemonError, ProviderUnavailableError when nobody answers or the answer breaks off.
        """
        request = self._archive("POST", await self._prefixed(path), params, content)
        async with self._sent(request) as answer:
            async for line in answer.aiter_lines():
                if line.strip():
                    yield json.loads(line)

    async def do(self, path: str, params: Params, content: AsyncIterable[bytes] | bytes) -> None:
        """Post a tar archive and wait until all is done. Raises as ``lines``, also DaemonError for
        an error among the messages."""
        error = ""
        # To the end of the messages: who leaves before keeps the connection open.
        async for said in self.lines(path, params=params, content=content):
            error = str(said.get("error") or error)
        if error:
            raise DaemonError(500, error)

    async def stream(self, path: str) -> AsyncGenerator[bytes]:
        """Get an answer piece by piece. Raises as ``lines``."""
        request = self._client.build_request(
            "GET",
            await self._prefixed(path),
            timeout=httpx.Timeout(None, connect=_CONNECT_TIMEOUT_S),
        )
        async with self._sent(request) as answer:
            async for chunk in answer.aiter_bytes():
                yield chunk

    async def put(self, path: str, params: Params, content: AsyncIterable[bytes]) -> None:
        """Put a tar archive in place. Raises as ``ask``."""
        request = self._archive("PUT", await self._prefixed(path), params, content)
        async with self._sent(request) as answer:
            await answer.aread()

    def _archive(
        self,
        method: str,
        path: str,
        params: Params,
        content: AsyncIterable[bytes] | bytes,
    ) -> httpx.Request:
        return self._client.build_request(
            method,
            path,
            params=params,
            content=content,
            headers={"Content-Type": "application/x-tar"},
            timeout=httpx.Timeout(None, connect=_CONNECT_TIMEOUT_S),
        )

    @contextlib.asynccontextmanager
    async def _sent(self, request: httpx.Request) -> AsyncGenerator[httpx.Response]:
        try:
            answer = await self._client.send(request, stream=True)
            try:
                if answer.status_code >= 400:
                    _parsed(answer.status_code, await answer.aread())
                yield answer
            finally:
                await answer.aclose()
        except httpx.TransportError as error:
            raise self._silent(error) from error

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def _prefixed(self, path: str) -> str:
        """Ask in the newest version of the interface that the daemon speaks."""
        if not self._version:
            self._version = str((await self.version())["ApiVersion"])
        return f"/v{self._version}{path}"

    def _silent(self, error: Exception) -> ProviderUnavailableError:
        said = str(error) or type(error).__name__
        return ProviderUnavailableError(
            f"no Docker daemon answers at {self.address} ({said}). Start one, or name another "
            "(TRIALOG_DOCKER_HOST); this user must be allowed to write to its socket"
        )


def _parsed(status: int, content: bytes) -> Any:
    try:
        said: Any = json.loads(content) if content.strip() else None
    except ValueError:
        said = {"message": content[:500].decode("utf-8", "replace")}
    if status >= 400:
        raise DaemonError(status, str(said["message"] if said else f"HTTP status {status}"))
    return said
