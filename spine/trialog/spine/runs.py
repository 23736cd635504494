"""What a worker knows of a run: its spec, read from the log once and kept."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from trialog.proto import events as ev
from trialog.proto import runspec
from trialog.proto.keys import Keys
from trialog.proto.runspec import RunSpec
from trialog.spine.log import EventLog

_KEPT = 1000


class UnknownRunError(LookupError):
    """No run has this id."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run as workers see it. ``root`` is the run its tree began with; ``keys`` are those of its
    actions under this worker's code."""

    run_id: str
    partition: int
    root: str
    spec: RunSpec
    request: ev.RunRequested
    keys: Keys


class Runs:
    """Runs by id. What a run was asked to do never changes, so it is kept."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._runs: OrderedDict[str, Run] = OrderedDict()

    async def get(self, run_id: str) -> Run:
        """Return a run. Raises UnknownRunError."""
        if run_id not in self._runs:
            event = await self._log.at_slot(run_id, "run")
            if event is None:
                raise UnknownRunError(f"no run {run_id}")
            request = event.fact()
            assert isinstance(request, ev.RunRequested)
            spec = runspec.load(request.spec)
            keys = Keys(spec, request.code)
            self._runs[run_id] = Run(run_id, event.partition, request.root, spec, request, keys)
            if len(self._runs) > _KEPT:
                self._runs.popitem(last=False)
        return self._runs[run_id]
