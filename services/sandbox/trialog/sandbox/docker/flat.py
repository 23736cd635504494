"""Images without volumes: what lies in a volume is no part of a container's layer, so no state
would hold it. Nothing takes VOLUME back from an image but making it anew from its files."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

from trialog.sandbox.docker.daemon import Daemon, DaemonError, Params
from trialog.sandbox.errors import ImageError

_SPECIAL = re.compile(r'(["\\$])')


async def without_volumes(daemon: Daemon, tagged: str) -> None:
    """Make a tagged image anew as one layer if it has volumes, with all else that commands get."""
    config = (await daemon.ask("GET", f"/images/{tagged}/json"))["Config"] or {}
    if not config.get("Volumes"):
        return
    # It is never started: the command only has to be there.
    body = {"Image": tagged, "Entrypoint": ["/"], "HostConfig": {"NetworkMode": "none"}}
    made = (await daemon.ask("POST", "/containers/create", body=body))["Id"]
    try:
        repository, _, tag = tagged.partition(":")
        params: Params = [("fromSrc", "-"), ("repo", repository), ("tag", tag)]
        params += [("changes", change) for change in _changes(config)]
        async with contextlib.aclosing(daemon.stream(f"/containers/{made}/export")) as files:
            await daemon.do("/images/create", params, files)
    except DaemonError as error:
        raise ImageError(f"{tagged} cannot be made without volumes: {error}") from error
    finally:
        await daemon.ask("DELETE", f"/containers/{made}", params={"force": "true", "v": "true"})


def _changes(config: dict[str, Any]) -> Iterator[str]:
    for pair in config.get("Env") or ():
        name, _, value = pair.partition("=")
        yield f'ENV {name}="{_SPECIAL.sub(_escaped, value)}"'
    if config.get("WorkingDir"):
        yield f"WORKDIR {config['WorkingDir']}"
    if config.get("User"):
        yield f"USER {config['User']}"


def _escaped(found: re.Match[str]) -> str:
    return "\\" + found[1]
