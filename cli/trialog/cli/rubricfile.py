"""Rubric files: YAML or JSON, read with the care of run files, checked against Rubric."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from trialog.cli.runfile import BadRunFile, problems_of, settings_of
from trialog.proto.rubric import Rubric


def load_rubric_file(path: str, name: str | None = None) -> dict[str, Any]:
    """Return the rubric of a file (``-`` is standard input), under another name if one is given.

    Raises BadRunFile, which names every field that is wrong.
    """
    source, data = settings_of(path, "a rubric: a name and criteria")
    try:
        rubric = Rubric.model_validate(data if name is None else data | {"name": name})
    except ValidationError as error:
        raise BadRunFile(source, problems_of(error, Rubric)) from None
    return rubric.model_dump(mode="json", exclude_unset=True)
