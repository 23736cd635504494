"""Looks at the machine before anything is started: one clear error for each thing it lacks."""

import shutil
import socket
import sys
from pathlib import Path

from trialog.cli.stack import nats, postgres, ray
from trialog.cli.stack.errors import MachineUnfit
from trialog.cli.stack.options import StackOptions
from trialog.cli.stack.ports import LOOPBACK, is_free

_FREE_BYTES = 500 * 1024 * 1024


def check_machine(options: StackOptions) -> None:
    """Raise MachineUnfit, saying what helps, when the stack cannot run here."""
    check_python()
    check_loopback()
    postgres.binaries()
    nats.binary()
    if options.with_ray:
        ray.check()
    if options.with_services and options.api_port:
        check_port(options.api_host, options.api_port)


def check_python() -> None:
    """Raise MachineUnfit on a system or Python that the stack does not run on."""
    if sys.platform not in ("linux", "darwin"):
        raise MachineUnfit(f"the embedded stack runs on Linux and macOS, not on {sys.platform}")
    if not Path(sys.executable or "").exists():
        raise MachineUnfit("cannot tell which Python runs this: start it from an environment")


def check_loopback() -> None:
    """Raise MachineUnfit when the loopback interface cannot be used."""
    try:
        with socket.socket() as probe:
            probe.bind((LOOPBACK, 0))
    except OSError as error:
        raise MachineUnfit(f"cannot bind to {LOOPBACK}: {error.strerror}") from error


def check_port(host: str, port: int) -> None:
    """Raise MachineUnfit when the API's port is taken."""
    if not is_free(port, host):
        raise MachineUnfit(
            f"port {port} on {host} is taken or not allowed: choose another, or 0 for a free one"
        )


def check_space(folder: Path) -> None:
    """Raise MachineUnfit when the folder's disk is nearly full: Postgres would stop midway."""
    free = shutil.disk_usage(folder).free
    if free < _FREE_BYTES:
        raise MachineUnfit(
            f"{folder} has only {free >> 20} MB free, the stack needs {_FREE_BYTES >> 20}: "
            "free some, or choose another folder with --data DIR"
        )
