"""Tracebacks of somebody's own code: bounded, and without what its variables hold."""

from __future__ import annotations

import pytest
from trialog.sandbox import loading
from trialog.sandbox.errors import AgentUnavailableError
from trialog.sandbox.traces import MAX_TRACE, trace_of


def raised(message: str, token: str = "s3cr3t") -> BaseException:
    try:
        raise KeyError(message)
    except KeyError as error:
        assert token
        return error


def test_it_has_frames_and_lines_and_no_variables() -> None:
    trace = trace_of(raised("boom"))
    assert "in raised\n    raise KeyError(message)" in trace
    assert trace.endswith("KeyError: 'boom'\n")
    assert "s3cr3t" not in trace.replace(__file__, "")


def test_a_long_one_keeps_its_end() -> None:
    def deep(n: int) -> None:
        if n:
            shallow(n)
        raise ValueError("\n".join(["x" * 300] * 100))

    def shallow(n: int) -> None:
        deep(n - 1)

    with pytest.raises(ValueError, match="xxx") as caught:
        deep(100)
    trace = trace_of(caught.value)
    assert len(trace) == MAX_TRACE
    assert trace.startswith("...")


async def test_a_module_that_breaks_shows_its_own_lines_only() -> None:
    with pytest.raises(AgentUnavailableError) as caught:
        await loading.load("import:support.broken_module:Agent", {}, ["support.*"])
    assert caught.value.__cause__ is not None
    trace = trace_of(caught.value.__cause__)
    assert 'broken_module.py", line' in trace
    assert "loading.py" not in trace
    assert "importlib" not in trace
