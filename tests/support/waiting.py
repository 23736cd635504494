"""Waiting for a fact, never for a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


def until(fact: Callable[[], T], timeout_s: float = 30) -> T:
    """Return the first true value of a question asked again and again; fail after the limit."""
    deadline = time.monotonic() + timeout_s
    while not (value := fact()):
        assert time.monotonic() < deadline, f"still {value!r} after {timeout_s} s"
        time.sleep(0.01)
    return value


async def eventually(fact: Callable[[], Awaitable[T]], timeout_s: float = 30) -> T:
    """The same for a question that is asked asynchronously."""
    deadline = time.monotonic() + timeout_s
    while not (value := await fact()):
        assert time.monotonic() < deadline, f"still {value!r} after {timeout_s} s"
        await asyncio.sleep(0.01)
    return value
