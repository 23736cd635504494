"""Requests and answers without I/O: what the blocking and the asynchronous client share."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast
from urllib.parse import quote

from trialog.client.errors import FieldError, Problem, UnexpectedAnswer, api_error

DEFAULT_URL = "http://127.0.0.1:8321"
TAR = "application/x-tar"
RETRY_STATUSES = frozenset({502, 503, 504})
_TEXT_IN_ERROR = 200


@dataclass(frozen=True)
class Call:
    """One request. All of them may be sent again: they read, name a state, or carry a key."""

    method: Literal["GET", "POST", "PUT"]
    path: str
    params: Mapping[str, str | int | list[str]] = field(default_factory=dict[str, Any])
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    file: Path | None = None  # sent as the body, piece by piece


def segment(text: str) -> str:
    """Return text as one path segment: an id from outside never reaches another route."""
    return quote(text, safe="") if text not in (".", "..") else quote(text).replace(".", "%2E")


def create_run(spec: Mapping[str, Any], idempotency_key: str) -> Call:
    """POST /runs."""
    return Call("POST", "/runs", body=dict(spec), headers={"Idempotency-Key": idempotency_key})


def list_runs(
    state: str | None, labels: Mapping[str, str], limit: int | None, cursor: str | None
) -> Call:
    """GET /runs."""
    params = _given(state=state, limit=limit, cursor=cursor)
    if labels:
        params["label"] = [f"{key}={value}" for key, value in labels.items()]
    return Call("GET", "/runs", params)


def get_run(run_id: str, part: str = "") -> Call:
    """GET /runs/{id} or one of its parts, such as /weights/latest."""
    return Call("GET", f"/runs/{segment(run_id)}{part}")


def list_steps(run_id: str, step: int | None, limit: int | None, cursor: str | None) -> Call:
    """GET /runs/{id}/steps."""
    params = _given(step=step, limit=limit, cursor=cursor)
    return Call("GET", f"/runs/{segment(run_id)}/steps", params)


def list_trials(
    run_id: str, step: int | None, state: str | None, limit: int | None, cursor: str | None
) -> Call:
    """GET /runs/{id}/trials."""
    params = _given(step=step, state=state, limit=limit, cursor=cursor)
    return Call("GET", f"/runs/{segment(run_id)}/trials", params)


def get_trial(run_id: str, trial_id: str, part: str = "") -> Call:
    """GET /trials/{run}/{trial} or its /trajectory."""
    return Call("GET", f"/trials/{segment(run_id)}/{segment(trial_id)}{part}")


def list_task_results(run_id: str, step: int | None) -> Call:
    """GET /runs/{id}/tasks."""
    return Call("GET", f"/runs/{segment(run_id)}/tasks", _given(step=step))


def list_rows(
    run_id: str, step: int | None, unscored: bool, limit: int | None, cursor: str | None
) -> Call:
    """GET /runs/{id}/rows."""
    params = _given(step=step, all="true" if unscored else None, limit=limit, cursor=cursor)
    return Call("GET", f"/runs/{segment(run_id)}/rows", params)


def get_files(run_id: str, trial_id: str | None) -> Call:
    """GET /runs/{id}/files, or those of a trial."""
    part = "" if trial_id is None else f"/trials/{segment(trial_id)}"
    headers = {"Accept": f"{TAR}, application/problem+json"}
    return Call("GET", f"/runs/{segment(run_id)}{part}/files", headers=headers)


def upload_tasks(archive: Path) -> Call:
    """PUT /task-archives."""
    kind = {"Content-Type": "application/octet-stream"}
    return Call("PUT", "/task-archives", headers=kind, file=archive)


def get_weights(run_id: str, version: int | Literal["latest"]) -> Call:
    """GET /runs/{id}/weights/{version}."""
    return get_run(run_id, f"/weights/{version}")


def list_events(run_id: str, after: int, limit: int | None) -> Call:
    """GET /runs/{id}/events as JSON."""
    params = _given(after=after, limit=limit)
    headers = {"Accept": "application/json"}
    return Call("GET", f"/runs/{segment(run_id)}/events", params, headers=headers)


def stream_events(run_id: str, after: int) -> Call:
    """GET /runs/{id}/events as a live stream that goes on after a position."""
    headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
    if after:
        headers["Last-Event-ID"] = str(after)
    return Call("GET", f"/runs/{segment(run_id)}/events", {"after": after}, headers=headers)


def control(run_id: str, verb: Literal["cancel", "pause"]) -> Call:
    """POST /runs/{id}/cancel or pause."""
    return Call("POST", f"/runs/{segment(run_id)}/{verb}")


def resume(run_id: str, budget: Mapping[str, float | None] | None) -> Call:
    """POST /runs/{id}/resume, with the limits that are to be others."""
    body = None if budget is None else {"budget": dict(budget)}
    return Call("POST", f"/runs/{segment(run_id)}/resume", body=body)


def fork(
    run_id: str, changes: Mapping[str, Any], how: Mapping[str, Any], idempotency_key: str
) -> Call:
    """POST /runs/{id}/fork; ``how`` is its rubric and mode."""
    headers = {"Idempotency-Key": idempotency_key}
    return Call("POST", f"/runs/{segment(run_id)}/fork", _given(**how), dict(changes), headers)


def plan_fork(run_id: str, changes: Mapping[str, Any], how: Mapping[str, Any]) -> Call:
    """POST /runs/{id}/fork that only answers a plan."""
    params = _given(**how) | {"dry_run": "true"}
    return Call("POST", f"/runs/{segment(run_id)}/fork", params, dict(changes))


def get_lineage(run_id: str, limit: int | None, cursor: str | None) -> Call:
    """GET /runs/{id}/lineage."""
    params = _given(limit=limit, cursor=cursor)
    return Call("GET", f"/runs/{segment(run_id)}/lineage", params)


def compare(a: str, b: str, step: int | None, limit: int | None, cursor: str | None) -> Call:
    """GET /runs/{a}/compare/{b}."""
    params = _given(step=step, limit=limit, cursor=cursor)
    return Call("GET", f"/runs/{segment(a)}/compare/{segment(b)}", params)


def list_dead_letters(run_id: str | None, limit: int | None, cursor: str | None) -> Call:
    """GET /dead-letters."""
    return Call("GET", "/dead-letters", _given(run=run_id, limit=limit, cursor=cursor))


def redrive(key: str) -> Call:
    """POST /dead-letters/redrive."""
    return Call("POST", "/dead-letters/redrive", body={"key": key})


def put_rubric(name: str, rubric: Mapping[str, Any]) -> Call:
    """PUT /rubrics/{name}: the same content again is the same version."""
    return Call("PUT", f"/rubrics/{segment(name)}", body=dict(rubric))


def list_rubrics(limit: int | None, cursor: str | None) -> Call:
    """GET /rubrics."""
    return Call("GET", "/rubrics", _given(limit=limit, cursor=cursor))


def get_rubric(name: str, limit: int | None, cursor: str | None) -> Call:
    """GET /rubrics/{name}."""
    return Call("GET", f"/rubrics/{segment(name)}", _given(limit=limit, cursor=cursor))


def get_rubric_version(name: str, version: int | Literal["latest"]) -> Call:
    """GET /rubrics/{name}/{version}."""
    return Call("GET", f"/rubrics/{segment(name)}/{version}")


def diff_rubrics(name: str, from_: int | str | None, to: int | str | None) -> Call:
    """GET /rubrics/{name}/diff."""
    return Call("GET", f"/rubrics/{segment(name)}/diff", _given(**{"from": from_, "to": to}))


def verify_log(after: int) -> Call:
    """GET /log/verify."""
    return Call("GET", "/log/verify", {"after": after})


def _given(**params: str | int | None) -> dict[str, Any]:
    return {name: value for name, value in params.items() if value is not None}


def answer(status: int, content_type: str, body: bytes, *, source: str) -> Any:
    """Return the JSON of a good answer.

    Raises ApiError for a problem, UnexpectedAnswer for anything that is not Trialog's JSON;
    ``source`` names the address in that message.
    """
    if status >= 400:
        raise api_error(problem(status, content_type, body))
    if status >= 300 or "json" not in content_type:
        raise UnexpectedAnswer(
            f"{source} answered {status} with {content_type or 'no content type'}: "
            "this is not a Trialog driver"
        )
    try:
        return json.loads(body)
    except ValueError as error:
        raise UnexpectedAnswer(f"{source} sent broken JSON: {error}") from error


def problem(status: int, content_type: str, body: bytes) -> Problem:
    """Return an error answer as a problem, whatever its body holds."""
    known = _json_object(body) if "json" in content_type else {}
    text = "" if known else body.decode("utf-8", "replace").strip()[:_TEXT_IN_ERROR]
    errors = known.get("errors")
    return Problem(
        status=status,
        title=str(known.get("title") or f"HTTP status {status}"),
        detail=str(known.get("detail") or text),
        type=str(known.get("type") or "about:blank"),
        instance=str(known.get("instance") or ""),
        errors=tuple(map(_field_error, cast(list[Any], errors)))
        if isinstance(errors, list)
        else (),
    )


def _json_object(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return cast(dict[str, Any], found) if isinstance(found, dict) else {}


def _field_error(error: Any) -> FieldError:
    if not isinstance(error, dict):
        return FieldError("", str(error))
    named = cast(dict[str, Any], error)
    return FieldError(str(named.get("field", "")), str(named.get("message", "")))
