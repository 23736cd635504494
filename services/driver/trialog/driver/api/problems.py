"""Errors as RFC 9457 problems: every answer that is none is application/problem+json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from trialog.proto.events import UnknownEventError
from trialog.spine import telemetry
from trialog.spine.blobs import BlobMissingError, BlobsUnavailableError
from trialog.spine.database import DOWN
from trialog.spine.log import EventTooLargeError

MEDIA_TYPE = "application/problem+json"
_RETRY_AFTER_S = 1
# An answer is bounded whatever the request was.
_MOST_ERRORS = 20
_FIELD_LENGTH = 200
_MESSAGE_LENGTH = 500
_DETAIL_LENGTH = 2000


class ProblemError(Exception):
    """Ends a request with a problem. ``kind`` is the last part of its type, a stable name."""

    def __init__(
        self,
        status: int,
        kind: str,
        title: str,
        detail: str = "",
        *,
        errors: Sequence[tuple[str, str]] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(f"{title}: {detail}")
        self.status = status
        self.headers = dict(headers or {})
        self.body: dict[str, Any] = {
            "type": f"urn:trialog:problem:{kind}",
            "title": title,
            "status": status,
            "detail": _cut(detail, _DETAIL_LENGTH),
        }
        if errors:
            self.body["errors"] = [{"field": f, "message": m} for f, m in errors]

    def response(self, path: str) -> Response:
        """Return the answer; ``path`` is that of the request."""
        content = msgspec.json.encode(self.body | {"instance": _cut(path, _MESSAGE_LENGTH)})
        return Response(content, self.status, self.headers, media_type=MEDIA_TYPE)


def not_found(kind: str, detail: str) -> ProblemError:
    """404: there is no such run, trial, trajectory or version (``kind``)."""
    return ProblemError(404, f"no-such-{kind}", f"No such {kind}", detail)


def invalid(errors: Sequence[tuple[str, str]], title: str = "Invalid request") -> ProblemError:
    """422: fields whose values cannot be meant. The first of them are named, the rest counted."""
    named = [
        (_cut(field, _FIELD_LENGTH), _cut(message, _MESSAGE_LENGTH))
        for field, message in errors[:_MOST_ERRORS]
    ]
    detail = "; ".join(f"{field}: {message}" if field else message for field, message in named)
    if more := len(errors) - len(named):
        named.append(("", f"and {more} more"))
        detail = f"{_cut(detail, _DETAIL_LENGTH - _FIELD_LENGTH)}; and {more} more"
    return ProblemError(422, "invalid", title, detail, errors=named)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 3]}..."


def broken_json(detail: str) -> ProblemError:
    """400: the body is no JSON."""
    return ProblemError(400, "broken-json", "Broken JSON", detail)


def unavailable(detail: str) -> ProblemError:
    """503: it may work in a moment."""
    headers = {"Retry-After": str(_RETRY_AFTER_S)}
    return ProblemError(503, "unavailable", "Temporarily unavailable", detail, headers=headers)


def add_handlers(app: FastAPI) -> None:
    """Answer every error that can leave a route as a problem."""

    async def known(request: Request, error: Exception) -> Response:
        return _problem_of(error).response(request.url.path)

    kinds = (ProblemError, HTTPException, RequestValidationError, EventTooLargeError)
    for kind in (*kinds, BlobMissingError, BlobsUnavailableError, UnknownEventError, *DOWN):
        app.add_exception_handler(kind, known)
    # What is left is a fault of ours: logged with its traceback, answered without.
    app.add_exception_handler(Exception, known)


def _problem_of(error: Exception) -> ProblemError:
    match error:
        case ProblemError():
            return error
        case HTTPException():
            return _of_status(error)
        case RequestValidationError() if error.errors()[0]["type"] == "json_invalid":
            return broken_json(str(error.errors()[0]["ctx"]["error"]))
        case RequestValidationError():
            return invalid([(_field(one["loc"]), one["msg"]) for one in error.errors()])
        case EventTooLargeError():
            return ProblemError(413, "too-large", "Run too large", str(error))
        case BlobMissingError():
            return ProblemError(500, "blob-missing", "Bytes are missing", str(error))
        case UnknownEventError() | BlobsUnavailableError():
            return unavailable(str(error))
        case _ if isinstance(error, DOWN):
            telemetry.logger().warning("request not answered", error=repr(error))
            return unavailable("the database does not answer; try again in a moment")
        case _:
            return ProblemError(500, "internal", "Internal error", "the fault is in the log")


def _of_status(error: HTTPException) -> ProblemError:
    phrase = HTTPStatus(error.status_code).phrase
    kind = phrase.lower().replace(" ", "-")
    detail = "" if error.detail == phrase else str(error.detail)
    return ProblemError(error.status_code, kind, phrase, detail, headers=error.headers)


def _field(place: Sequence[str | int]) -> str:
    """Return the name of a query parameter, header or path segment."""
    return ".".join(str(part) for part in place[1:]) or str(place[0])
