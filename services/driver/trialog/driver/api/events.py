"""A run's events: pages of JSON, or a live stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Annotated, Any

import msgspec
from fastapi import Header, Query, Response
from sse_starlette import EventSourceResponse, ServerSentEvent

from trialog.driver.api import schemas
from trialog.driver.api.dependencies import ApiDependencies, Deps, Streams
from trialog.driver.api.following import Following
from trialog.driver.api.problems import invalid, not_found
from trialog.driver.api.reader import check_run_id
from trialog.driver.api.routing import Limit, RunId, answer, problems, router
from trialog.driver.views import timestamp
from trialog.proto.events import RUN_ENDS
from trialog.spine import telemetry
from trialog.spine.database import DOWN
from trialog.spine.log import Recorded
from trialog.spine.runs import Run, UnknownRunError

_PAGE = 500
_PING_S = 15
_SEND_S = 10.0
_DOWN_S = 0.5
_EVENT_STREAM = "text/event-stream"

routes = router("events")


def shown_event(event: Recorded) -> dict[str, Any]:
    """Return an event as the API shows it, its data as it was recorded."""
    return {
        "position": event.position,
        "event_id": str(event.event_id),
        "run_id": event.run_id,
        "type": event.type,
        "schema_version": event.schema_version,
        "data": msgspec.Raw(event.data.encode()),
        "recorded_at": timestamp(event.recorded_at),
    }


@routes.get(
    "/runs/{run_id}/events",
    operation_id="list_events",
    summary="Read a run's events, or follow them",
    response_model=schemas.EventPage,
    responses=problems(404, 422)
    | {
        200: {
            "model": schemas.EventPage,
            "description": "A page, or with Accept: text/event-stream a stream whose messages "
            "have the position as id, the type as event and the event as data. It goes on after "
            "Last-Event-ID and ends after the event that ends the run.",
            "content": {
                _EVENT_STREAM: {
                    "schema": {"type": "string"},
                    "example": 'id: 7\nevent: RunCompleted\ndata: {"position": 7, ...}\n\n',
                }
            },
        },
        204: {"description": "The run ended before Last-Event-ID: a stream has nothing to come."},
    },
)
async def list_events(
    deps: Deps,
    following: Streams,
    run_id: RunId,
    after: Annotated[int, Query(ge=0, le=2**63 - 1, description="Position to go on after.")] = 0,
    limit: Limit = 100,
    accept: Annotated[str, Header(include_in_schema=False)] = "",
    last_event_id: Annotated[str | None, Header(description="Where a stream goes on.")] = None,
) -> Response:
    """Events in order of position, each as it was recorded."""
    run = await _run(deps, run_id)
    if _EVENT_STREAM not in accept:
        events = await deps.log.read_run(run_id, after, limit)
        following_position = events[-1].position if events else after
        shown = [shown_event(event) for event in events]
        return answer({"events": shown, "next": following_position})
    after = max(after, _position(last_event_id))
    end = await deps.log.at_slot(run_id, "run-end")
    if end is not None and end.position <= after:
        return Response(status_code=204)  # tells a browser's EventSource not to come again
    await following.subscribe(run.partition)
    return EventSourceResponse(
        _stream(deps, following, run, after), ping=_PING_S, send_timeout=_SEND_S, sep="\n"
    )


async def _run(deps: ApiDependencies, run_id: str) -> Run:
    check_run_id(run_id)
    try:
        return await deps.runs.get(run_id)
    except UnknownRunError as error:
        raise not_found("run", str(error)) from None


def _position(last_event_id: str | None) -> int:
    if not last_event_id:
        return 0
    if not (last_event_id.isascii() and last_event_id.isdigit() and len(last_event_id) < 19):
        raise invalid([("Last-Event-ID", "expected a position, as the stream's ids are")])
    return int(last_event_id)


async def _stream(
    deps: ApiDependencies, following: Following, run: Run, after: int
) -> AsyncGenerator[ServerSentEvent]:
    """Yield events as they are recorded, up to the one that ends the run."""
    with following.listening() as woken:
        while not following.closing:
            woken.clear()
            try:
                events = await deps.log.read_run(run.run_id, after, _PAGE)
            except DOWN as error:
                telemetry.logger().warning("stream waits for Postgres", error=repr(error))
                await asyncio.sleep(_DOWN_S)
                continue
            for event in events:
                yield _message(event)
                if event.type in RUN_ENDS:
                    return
            if events:
                after = events[-1].position
            else:
                await following.wait(woken)


def _message(event: Recorded) -> ServerSentEvent:
    data = msgspec.json.encode(shown_event(event)).decode()
    return ServerSentEvent(data, event=event.type, id=str(event.position), sep="\n")
