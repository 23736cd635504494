"""What code a new run counts on: as the services told of it."""

from __future__ import annotations

from trialog.driver.api.dependencies import ApiDependencies
from trialog.proto.keys import pinned
from trialog.proto.runspec import RunSpec
from trialog.spine import codes


async def code_for(deps: ApiDependencies, spec: RunSpec) -> dict[str, str]:
    """Return the code that a run's RunRequested pins: version by name, "" for what no service has
    told of yet."""
    return pinned(spec, await codes.registered(deps.log.database))
