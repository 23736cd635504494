"""The embedded Ray head: a cluster of one node that only this stack's token opens.

`ray stop` is never called, since it ends every Ray of the machine: the head runs in the
foreground (`--block`) and what it started is found by the marks in its environment.
"""

import signal
import sys
from importlib.util import find_spec
from pathlib import Path

from trialog.cli.stack.errors import MachineUnfit
from trialog.cli.stack.layout import Layout
from trialog.cli.stack.options import StackOptions
from trialog.cli.stack.ports import LOOPBACK, PortBook
from trialog.cli.stack.process import ProcessSpec, base_env, port_open

# Every port that Ray would choose by itself, so that two stacks can live side by side.
_PORT_FLAGS = (
    "port",
    "node-manager-port",
    "object-manager-port",
    "dashboard-port",
    "dashboard-agent-listen-port",
    "dashboard-agent-grpc-port",
    "runtime-env-agent-port",
    "metrics-export-port",
)
# Workers start when an actor asks for them, not ahead; a host short of memory is not made better
# by killing our one actor.
_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_enable_worker_prestart": "false",
    "RAY_prestart_worker_first_driver": "false",
    "RAY_memory_monitor_refresh_ms": "0",
}


def check() -> None:
    """Raise MachineUnfit when Ray is missing from this environment."""
    if find_spec("ray") is None:
        raise MachineUnfit(
            "the package ray is missing from this environment: "
            "install trialog[stack], or run make setup"
        )


def address(ports: PortBook) -> str:
    """Return the cluster's address, as `ray.init` takes it."""
    return f"{LOOPBACK}:{ports.port('ray-port')}"


def client_env(layout: Layout, ports: PortBook) -> dict[str, str]:
    """Return what a process needs to join the cluster."""
    return {
        "TRIALOG_RAY_ADDRESS": address(ports),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(layout.ray_token),
        "RAY_USAGE_STATS_ENABLED": "0",
        # Says "no cluster of several machines": everything then binds to loopback and nothing to
        # the machine's address, which may change under a laptop.
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    }


def spec(layout: Layout, ports: PortBook, options: StackOptions, folder: Path) -> ProcessSpec:
    """Describe the head's process; `folder` is its temporary folder."""
    chosen = {flag: ports.port(f"ray-{flag}") for flag in _PORT_FLAGS}

    async def is_ready(pid: int) -> bool:
        del pid
        return await port_open(chosen["port"]) and await port_open(chosen["node-manager-port"])

    return ProcessSpec(
        name="ray",
        argv=(
            *(
                sys.executable,
                "-m",
                "ray.scripts.scripts",
                "start",
                "--head",
                "--block",
                "--disable-usage-stats",
            ),
            *("--node-ip-address", LOOPBACK, "--temp-dir", str(folder)),
            *("--include-dashboard", "false", "--include-log-monitor", "false"),
            "--no-monitor",  # of an autoscaler: one node never scales
            *("--num-cpus", str(options.ray_cpus), "--num-gpus", "0"),
            *("--object-store-memory", str(options.ray_object_store_bytes)),
            *(f"--{flag}={port}" for flag, port in chosen.items()),
        ),
        env={
            **base_env(),
            **client_env(layout, ports),
            **_SETTINGS,
            **options.extra_env,
        },
        probe=is_ready,
        # It takes more than 10 s to end on SIGTERM, and there is nothing in it to save: a policy
        # is checkpointed before its step is answered.
        stop_signal=signal.SIGKILL,
        owns_descendants=True,
    )
