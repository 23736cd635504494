"""Our own services as processes: what each is started with."""

import os
import sys

from trialog.cli.stack import ray
from trialog.cli.stack.errors import UnknownProcess
from trialog.cli.stack.layout import Layout
from trialog.cli.stack.options import StackOptions
from trialog.cli.stack.ports import LOOPBACK, PortBook
from trialog.cli.stack.process import ProcessSpec, base_env, http_ok, port_open

STANDIN = "standin"
KINDS = ("driver", "sandbox", "judge", "trainer")


def planned(options: StackOptions) -> list[str]:
    """Return the names of the processes that the options ask for, in order of their start."""
    counts = (options.drivers, options.sandboxes, options.judges, options.trainers)
    names = [
        f"{kind}-{n}"
        for kind, count in zip(KINDS, counts, strict=True)
        for n in range(1, count + 1)
    ]
    return [*names, STANDIN] if options.judges else names


def spec(
    name: str, options: StackOptions, layout: Layout, ports: PortBook, shared_env: dict[str, str]
) -> ProcessSpec:
    """Describe the process `name`: `KIND-NUMBER`, or the stand-in judge.

    Raises UnknownProcess when there is no such kind.
    """
    if name == STANDIN:
        return _standin(options, layout, ports)
    kind, _, number = name.rpartition("-")
    if kind not in KINDS or not number.isdigit():
        raise UnknownProcess(f"no service {name!r}: a name is {', '.join(KINDS)}, then -NUMBER")
    http_port = ports.port(name)

    async def is_ready(pid: int) -> bool:
        del pid
        serves = kind != "driver" or await port_open(api_port(options, ports))
        return serves and await http_ok(http_port, "/readyz")

    return ProcessSpec(
        name=name,
        argv=(sys.executable, "-m", f"trialog.{kind}"),
        env={
            **base_env(),
            **shared_env,
            "TRIALOG_HTTP_PORT": str(http_port),
            **_own_env(kind, options, layout, ports),
            **options.extra_env,
            **options.service_env.get(kind, {}),
        },
        probe=is_ready,
    )


def _own_env(kind: str, options: StackOptions, layout: Layout, ports: PortBook) -> dict[str, str]:
    if kind == "driver":
        key = {} if options.api_key is None else {"TRIALOG_API_KEY": options.api_key}
        port = str(api_port(options, ports))
        api = {"TRIALOG_API_HOST": options.api_host, "TRIALOG_API_PORT": port}
        # It is this user's own stack: what they can read, their tasks may be read from.
        return {**api, "TRIALOG_TASK_ROOTS": "/", **key}
    if kind == "sandbox":
        return {
            "TRIALOG_SANDBOX_DIR": str(layout.sandboxes),
            "TRIALOG_CONCURRENCY": str(options.sandbox_concurrency),
            # Here a run and the worker are one person's, who may import what they have anyway.
            "TRIALOG_AGENT_MODULES": "*",
            "TRIALOG_IMAGE_ROOTS": "/",
            **_docker(),
        }
    if kind == "judge":
        return {
            "TRIALOG_JUDGE_URL": f"http://{LOOPBACK}:{ports.port(STANDIN)}",
            "TRIALOG_CONCURRENCY": str(options.judge_concurrency),
        }
    return ray.client_env(layout, ports)


def _docker() -> dict[str, str]:
    """Hand a Docker daemon on to the sandbox where the caller names one."""
    address = os.environ.get("TRIALOG_DOCKER_HOST")
    return {"TRIALOG_DOCKER_HOST": address} if address else {}


def _standin(options: StackOptions, layout: Layout, ports: PortBook) -> ProcessSpec:
    port = ports.port(STANDIN)

    async def is_ready(pid: int) -> bool:
        del pid
        return await port_open(port)

    return ProcessSpec(
        name=STANDIN,
        argv=(
            *(sys.executable, "-m", "trialog.judge.standin", "--port", str(port)),
            *("--state", str(layout.standin_calls)),
        ),
        env={**base_env(), **options.extra_env, **options.service_env.get(STANDIN, {})},
        probe=is_ready,
    )


def api_port(options: StackOptions, ports: PortBook) -> int:
    """Return the API's port: the one asked for, else the folder's own."""
    return options.api_port or ports.port("api")


def api_url(options: StackOptions, ports: PortBook) -> str:
    """Return where the API is to be reached from this machine."""
    host = {"0.0.0.0": LOOPBACK, "::": "[::1]"}.get(options.api_host, options.api_host)  # noqa: S104
    if ":" in host and not host.startswith("["):
        host = f"[{host}]"
    return f"http://{host}:{api_port(options, ports)}"
