"""The reference agent's commands: each turn is one shell command inside the sandbox."""

from __future__ import annotations

import shlex


def read(path: str, latency_s: float = 0.0) -> list[str]:
    """Print a file after the tool's latency, both inside one command."""
    wait = f"sleep {latency_s:g} && " if latency_s > 0 else ""
    return _shell(f"{wait}cat {shlex.quote(path)}")


def write(path: str) -> list[str]:
    """Write the command's standard input to a file."""
    return _shell(f"cat > {shlex.quote(path)}")


def wait(delay_s: float) -> list[str]:
    """Do nothing for a while: a straggler."""
    return _shell(f"sleep {delay_s:g}")


def never_end() -> list[str]:
    """A command that does not end by itself, with a child of its own that does not either."""
    return _shell("sleep infinity; cat /dev/null")


def _shell(script: str) -> list[str]:
    return ["sh", "-c", script]
