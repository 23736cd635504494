"""The policy's actor: PolicyMemory in a process of its own, kept by Ray under the run's name.

It is detached: it outlives hosts and driver. Ray never restarts it nor repeats a call to it
(``max_restarts=0, max_task_retries=0``: Ray's own retry applied a step twice). It returns a step's
checkpoint to the host, which puts it in the blob store before the step is recorded.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

from trialog.trainer.policy import Outcome, PolicyMemory, StepOrder

NAMESPACE = "trialog"
IDLE_S = 600.0


def actor_name(run_id: str) -> str:
    """Return the name of a run's actor within the namespace."""
    return f"policy-{run_id}"


class PolicyActor:
    """Serves one run. Ends by itself once nobody has asked anything for ``idle_s`` seconds."""

    def __init__(
        self,
        idle_s: float = IDLE_S,
        actor: str | None = None,
        leave: Callable[[], None] | None = None,
    ) -> None:
        self._memory = PolicyMemory(_own_id() if actor is None else actor, os.getpid())
        self._idle_s = idle_s
        self._leave = leave or _leave
        self._lock = threading.Lock()  # held while working: who works is not idle
        self._last_s = time.monotonic()
        threading.Thread(target=self._watch, name="idle", daemon=True).start()

    def apply(self, order: StepOrder, prior: bytes | None = None) -> Outcome:
        """See PolicyMemory.apply."""
        with self._lock:
            try:
                return self._memory.apply(order, prior)
            finally:
                self._last_s = time.monotonic()

    def forget(self) -> None:
        """Drop the memory."""
        with self._lock:
            self._memory.forget()

    def applied(self) -> int:
        """Return how many steps were worked out in this process."""
        return self._memory.applied

    def _watch(self) -> None:
        while True:
            left_s = self._last_s + self._idle_s - time.monotonic()
            if left_s > 0:
                time.sleep(left_s)
                continue
            with self._lock:
                if time.monotonic() - self._last_s >= self._idle_s:
                    self._leave()
                    return


def _own_id() -> str:
    import ray  # noqa: PLC0415 - only in the actor's process

    return str(ray.get_runtime_context().get_actor_id())


def _leave() -> None:
    """End this actor. ``ray.kill`` lets the cluster know at once and why."""
    import ray  # noqa: PLC0415 - only in the actor's process

    ray.kill(ray.get_runtime_context().current_actor)
