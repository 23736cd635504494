"""A trajectory while it is made: messages of the agent, and its calls of the sandbox.

Everything is bounded: a step's texts, the steps and what they take together. What is above that is
counted and left out, never an error: the agent goes on and is graded.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args

from trialog.sandbox.agent import Metrics
from trialog.sandbox.trajectory.clip import clip

MAX_STEPS = 10_000
MAX_BYTES = 32 << 20
MAX_TEXT = 256 << 10
MAX_RESULT = 32 << 10
_STEP_BYTES = 200  # about what a step takes beside its texts
_NUMBER_BYTES = 8
_COUNTS = ("prompt_tokens", "completion_tokens", "cached_tokens")

Source = Literal["system", "user", "agent"]
_SOURCES: tuple[str, ...] = get_args(Source)


@dataclass(slots=True)
class Call:
    """One call of a tool; ``result`` is None until it has ended. ``exit_code`` is a command's."""

    call_id: str
    name: str
    arguments: dict[str, Any]
    result: str | None = None
    exit_code: int | None = None
    is_kept: bool = False


@dataclass(slots=True)
class Step:
    """A message with the calls that were made of it. ``at`` is in seconds since the epoch;
    ``is_said``: by the agent itself, not made up for a call that no message announced."""

    source: Source
    text: str
    at: float
    reasoning: str | None = None
    metrics: Metrics | None = None
    model_name: str | None = None
    is_said: bool = True
    calls: list[Call] = field(default_factory=list[Call])


@dataclass(slots=True)
class Totals:
    """What all replies took, those of steps that were left out as well; None: nobody said."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    cost_usd: float | None = None

    def add(self, metrics: Metrics) -> None:
        """Add one reply's."""
        self.prompt_tokens = _sum(self.prompt_tokens, metrics.prompt_tokens)
        self.completion_tokens = _sum(self.completion_tokens, metrics.completion_tokens)
        self.cached_tokens = _sum(self.cached_tokens, metrics.cached_tokens)
        if metrics.cost_usd is not None:
            self.cost_usd = (self.cost_usd or 0.0) + metrics.cost_usd


class Recorder:
    """The log of one try. ``now`` gives seconds since the epoch."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self.steps: list[Step] = []
        self.totals = Totals()
        self.n_turns = 0
        self.steps_left_out = 0
        self.calls_left_out = 0
        self._now = now
        self._bytes = 0
        self._calls = 0
        self._current: Step | None = None
        self._closed = False

    def message(
        self,
        source: str,
        text: str,
        *,
        reasoning: str | None = None,
        metrics: Metrics | None = None,
        model_name: str | None = None,
    ) -> None:
        """Add a step. Raises ValueError for what a trajectory cannot hold."""
        if source not in _SOURCES:
            raise ValueError(f"source {source!r} is none of {', '.join(_SOURCES)}")
        _check_text("text", text)
        given = {"reasoning": reasoning, "metrics": metrics, "model_name": model_name}
        for name, value in given.items():
            if value is not None and source != "agent":
                raise ValueError(f"{name} is an agent's, and the source is {source!r}")
            if value is not None and name != "metrics":
                _check_text(name, value)
        reasoning = None if reasoning is None else clip(reasoning, MAX_TEXT)
        metrics = None if metrics is None else _copied(metrics)
        kind = cast("Source", source)
        self._add(Step(kind, clip(text, MAX_TEXT), self._now(), reasoning, metrics, model_name))

    def call(self, name: str, arguments: Mapping[str, str | int]) -> Call:
        """Begin a call: of the agent's last message, else of a step of its own."""
        current = self._current
        if current is None or current.source != "agent" or not current.is_said:
            current = self._add(Step("agent", "", self._now(), is_said=False))
        self._calls += 1
        bounded = {key: _bounded(value) for key, value in arguments.items()}
        call = Call(f"call-{self._calls}", name, bounded)
        # Room for its result is kept from now on, and given back when it has come.
        size = MAX_RESULT + sum(len(str(value)) for value in bounded.values())
        is_step_kept = bool(self.steps) and self.steps[-1] is current
        if self._closed or not is_step_kept or not self._takes(size):
            self.calls_left_out += 1
        else:
            current.calls.append(call)
            call.is_kept = True
        return call

    def end(self, call: Call, text: str, exit_code: int | None = None) -> None:
        """Say how a call ended."""
        if call.is_kept and not self._closed:
            call.result, call.exit_code = clip(text, MAX_RESULT), exit_code
            self._bytes -= max(0, MAX_RESULT - len(call.result))

    def close(self) -> None:
        """Take nothing more: the try is over, whatever the agent's code still does."""
        self._closed = True

    def _add(self, step: Step) -> Step:
        if self._closed:
            return step
        self._current = step
        self.n_turns += step.source == "agent"
        if step.metrics is not None:
            self.totals.add(step.metrics)
        size = _STEP_BYTES + len(step.text) + len(step.reasoning or "") + _size(step.metrics)
        if len(self.steps) < MAX_STEPS and self._takes(size):
            self.steps.append(step)
        else:
            self.steps_left_out += 1
        return step

    def _takes(self, size: int) -> bool:
        if self._bytes + size > MAX_BYTES:
            return False
        self._bytes += size
        return True


def _check_text(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise ValueError(f"{name} is to be a text, not {type(value).__name__}")


def _bounded(value: str | int) -> str | int:
    return clip(value, MAX_RESULT) if isinstance(value, str) else value


def _sum(known: int | None, more: int | None) -> int | None:
    return known if more is None else (known or 0) + more


def _size(metrics: Metrics | None) -> int:
    if metrics is None:
        return 0
    lists = (metrics.prompt_token_ids, metrics.completion_token_ids, metrics.logprobs)
    return _NUMBER_BYTES * sum(len(each) for each in lists if each is not None)


def _copied(given: Metrics) -> Metrics:
    """Return the metrics as plain numbers of their own: an agent may go on with its lists.

    Raises ValueError for what JSON cannot hold, and for log-probabilities of other tokens: it
    would be found out when somebody trains on them.
    """
    kept = Metrics(
        *(_count(getattr(given, name)) for name in _COUNTS),
        cost_usd=None if given.cost_usd is None else _finite("cost_usd", given.cost_usd),
        prompt_token_ids=_ids(given.prompt_token_ids),
        completion_token_ids=_ids(given.completion_token_ids),
        logprobs=None
        if given.logprobs is None
        else [_finite(f"logprobs[{n}]", value) for n, value in enumerate(given.logprobs)],
    )
    ids, logprobs = kept.completion_token_ids, kept.logprobs
    if ids is not None and logprobs is not None and len(ids) != len(logprobs):
        raise ValueError(
            f"metrics has {len(logprobs)} logprobs of {len(ids)} completion_token_ids: "
            "one of each is meant"
        )
    return kept


def _count(value: int | None) -> int | None:
    return None if value is None else int(value)


def _ids(values: Sequence[int] | None) -> list[int] | None:
    return None if values is None else [int(value) for value in values]


def _finite(name: str, value: float) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"metrics.{name} is {number}, which JSON cannot hold")
    return number
