"""Reads JSON bodies by hand: strictly, every mistake named, also those that parsers pass over."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, TypeVar, cast

from fastapi import Request
from pydantic import BaseModel, ValidationError

from trialog.driver.api.problems import ProblemError, broken_json, invalid

Model = TypeVar("Model", bound=BaseModel)


async def body_of(request: Request, title: str) -> bytes:
    """Return a request's JSON text; raises a problem for what no parser would complain of."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        detail = f"the content type must be application/json, not {kind or 'missing'}"
        raise ProblemError(415, "unsupported-media-type", "Unsupported media type", detail)
    body = await request.body()
    if wrong := mistakes(body):
        raise invalid(wrong, title)
    return body


def object_of(text: bytes) -> dict[str, Any] | None:
    """Return the object that a JSON text is, None where it is none or broken.

    A number that no float holds becomes an infinity, which no model takes.
    """
    try:
        found = json.loads(text.decode())
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None


def validated(model: type[Model], text: str | bytes, title: str) -> Model:
    """Return a JSON text as a model, or raise a problem that names what is wrong."""
    try:
        # From the text: models are strict, and strict about JSON is not strict about Python.
        return model.model_validate_json(text)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
    if found[0]["type"] == "json_invalid":
        raise broken_json(found[0]["msg"].removeprefix("Invalid JSON: "))
    raise invalid([_named(model, one["loc"], one["msg"]) for one in found], title)


def _named(model: type[BaseModel], place: tuple[int | str, ...], message: str) -> tuple[str, str]:
    """Return the dotted path of a wrong field with what is wrong; a rule that spans fields begins
    its message with the name of one."""
    message = message.removeprefix("Value error, ")
    parts = [str(part) for part in place if part != "[key]"]
    if parts[:1] == ["rubric"]:
        del parts[1:2]  # which of the two it is, a name or a whole one
    if not parts:
        first = message.partition(" ")[0]
        parts = [first] if first.partition(".")[0] in model.model_fields else []
    return ".".join(parts), message


class _Object(list[tuple[str, Any]]):
    """The pairs of a JSON object, those whose key came before included."""


def mistakes(text: bytes) -> list[tuple[str, str]]:
    """Return what is wrong with a JSON text as (dotted path, message).

    That is: no object at the top, a key given twice, half of a surrogate pair. Nothing is said of
    what is no JSON: the parser that comes next has better words for it.
    """
    try:
        # Numbers are left unread: a long one is slow, and the parser that comes next judges it.
        found = json.loads(text.decode(), object_pairs_hook=_Object, parse_int=str, parse_float=str)
        if not isinstance(found, _Object):
            return [("", "the body must be an object")]
        return list(_walk(found, ()))
    except (ValueError, RecursionError):
        return []


def _walk(found: Any, place: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    if isinstance(found, str) and any("\ud800" <= character <= "\udfff" for character in found):
        yield ".".join(place), "holds half of a surrogate pair"
    elif isinstance(found, _Object):
        seen: set[str] = set()
        for key, value in found:
            below = (*place, key.encode(errors="backslashreplace").decode())
            if key in seen:
                yield ".".join(below), "the key is given twice"
            seen.add(key)
            yield from _walk(key, below)
            yield from _walk(value, below)
    elif isinstance(found, list):
        for index, value in enumerate(cast(list[Any], found)):
            yield from _walk(value, (*place, str(index)))
