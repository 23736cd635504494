"""Waiting for a fact, never for a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(fact: Callable[[], T], timeout_s: float = 30) -> T:
    """Return the first true value of a question asked again and again; fail after the limit."""
    deadline = time.monotonic() + timeout_s
    while not (value := fact()):
        assert time.monotonic() < deadline, f"still {value!r} after {timeout_s} s"
        time.sleep(0.01)
    return value
