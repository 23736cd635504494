"""Where in somebody's own code an error was raised, as bounded text."""

from __future__ import annotations

import contextlib
import importlib
import traceback

from trialog.sandbox import loading, trying
from trialog.sandbox.trajectory.clip import clip

MAX_TRACE = 4 << 10
_LINE = 500
_OURS = (
    loading.__file__,
    trying.__file__,
    contextlib.__file__,
    importlib.__file__,
    "<frozen importlib",
)


def trace_of(error: BaseException) -> str:
    """Return an error's traceback, the last of a long one: frames and lines of code.

    Local variables are left out: they may hold secrets. So are the frames that import a module.
    """
    found = traceback.TracebackException.from_exception(error, limit=-50, compact=True)
    _leave_ours_out(found)
    text = "".join(clip(line, _LINE) for part in found.format() for line in part.splitlines(True))
    return text if len(text) <= MAX_TRACE else f"...{text[3 - MAX_TRACE :]}"


def _leave_ours_out(found: traceback.TracebackException | None) -> None:
    while found is not None:
        frames = [one for one in found.stack if not one.filename.startswith(_OURS)]
        found.stack = traceback.StackSummary.from_list(frames)
        found = found.__cause__ or found.__context__
