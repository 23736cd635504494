"""The demo: the reference run with every fault on an embedded stack, and what it proves."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import httpx

from trialog.cli import output
from trialog.cli.demo_forks import Forking
from trialog.cli.facts import CRASH_STEP, Exit, Facts, load_golden
from trialog.cli.fork_facts import RUBRIC, Forks
from trialog.cli.metrics import Sample, parse
from trialog.cli.progress import RunProgress
from trialog.cli.readback import events_of, trials_of, weights_of
from trialog.cli.stack import Stack, StackEvent, StackOptions
from trialog.cli.stack.ports import LOOPBACK
from trialog.cli.stack.services import STANDIN
from trialog.client import AsyncTrialogClient, Patience
from trialog.proto.work import GENERATE, JUDGE

if TYPE_CHECKING:
    from trialog.cli.watch import View
    from trialog.client.models import Verification

LONGEST_S = 180.0
_PATIENCE_S = 30.0
FAULTS: dict[str, Any] = {
    "flaky_trial_rate": 0.25,
    "judge_flake_rate": 0.3,
    "crash_driver_after_step": CRASH_STEP,
}
SPEC: dict[str, Any] = {"faults": FAULTS, "labels": {"example": "demo"}}


class DemoTimedOut(Exception):
    """The run did not end in the time that a demo has."""


@dataclass(frozen=True)
class Demo:
    """A demo to be run on a stack of these options."""

    options: StackOptions
    view: Callable[[], View]
    on_event: Callable[[StackEvent], None]

    async def run(self) -> Facts:
        """Start the stack, run the reference run in it, stop it; return what was found.

        Raises StackError, TrialogError, and DemoTimedOut after ``LONGEST_S`` seconds.
        """
        start = time.monotonic()
        try:
            async with asyncio.timeout(LONGEST_S):
                async with Stack(self.options, self.on_event) as stack:
                    await stack.ready()
                    output.note(f"the stack is up after {time.monotonic() - start:.1f} s")
                    return await self._run_in(stack, start)
        except TimeoutError:
            raise DemoTimedOut(f"the demo did not end within {LONGEST_S:.0f} s") from None

    async def _run_in(self, stack: Stack, start: float) -> Facts:
        view = self.view()
        patience = Patience(_PATIENCE_S, view.waiting)
        async with AsyncTrialogClient(
            stack.api_url, api_key=self.options.api_key or "", patience=patience
        ) as client:
            run_id = (await client.create_run(SPEC))["run_id"]
            progress = RunProgress()
            with view:
                async for event in client.watch(run_id):
                    progress.apply(event)
                    view.show(progress, event)
            facts = await self._facts(client, run_id, stack, start)
            forks = await self._forks(client, facts, stack)
            # Last: the chain holds the forks too, and their time counts.
            total_s, chain = time.monotonic() - start, await _walked(client)
            return replace(facts, forks=forks, chain=chain, total_s=total_s)

    async def _facts(
        self, client: AsyncTrialogClient, run_id: str, stack: Stack, start: float
    ) -> Facts:
        """Return what is known of the run itself, before it is forked."""
        run = await client.get_run(run_id)
        names = list(stack.processes)
        return Facts(
            golden=load_golden(),
            run=run,
            trials=await trials_of(client, run_id),
            weights=await weights_of(client, run),
            events=await events_of(client, run_id),
            judge=json.loads(await _get(stack, STANDIN, "/v1/calls") or "{}"),
            chain=await _walked(client),
            exits=tuple(
                Exit(one.name, one.pid, one.returncode, one.at, one.expected) for one in stack.exits
            ),
            restarts={name: state.restarts for name, state in stack.processes.items()},
            sandboxes=await _metrics(stack, [n for n in names if n.startswith("sandbox-")]),
            drivers=await _metrics(stack, _restarted_drivers(stack)),
            standby=self.options.drivers > 1,
            total_s=time.monotonic() - start,
            golden_fork=load_golden("fork_v2"),
            forks=Forks(),
        )

    async def _forks(self, client: AsyncTrialogClient, facts: Facts, stack: Stack) -> Forks:
        """Fork the run. One that did not complete has nothing golden to be forked."""
        if facts.run["state"] != "completed":
            return Forks()
        output.note(
            f"its five forks: another rubric ({RUBRIC}), nothing changed, rescored, "
            "rescored by criterion, other weights"
        )

        async def judge_calls() -> Counter[str] | None:
            counted = await _get(stack, STANDIN, "/v1/calls")
            return Counter(json.loads(counted)["by_key"]) if counted else None

        return await Forking(client, judge_calls, self.view).of(facts.run["run_id"])


async def _walked(client: AsyncTrialogClient) -> Verification:
    """Walk the log's hash chain to its end, or to its first broken link."""
    after = 0
    while True:
        found = await client.verify_log(after)
        if found["broken_at"] is not None or found["checked_until"] == after:
            return found
        after = found["checked_until"]


async def _metrics(stack: Stack, names: Iterable[str]) -> dict[str, list[Sample]]:
    return {name: parse(await _get(stack, name, "/metrics")) for name in names}


def _restarted_drivers(stack: Stack) -> list[str]:
    return [
        name
        for name, state in stack.processes.items()
        if name.startswith("driver-") and state.restarts
    ]


async def _get(stack: Stack, name: str, path: str) -> str:
    """Return what a process of the stack answers on its own port; nothing when it does not.

    What was not measured fails its claim, and the others are still worth a table.
    """
    try:
        async with httpx.AsyncClient(trust_env=False) as client:
            answer = await client.get(f"http://{LOOPBACK}:{stack.ports.port(name)}{path}")
            return answer.raise_for_status().text
    except httpx.HTTPError as error:
        output.note(f"{name} does not say {path}: {error}")
        return ""


def story() -> str:
    """Return what the demo is about to do."""
    return (
        "The reference run: 3 steps x 3 prompts x 2 samples, with "
        f"{FAULTS['flaky_trial_rate']:.0%} flaky trials ({GENERATE}), "
        f"{FAULTS['judge_flake_rate']:.0%} judgments that fail after the call ({JUDGE}), "
        f"and the driver killed once step {CRASH_STEP} is applied. Then five forks of it."
    )
