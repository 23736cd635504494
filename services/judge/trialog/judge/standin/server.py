"""The stand-in's HTTP interface: judge a request, tell the calls."""

from __future__ import annotations

import asyncio
import json
import math
from typing import Any

from fastapi import FastAPI, Request, Response

from trialog.judge.standin.answers import answer_to
from trialog.judge.standin.counter import CallCounter
from trialog.judge.standin.reference import InvalidRequestError

MAX_BODY_BYTES = 4_000_000
MAX_LATENCY_S = 86_400.0
LATENCY_HEADER = "X-Judge-Latency-S"
KEY_HEADER = "Idempotency-Key"


def application(counter: CallCounter) -> FastAPI:
    """Return the application over a counter. Calls are counted when they are well formed."""
    app = FastAPI(title="Trialog's stand-in judge", docs_url=None, redoc_url=None)

    @app.post("/v1/judge")
    async def judge_trial(request: Request) -> Response:  # pyright: ignore[reportUnusedFunction]
        try:
            latency_s = _latency_s(request.headers.get(LATENCY_HEADER, "0"))
            body = _parsed(await _read(request))
            answer = answer_to(body)
        except _TooLargeError as error:
            return _problem(413, "Body too large", str(error))
        except InvalidRequestError as error:
            return _problem(400, "Not a request for a judgment", str(error))
        counter.count(request.headers.get(KEY_HEADER, ""))
        if latency_s:
            await asyncio.sleep(latency_s)
        return Response(answer, media_type="application/json")

    @app.get("/v1/calls")
    async def calls() -> Response:  # pyright: ignore[reportUnusedFunction]
        return _json(counter.report())

    @app.get("/livez")
    async def livez() -> Response:  # pyright: ignore[reportUnusedFunction]
        return _json({"status": "ok"})

    return app


class _TooLargeError(ValueError):
    pass


async def _read(request: Request) -> bytes:
    data = bytearray()
    async for part in request.stream():
        data += part
        if len(data) > MAX_BODY_BYTES:
            raise _TooLargeError(f"the limit is {MAX_BODY_BYTES} bytes")
    return bytes(data)


def _parsed(data: bytes) -> dict[str, Any]:
    try:
        body = json.loads(data, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise InvalidRequestError("the body must be a JSON object")
    return body  # pyright: ignore[reportUnknownVariableType] - checked field by field next


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} is not JSON")


def _latency_s(text: str) -> float:
    try:
        latency_s = float(text)
    except ValueError:
        latency_s = math.nan
    if not 0 <= latency_s <= MAX_LATENCY_S:
        raise InvalidRequestError(f"{LATENCY_HEADER} must be seconds from 0 to {MAX_LATENCY_S:g}")
    return latency_s


def _json(body: dict[str, Any], status: int = 200, kind: str = "application/json") -> Response:
    return Response(json.dumps(body), status, media_type=kind)


def _problem(status: int, title: str, detail: str) -> Response:
    problem = {"type": "about:blank", "title": title, "status": status, "detail": detail}
    return _json(problem, status, "application/problem+json")
