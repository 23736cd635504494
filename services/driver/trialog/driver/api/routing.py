"""What all routes share: their bound in time, their answers, pages and cursors."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Annotated, Any, ClassVar

import msgspec
from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from trialog.driver.api.problems import MEDIA_TYPE, invalid
from trialog.driver.api.schemas import RUN_ID, TRIAL_ID

Limit = Annotated[int, Query(ge=1, le=1000, description="Most that a page holds.")]
Cursor = Annotated[str | None, Query(max_length=500, description="next_cursor of the page before.")]
RunId = Annotated[str, Path(examples=[RUN_ID])]
TrialId = Annotated[str, Path(examples=[TRIAL_ID])]

_DESCRIPTIONS = {
    400: "The body is no JSON.",
    401: "The API key is missing or wrong.",
    404: "There is no such thing.",
    409: "The present state does not allow it.",
    413: "The body is too large.",
    415: "The body is no JSON by its content type.",
    422: "A field's value cannot be meant.",
    503: "The database does not answer; Retry-After says when to ask again.",
}


class BoundedRoute(APIRoute):
    """A route that answers 503 rather than wait for a database that does not answer, and refuses a
    parameter that it has not: a misspelt ``dry_run`` must not start a run."""

    patience: ClassVar[int] = 1

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler within its time."""
        handle = super().get_route_handler()
        known = set(_parameters(self.dependant))

        async def bounded(request: Request) -> Response:
            if unknown := sorted(set(request.query_params) - known):
                message = f"is no parameter of this route; {_listed(known)}"
                raise invalid([(name, message) for name in unknown])
            limit_s = request.app.state.dependencies.request_s * self.patience
            async with asyncio.timeout(limit_s) as bound:
                request.state.bound = bound
                return await handle(request)

        return bounded


def _parameters(of: Dependant) -> Iterator[str]:
    """Yield the names of a route's query parameters, those of what it depends on among them."""
    yield from (field.alias for field in of.query_params)
    for part in of.dependencies:
        yield from _parameters(part)


def _listed(known: set[str]) -> str:
    return f"known are {', '.join(sorted(known))}" if known else "it has none"


def allow_longer(request: Request, patience: int) -> None:
    """Let a request take so many times the bound of a plain one, from now on."""
    limit_s = request.app.state.dependencies.request_s * patience
    bound: asyncio.Timeout = request.state.bound
    bound.reschedule(asyncio.get_running_loop().time() + limit_s)


class PatientRoute(BoundedRoute):
    """A route whose answer may take many reads: a plan over ten thousands of trials."""

    patience: ClassVar[int] = 12


def router(tag: str, route: type[BoundedRoute] = BoundedRoute) -> APIRouter:
    """Return an empty group of routes."""
    return APIRouter(tags=[tag], route_class=route)


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Describe the problems that a route may answer; 401 and 503 are among all routes'."""
    return {
        status: {
            "description": _DESCRIPTIONS[status],
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
        for status in sorted({*statuses, 401, 503})
    }


def answer(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON answer of documents as they are."""
    return json_bytes(msgspec.json.encode(content), status, headers)


def json_bytes(
    content: bytes, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a JSON answer that is encoded already."""
    return Response(content, status, headers, media_type="application/json")


def cursor_of(*parts: str) -> str:
    """Return a cursor that holds the keys of the last item seen."""
    return base64.urlsafe_b64encode(msgspec.json.encode(parts)).decode().rstrip("=")


def parts_of(cursor: str, n: int) -> list[str]:
    """Return the keys of a cursor. Raises a 422 problem for what is none of ours."""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        text = base64.b64decode(padded, altchars=b"-_", validate=True)
        parts = msgspec.json.decode(text, type=list[str])
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        parts = []
    if len(parts) != n:
        raise bad_cursor()
    return parts


def bad_cursor() -> Exception:
    """A cursor that no page of ours has given out."""
    return invalid([("cursor", "this is no cursor of a page")])
