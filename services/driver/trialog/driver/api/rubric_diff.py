"""What differs between two rubrics. Pure."""

from __future__ import annotations

from typing import Any

from trialog.driver.views import Doc
from trialog.proto.rubric import Criterion, Rubric

_FIELDS = ("weight", "scale", "prompt", "check", "version")


def differences(one: Rubric, other: Rubric) -> Doc:
    """Return criteria added, removed and changed, by name, and what else is another.

    A criterion under another name is one removed and one added. Names of rubrics do not count.
    """
    before = {criterion.name: criterion for criterion in one.criteria}
    after = {criterion.name: criterion for criterion in other.criteria}
    both = [name for name in before if name in after]
    changed = [
        {"name": name, "fields": fields}
        for name in both
        if (fields := _fields(before[name], after[name]))
    ]
    return {
        "scoring": _pair(one.scoring, other.scoring) if one.scoring != other.scoring else None,
        "added": [_shown(after[name]) for name in after if name not in before],
        "removed": [_shown(before[name]) for name in before if name not in after],
        "changed": changed,
        # The sum's last bits depend on the order.
        "reordered": both != [name for name in after if name in before],
    }


def _fields(one: Criterion, other: Criterion) -> list[Doc]:
    before, after = _shown(one), _shown(other)
    return [
        {"field": field} | _pair(before[field], after[field])
        for field in _FIELDS
        if before[field] != after[field]
    ]


def _shown(criterion: Criterion) -> Doc:
    return criterion.model_dump(mode="json")


def _pair(before: Any, after: Any) -> Doc:
    return {"from": before, "to": after}
