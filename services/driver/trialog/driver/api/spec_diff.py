"""What one run was asked to do otherwise than another. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from trialog.driver.api.rubric_diff import differences
from trialog.driver.views import Doc
from trialog.proto import events as ev
from trialog.proto import runspec
from trialog.proto.rubric import Rubric

# A mapping with more differences than this is shown as a whole, and what is long by its length.
_MOST = 20


def changes(one: ev.RunRequested, other: ev.RunRequested) -> list[Doc]:
    """Return the settings that differ, as {field, from, to, rubric}, in the order of the spec; the
    rubric first, by name and digest with what differs in it; versions of code last."""
    before, after = (runspec.load(request.spec).resolved_rubric for request in (one, other))
    found = [] if before == after else [_rubric(before, after)]
    specs = [{k: v for k, v in each.spec.items() if k != "rubric"} for each in (one, other)]
    found += _walk("", *specs)
    codes = {name: (one.code.get(name), other.code.get(name)) for name in one.code | other.code}
    return found + [
        _change(f"code.{name}", *pair) for name, pair in codes.items() if _differ(*pair)
    ]


def _rubric(before: Rubric, after: Rubric) -> Doc:
    sides = [{"name": each.name, "digest": each.digest} for each in (before, after)]
    return _change("rubric", *sides) | {"rubric": differences(before, after)}


def _walk(path: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Doc]:
    for name in dict.fromkeys([*before, *after]):
        one, other = before.get(name), after.get(name)
        if one == other:
            continue
        place = f"{path}{name}"
        if isinstance(one, dict) and isinstance(other, dict):
            below = cast("list[dict[str, Any]]", [one, other])
            if sum(below[0].get(key) != below[1].get(key) for key in {*one, *other}) <= _MOST:
                yield from _walk(f"{place}.", *below)
                continue
        yield _change(place, _short(one), _short(other))


def _differ(before: str | None, after: str | None) -> bool:
    """Whether code is another: code whose version one of the two did not know is not told apart."""
    return bool(before and after and before != after)


def _change(field: str, before: Any, after: Any) -> Doc:
    return {"field": field, "from": before, "to": after, "rubric": None}


def _short(value: Any) -> Any:
    """Return a value as it is, or how long it is."""
    if isinstance(value, list | dict) and len(cast("list[Any]", value)) > _MOST:
        return f"{len(cast('list[Any]', value))} entries"
    return value
