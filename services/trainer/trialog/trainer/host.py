"""The policy host port, and the host that keeps each run's policy in an actor of a Ray cluster."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

from trialog.trainer.actor import IDLE_S, NAMESPACE, PolicyActor, actor_name
from trialog.trainer.connection import RayConnection, Session, heard, in_thread
from trialog.trainer.errors import (
    HostTimeoutError,
    StepConflictError,
    TrainerError,
)
from trialog.trainer.policy import Applied, Conflict, Outcome, StepOrder, UnknownPrior

T = TypeVar("T")
LoadPrior = Callable[[str], Awaitable[bytes]]

RETRY_FROM_S = 0.02
RETRY_TO_S = 1.0

_log = logging.getLogger(__name__)


class PolicyHost(Protocol):
    """Applies steps to a run's policy, wherever that lives."""

    async def apply(
        self, run_id: str, order: StepOrder, load_prior: LoadPrior, *, timeout_s: float
    ) -> Applied:
        """Apply a step and return its result; the caller stores the weights, then records.

        ``load_prior`` is asked for a checkpoint's bytes by digest when the policy does not hold it.
        A repeated order returns the kept result or works out the same one again. Raises
        StepConflictError, LearnerError, HostUnavailableError, HostTimeoutError, and what
        ``load_prior`` raises.
        """
        ...

    async def forget(self, run_id: str, *, timeout_s: float) -> None:
        """Make the policy drop its memory: its last result is not the one on the log."""
        ...

    async def retire(self, run_id: str, *, timeout_s: float) -> None:
        """End the run's policy, if there is one: its run is over."""
        ...

    async def close(self) -> None:
        """Let go of the connection. Policies stay."""
        ...


class _LostError(Exception):
    """The session went while a call was under way."""


class RayHost:
    """A detached, named actor for each run. A dead actor is made anew and restored from the
    checkpoint; a cluster that is gone is waited for, up to the call's limit."""

    def __init__(
        self,
        address: str,
        *,
        idle_s: float = IDLE_S,
        on_connect: Callable[[], None] | None = None,
    ) -> None:
        self._connection = RayConnection(address, on_connect)
        self._idle_s = idle_s

    async def connect(self, *, timeout_s: float) -> None:
        """Connect ahead of the first call. Raises HostUnavailableError."""
        await self._connection.open(asyncio.get_running_loop().time() + timeout_s)

    async def apply(
        self, run_id: str, order: StepOrder, load_prior: LoadPrior, *, timeout_s: float
    ) -> Applied:
        """See PolicyHost."""
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        prior: bytes | None = None
        while True:
            outcome: Outcome = await self._until(
                deadline_s, run_id, lambda actor, prior=prior: actor.apply.remote(order, prior)
            )
            match outcome:
                case Applied():
                    return outcome
                case UnknownPrior(digest):
                    prior = await load_prior(digest)
                case Conflict(step, kept_key):
                    raise StepConflictError(f"step {step} of {run_id} was applied as {kept_key}")

    async def forget(self, run_id: str, *, timeout_s: float) -> None:
        """See PolicyHost."""
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        await self._until(deadline_s, run_id, lambda actor: actor.forget.remote())

    async def applied(self, run_id: str, *, timeout_s: float) -> int:
        """Return how many steps the run's actor has worked out."""
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        return await self._until(deadline_s, run_id, lambda actor: actor.applied.remote())

    async def retire(self, run_id: str, *, timeout_s: float) -> None:
        """See PolicyHost. A cluster that is gone has taken the actor with it, but one that is not
        reached raises HostUnavailableError; the actor then ends once it is idle."""
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        session = await self._connection.open(deadline_s)
        session.actors.pop(run_id, None)
        await _within(session, deadline_s, in_thread(lambda: _kill(run_id)))

    async def close(self) -> None:
        """See PolicyHost."""
        await self._connection.close()

    async def _until(self, deadline_s: float, run_id: str, submit: Callable[[Any], Any]) -> Any:
        """Call the run's actor, over new actors and connections, until it answers in time."""
        from ray import exceptions  # noqa: PLC0415 - see connection.py

        wait_s = RETRY_FROM_S
        while True:
            session = await self._connection.open(deadline_s)
            try:
                return await self._call(session, deadline_s, run_id, submit)
            except exceptions.RayTaskError as error:
                cause = error.cause
                raise (cause if isinstance(cause, TrainerError) else error) from error
            except exceptions.RayActorError as error:
                _log.warning("the actor of %s is gone: %s", run_id, type(error).__name__)
                session.actors.pop(run_id, None)
            except (_LostError, exceptions.RayError, RuntimeError, ConnectionError) as error:
                _log.warning("the connection to Ray broke: %s", error)
                await self._connection.drop(session)
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 2, RETRY_TO_S)

    async def _call(
        self, session: Session, deadline_s: float, run_id: str, submit: Callable[[Any], Any]
    ) -> Any:
        actor = session.actors.get(run_id)
        if actor is None:
            made = in_thread(lambda: _actor(run_id, self._idle_s))
            actor = session.actors[run_id] = await _within(session, deadline_s, made)
        # The result is awaited as a future, not by ray.get in a thread: a shutdown would pull the
        # cluster's client from under that thread.
        pending = await _within(session, deadline_s, in_thread(lambda: submit(actor).future()))
        return await _within(session, deadline_s, pending)


async def _within(session: Session, deadline_s: float, work: Future[T]) -> T:
    """Await work, but no longer than the deadline or the session."""
    future = asyncio.wrap_future(work)
    future.add_done_callback(heard)
    lost = asyncio.create_task(session.lost.wait())
    try:
        left_s = deadline_s - asyncio.get_running_loop().time()
        await asyncio.wait(
            {future, lost}, timeout=max(0.0, left_s), return_when=asyncio.FIRST_COMPLETED
        )
        if future.done():
            return future.result()
        if lost.done():
            raise _LostError("the cluster is gone")
        raise HostTimeoutError("the policy did not answer in time")
    finally:
        lost.cancel()


def _actor(run_id: str, idle_s: float) -> Any:
    """Return the run's actor, made when there is none. One CPU less than others ask for: it
    schedules on a full cluster too."""
    import ray  # noqa: PLC0415

    remote: Any = ray.remote(PolicyActor)
    return remote.options(
        name=actor_name(run_id),
        namespace=NAMESPACE,
        get_if_exists=True,
        lifetime="detached",
        max_concurrency=1,
        max_restarts=0,
        max_task_retries=0,
        num_cpus=0,
    ).remote(idle_s)


def _kill(run_id: str) -> None:
    import ray  # noqa: PLC0415

    try:
        actor = ray.get_actor(actor_name(run_id), namespace=NAMESPACE)
    except ValueError:  # Ray's word for: no such actor
        return
    ray.kill(actor)
