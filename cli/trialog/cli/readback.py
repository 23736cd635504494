"""Reads a run of the demo back through the API, whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trialog.client import AsyncTrialogClient
    from trialog.client.models import Event, Run, Trial, Weights


async def trials_of(client: AsyncTrialogClient, run_id: str) -> dict[str, Trial]:
    """Return all trials of a run by id."""
    found: dict[str, Trial] = {}
    cursor = None
    while True:
        page = await client.list_trials(run_id, cursor=cursor)
        found |= {trial["trial_id"]: trial for trial in page["trials"]}
        cursor = page["next_cursor"]
        if cursor is None:
            return found


async def weights_of(client: AsyncTrialogClient, run: Run) -> dict[int, Weights]:
    """Return the weights after each applied step of a run, by version."""
    applied = [step for step in run["steps"] if step["weights_version"] is not None]
    versions = range(1, len(applied) + 1)
    return {version: await client.get_weights(run["run_id"], version) for version in versions}


async def events_of(client: AsyncTrialogClient, run_id: str) -> tuple[Event, ...]:
    """Return the events that a run has now."""
    return tuple([event async for event in client.iter_events(run_id)])
