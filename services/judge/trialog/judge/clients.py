"""The judge client port, its reply, and the client that speaks HTTP."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any, Protocol

import httpx
import msgspec

from trialog.judge.errors import JudgeRefusedError, JudgeTimeoutError, JudgeUnavailableError
from trialog.judge.replies import Prices, read_reply

MAX_REPLY_BYTES = 1_000_000
LATENCY_HEADER = "X-Judge-Latency-S"
KEY_HEADER = "Idempotency-Key"
_TRY_AGAIN = frozenset({408, 425, 429})


class JudgeReply(msgspec.Struct, frozen=True):
    """What came back for one call, valid or not.

    An invalid reply has no score and no scores; its tokens and cost count all the same. ``raw`` is
    the reply as it came, cut at 1 MB.
    """

    score: float | None
    scores: dict[str, float]
    valid: bool
    prompt_tokens: int
    completion_tokens: int
    cost_microusd: int
    latency_ms: float
    raw: bytes


def reply_of(
    request: dict[str, Any], raw: bytes, *, prices: Prices, latency_ms: float
) -> JudgeReply:
    """Return the reply that bytes are to a request. Which model was asked is no part of a prompt:
    where the reply does not tell its tokens, they are estimated without it."""
    asked = {name: value for name, value in request.items() if name != "model"}
    reading = read_reply(asked, raw)
    return JudgeReply(
        score=reading.score,
        scores=reading.scores,
        valid=reading.valid,
        prompt_tokens=reading.prompt_tokens,
        completion_tokens=reading.completion_tokens,
        cost_microusd=prices.cost_microusd(reading),
        latency_ms=latency_ms,
        raw=raw,
    )


class JudgeClient(Protocol):
    """Asks a model for one verdict. One call of ``call`` is at most one call of the model.

    A request holds ``model`` ({"model", "temperature", "max_tokens"}), ``rubric`` or ``criterion``
    and the trajectory.
    """

    async def call(
        self, request: dict[str, Any], *, idempotency_key: str, latency_s: float, timeout_s: float
    ) -> JudgeReply:
        """Send a request and return the reply, valid or not.

        ``latency_s`` is how long a stand-in shall take; it is no part of the request. Raises
        JudgeUnavailableError, JudgeTimeoutError (after ``timeout_s`` in all) and
        JudgeRefusedError.
        """
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...


class HttpJudgeClient:
    """Asks a server at ``url`` over pooled connections. It never sends a request twice by itself:
    whether to try again is for the claims to say."""

    def __init__(self, url: str, *, prices: Prices | None = None, max_connections: int = 256):
        self._prices = prices or Prices()
        limits = httpx.Limits(
            max_connections=max_connections,
            max_keepalive_connections=max_connections,
            keepalive_expiry=4.0,  # below uvicorn's 5 s: a call never meets a connection just shut
        )
        self._http = httpx.AsyncClient(
            base_url=url.rstrip("/"),
            limits=limits,
            timeout=None,  # noqa: S113 - each call has its own limit in all
            trust_env=False,
            headers={"Content-Type": "application/json", "Accept-Encoding": "identity"},
        )

    async def call(
        self, request: dict[str, Any], *, idempotency_key: str, latency_s: float, timeout_s: float
    ) -> JudgeReply:
        """See JudgeClient."""
        body = json.dumps(request, sort_keys=True, allow_nan=False).encode()
        headers = {KEY_HEADER: idempotency_key, LATENCY_HEADER: repr(latency_s)}
        start = time.perf_counter()
        try:
            async with asyncio.timeout(timeout_s):
                raw = await self._post(body, headers)
        except TimeoutError as error:
            raise JudgeTimeoutError(f"no reply from the judge within {timeout_s:g} s") from error
        except (httpx.TransportError, httpx.StreamError) as error:
            raise JudgeUnavailableError(
                f"the judge at {self._http.base_url} did not answer: {_name(error)}",
                unpaid=isinstance(error, httpx.ConnectError),
            ) from error
        latency_ms = (time.perf_counter() - start) * 1000
        return reply_of(request, raw, prices=self._prices, latency_ms=latency_ms)

    async def close(self) -> None:
        """See JudgeClient."""
        await self._http.aclose()

    async def _post(self, body: bytes, headers: dict[str, str]) -> bytes:
        async with self._http.stream(
            "POST", "/v1/judge", content=body, headers=headers
        ) as response:
            if response.status_code != 200:
                raise await _refusal(response)
            return await _read(response)


def _name(error: Exception) -> str:
    return f"{type(error).__name__} {error}".strip()


async def _read(response: httpx.Response) -> bytes:
    data = bytearray()
    async for part in response.aiter_bytes():
        data += part
        if len(data) > MAX_REPLY_BYTES:  # too long to be a verdict; cut JSON reads as invalid
            return bytes(data[:MAX_REPLY_BYTES])
    return bytes(data)


async def _refusal(response: httpx.Response) -> JudgeUnavailableError | JudgeRefusedError:
    status = response.status_code
    text = (await _read(response))[:300].decode("utf-8", "replace")
    message = f"the judge answered {status}: {text}"
    if status >= 500 or status in _TRY_AGAIN:
        wanted_s = _retry_after_s(response.headers.get("Retry-After"))
        return JudgeUnavailableError(message, wanted_s, unpaid=True)
    return JudgeRefusedError(message, status)


def _retry_after_s(text: str | None) -> float | None:
    """Seconds of a Retry-After header; its date form is not worth a clock."""
    return float(text) if text is not None and text.isdecimal() and len(text) < 7 else None
