"""The policy host's in-memory twin: the same memory, in this process."""

from __future__ import annotations

import os

from trialog.trainer.errors import HostUnavailableError, StepConflictError
from trialog.trainer.host import LoadPrior
from trialog.trainer.policy import Applied, Conflict, PolicyMemory, StepOrder, UnknownPrior


class MemoryHost:
    """A PolicyHost without Ray. ``kill`` ends a policy as a crash would."""

    def __init__(self) -> None:
        self._policies: dict[str, PolicyMemory] = {}
        self._made = 0
        self.available = True
        """Set to False to play a cluster that is gone."""

    async def apply(
        self, run_id: str, order: StepOrder, load_prior: LoadPrior, *, timeout_s: float
    ) -> Applied:
        """See PolicyHost."""
        policy = self._policy(run_id)
        outcome = policy.apply(order)
        if isinstance(outcome, UnknownPrior):
            outcome = policy.apply(order, await load_prior(outcome.digest))
        if isinstance(outcome, Applied):
            return outcome
        kept = outcome.kept_key if isinstance(outcome, Conflict) else "nothing"
        raise StepConflictError(f"step {order.step} of {run_id} was applied as {kept}")

    async def forget(self, run_id: str, *, timeout_s: float) -> None:
        """See PolicyHost."""
        self._policy(run_id).forget()

    async def applied(self, run_id: str, *, timeout_s: float) -> int:
        """Return how many steps the run's policy has worked out."""
        return self._policy(run_id).applied

    async def retire(self, run_id: str, *, timeout_s: float) -> None:
        """See PolicyHost."""
        self._policies.pop(run_id, None)

    async def close(self) -> None:
        """See PolicyHost."""

    def kill(self, run_id: str) -> None:
        """Lose a policy's memory and its name."""
        self._policies.pop(run_id, None)

    def _policy(self, run_id: str) -> PolicyMemory:
        if not self.available:
            raise HostUnavailableError("the cluster is gone")
        if run_id not in self._policies:
            self._made += 1
            self._policies[run_id] = PolicyMemory(f"memory-{self._made}", os.getpid())
        return self._policies[run_id]
