"""Rubrics: keep one under a name, list them, look at their versions, compare two."""

from __future__ import annotations

import json
import re
from typing import Annotated, Final

from fastapi import Path, Query, Request, Response

from trialog.driver.api import bodies, rubric_schemas
from trialog.driver.api.dependencies import Deps
from trialog.driver.api.problems import ProblemError, invalid, not_found
from trialog.driver.api.routing import (
    Cursor,
    Limit,
    answer,
    bad_cursor,
    cursor_of,
    parts_of,
    problems,
    router,
)
from trialog.driver.api.rubric_diff import differences
from trialog.driver.api.rubric_registry import Kept, Registry, UnknownRubricError, Version
from trialog.driver.views import Doc, timestamp
from trialog.proto.canonical import canonical
from trialog.proto.rubric import BUILT_IN, MAX_BYTES, Reference, Rubric, parse_reference

_LATEST = "latest"
_NUMBER: Final = re.compile("[1-9][0-9]{0,8}")
_TITLE = "Invalid rubric"

routes = router("rubrics")

Name = Annotated[str, Path(description="A rubric's name.", examples=["careful"])]
Other = "a version of this rubric, such as 2, or of any: NAME or NAME@VERSION; default: the latest."
_BODY = {
    "requestBody": {
        "required": True,
        "description": "The name may be left out; if it is given it must be the address's.",
        "content": {
            "application/json": {
                "schema": {"$ref": "#/components/schemas/Rubric"},
                "examples": {
                    "per_criterion": {
                        "summary": "One call for each criterion that has a prompt",
                        "value": {
                            "name": "careful",
                            "criteria": [
                                {"name": "right", "weight": 2, "check": "correct"},
                                {"name": "style", "scale": [1, 5], "prompt": "Is it clear?"},
                            ],
                        },
                    }
                },
            }
        },
    }
}
_LOCATION = {"Location": {"description": "The version.", "schema": {"type": "string"}}}


@routes.put(
    "/rubrics/{name}",
    operation_id="put_rubric",
    summary="Keep a rubric under a name",
    status_code=201,
    response_model=rubric_schemas.RubricPut,
    responses=problems(400, 409, 413, 415, 422)
    | {
        200: {
            "model": rubric_schemas.RubricPut,
            "description": "This content was a version already: that one.",
            "headers": _LOCATION,
        },
        201: {"description": "A new version.", "headers": _LOCATION},
    },
    openapi_extra=_BODY,
)
async def put_rubric(request: Request, deps: Deps, name: Name) -> Response:
    """New content is the next version: 1, 2, 3 and so on. A version never changes, and the same
    content is the same version, also when a later one stands."""
    rubric = _checked(await bodies.body_of(request, _TITLE), name)
    put = await Registry(deps.engine).put(rubric)
    what = {"added": put.added, "latest": put.latest}
    shown = _whole(Kept(put.version, rubric)) | what
    location = f"/rubrics/{name}/{put.version.number}"
    return answer(shown, 201 if put.added else 200, {"Location": location})


def _checked(text: bytes, name: str) -> Rubric:
    """Return a body as the rubric of a name, or raise a problem that names what is wrong."""
    _check_name(name)
    given = bodies.object_of(text)
    if given is not None:  # else its validation says where it is broken
        text = json.dumps({"name": name} | given).encode()
    rubric = bodies.validated(Rubric, text, _TITLE)
    if rubric.name != name:
        raise invalid([("name", f"is {rubric.name} in the body and {name} in the address")], _TITLE)
    n_bytes = len(canonical(rubric.content()))
    if n_bytes > MAX_BYTES:
        message = f"the rubric has {n_bytes} bytes as canonical JSON; the limit is {MAX_BYTES}"
        raise invalid([("criteria", message)], _TITLE)
    return rubric


def _check_name(name: str) -> None:
    """Raise a problem for a name that nothing can be put under."""
    try:
        if parse_reference(name).version is not None:
            raise ValueError("a version is not put: the next one gets its number by itself")
    except ValueError as error:
        raise invalid([("name", str(error))], _TITLE) from None
    if name in BUILT_IN:
        detail = f"{name} is built in and never changes: put yours under another name"
        errors = [("name", detail)]
        raise ProblemError(409, "built-in", "Built-in rubric", detail, errors=errors)


@routes.get(
    "/rubrics",
    operation_id="list_rubrics",
    summary="List rubrics",
    response_model=rubric_schemas.RubricPage,
    responses=problems(422),
)
async def list_rubrics(deps: Deps, limit: Limit = 50, cursor: Cursor = None) -> Response:
    """A page of rubrics in order of their names, each by its latest version."""
    after = "" if cursor is None else _seen(cursor)
    lines = await Registry(deps.engine).page(after, limit + 1)
    rubrics = [
        _named(one.latest) | {"scoring": one.scoring, "n_criteria": one.n_criteria}
        for one in lines[:limit]
    ]
    last = cursor_of(lines[limit - 1].latest.name) if len(lines) > limit else None
    return answer({"rubrics": rubrics, "next_cursor": last})


def _seen(cursor: str) -> str:
    (text,) = parts_of(cursor, 1)
    try:
        return parse_reference(text).name
    except ValueError:
        raise bad_cursor() from None


@routes.get(
    "/rubrics/{name}",
    operation_id="get_rubric",
    summary="Look at a rubric and its versions",
    response_model=rubric_schemas.RubricVersions,
    responses=problems(404, 422),
)
async def get_rubric(deps: Deps, name: Name, limit: Limit = 50, cursor: Cursor = None) -> Response:
    """The latest version whole, and a page of all of them, newest first."""
    latest = await _found(deps, name, _LATEST)
    below = None if cursor is None else _number(*parts_of(cursor, 1))
    if cursor is not None and below is None:
        raise bad_cursor()
    found = await Registry(deps.engine).versions(name, below, limit + 1)
    versions = [
        {"version": one.number, "digest": one.digest, "created_at": _at(one)}
        for one in found[:limit]
    ]
    last = cursor_of(str(found[limit - 1].number)) if len(found) > limit else None
    about = {"name": name, "built_in": name in BUILT_IN, "latest": _whole(latest)}
    return answer(about | {"versions": versions, "next_cursor": last})


# Before the versions: they would take its name for a number.
@routes.get(
    "/rubrics/{name}/diff",
    operation_id="diff_rubrics",
    summary="Compare two versions",
    response_model=rubric_schemas.RubricDiff,
    responses=problems(404, 422),
)
async def diff_rubrics(
    deps: Deps,
    name: Name,
    from_: Annotated[
        str | None, Query(alias="from", description=f"From which: {Other}", examples=["1"])
    ] = None,
    to: Annotated[
        str | None, Query(description=f"To which: {Other}", examples=["2", "other@3"])
    ] = None,
) -> Response:
    """Criteria that were added, removed and changed, by name, and whether scoring is another."""
    latest = await _found(deps, name, _LATEST)
    one, other = [
        latest if text is None else await _side(deps, name, field, text)
        for field, text in (("from", from_), ("to", to))
    ]
    sides = {
        field: {
            "name": each.version.name,
            "version": each.version.number,
            "digest": each.version.digest,
        }
        for field, each in (("from", one), ("to", other))
    }
    return answer(sides | differences(one.rubric, other.rubric))


async def _side(deps: Deps, name: str, field: str, text: str) -> Kept:
    """Return what one side of a comparison names, or raise a problem that names the side."""
    number = _number(text)
    try:
        wanted = parse_reference(text) if number is None else Reference(name, number)
        return await Registry(deps.engine).find(wanted)
    except (ValueError, UnknownRubricError) as error:
        raise invalid([(field, str(error))]) from None


@routes.get(
    "/rubrics/{name}/{version}",
    operation_id="get_rubric_version",
    summary="Read a version of a rubric",
    response_model=rubric_schemas.RubricVersion,
    responses=problems(404),
)
async def get_rubric_version(
    deps: Deps,
    name: Name,
    version: Annotated[str, Path(description='A number, or "latest".', examples=["1"])],
) -> Response:
    """The whole rubric, defaults included. A version never changes."""
    return answer(_whole(await _found(deps, name, version)))


async def _found(deps: Deps, name: str, version: str) -> Kept:
    """Return a version by its address. Raises a 404 problem."""
    number = _number(version)
    if number is None and version != _LATEST:
        raise not_found("version", f"rubric {name} has no version {version!r}: give a number")
    try:
        wanted = parse_reference(name)
        if wanted.version is not None:
            raise ValueError(f"{name!r} is no name: ask for /rubrics/{wanted.name}/VERSION")
        return await Registry(deps.engine).find(Reference(name, number))
    except (ValueError, UnknownRubricError) as error:
        raise not_found("rubric", str(error)) from None


def _number(text: str) -> int | None:
    """Return the number of a version as an address has it, None for what is none."""
    return int(text) if _NUMBER.fullmatch(text) else None


def _named(version: Version) -> Doc:
    return {
        "name": version.name,
        "version": version.number,
        "digest": version.digest,
        "built_in": version.name in BUILT_IN,
        "created_at": _at(version),
    }


def _whole(kept: Kept) -> Doc:
    return _named(kept.version) | {"rubric": kept.rubric.model_dump(mode="json")}


def _at(version: Version) -> str | None:
    return None if version.created_at is None else timestamp(version.created_at)
