"""The one network of sandboxes that may use one: outwards, and not to one another."""

from __future__ import annotations

import json

from trialog.sandbox.docker.container import LABEL
from trialog.sandbox.docker.daemon import Daemon, DaemonError

NAME = "trialog-public"
_ALONE = {"com.docker.network.bridge.enable_icc": "false"}
_EXISTS = 409


async def ensure(daemon: Daemon) -> str:
    """Return the network's name, made when it is missing; it is shared and stays.

    A network for each sandbox would use up the daemon's addresses at about thirty.
    """
    params = {"filters": json.dumps({"name": [f"^{NAME}$"]})}
    if await daemon.ask("GET", "/networks", params=params):
        return NAME
    body = {
        "Name": NAME,
        "CheckDuplicate": True,
        "Driver": "bridge",
        "Options": _ALONE,
        "Labels": {LABEL + "network": "public"},
    }
    try:
        await daemon.ask("POST", "/networks/create", body=body)
    except DaemonError as error:
        if error.status != _EXISTS:  # another worker was first
            raise
    return NAME
