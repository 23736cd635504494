"""What a worker knows of a run: its spec, read from the log once and kept."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from trialog.proto import events as ev
from trialog.proto import runspec
from trialog.proto.keys import Keys
from trialog.proto.runspec import RunSpec
from trialog.proto.tasks import manifest
from trialog.proto.tasks.manifest import Manifest
from trialog.spine import telemetry
from trialog.spine.blobs import BlobMissingError, BlobStore
from trialog.spine.log import EventLog, Recorded

_KEPT = 1000


class UnknownRunError(LookupError):
    """No run has this id."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run as workers see it.

    ``root`` is the run its tree began with; ``keys`` are those of its actions under this worker's
    code: a key on a fact tells what was executed. ``other`` names the code of which the worker has
    another version than the run pinned.
    """

    run_id: str
    partition: int
    root: str
    spec: RunSpec
    request: ev.RunRequested
    keys: Keys
    other: frozenset[str]


async def tasks_of(blobs: BlobStore | None, spec: RunSpec) -> Manifest:
    """Return the tasks of a run, none for one in the reference world. Raises BlobMissingError."""
    if spec.tasks is None or spec.tasks.manifest is None:
        return ()
    if blobs is None:
        raise BlobMissingError("this process has no blobs, and a run of tasks needs its manifest")
    return manifest.decode(await blobs.get(spec.tasks.manifest))


class Runs:
    """Runs by id. What a run was asked to do never changes, so it is kept.

    ``code``: the versions of the code that this process runs, by name. What it does not run itself
    counts as the run pinned it.
    """

    def __init__(
        self,
        log: EventLog,
        code: Mapping[str, str] | None = None,
        blobs: BlobStore | None = None,
    ) -> None:
        self._log, self._blobs = log, blobs
        self._code = dict(code or {})
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
            tasks = await tasks_of(self._blobs, spec)
            if run_id not in self._runs:  # of many that ask at once, one goes on
                self._keep(event, request, spec, tasks)
        return self._runs[run_id]

    def _keep(
        self, event: Recorded, request: ev.RunRequested, spec: RunSpec, tasks: Manifest
    ) -> None:
        run_id = event.run_id
        keys = Keys(spec, request.code | self._code, tasks)
        other = {
            name for name, pinned in request.code.items() if self._code.get(name, pinned) != pinned
        }
        self._warn(run_id, {name: request.code[name] for name in other if request.code[name]})
        self._runs[run_id] = Run(
            run_id, event.partition, request.root, spec, request, keys, frozenset(other)
        )
        if len(self._runs) > _KEPT:
            self._runs.popitem(last=False)

    def _warn(self, run_id: str, pinned: Mapping[str, str]) -> None:
        """Say, once a run, that its facts will not be those that it expected."""
        if pinned:
            telemetry.logger().warning(
                "this process runs other code than the run began with: its results have keys of "
                "their own",
                run_id=run_id,
                pinned=pinned,
                own={name: self._code[name] for name in pinned},
            )
