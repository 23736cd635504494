"""Starting a sandbox's process: its folder, its cgroups, the launcher, bubblewrap, PID 1."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path

from trialog.sandbox.bubblewrap import argv, cgroups, whole
from trialog.sandbox.bubblewrap.home import Home, Record
from trialog.sandbox.bubblewrap.tools import Tools
from trialog.sandbox.bubblewrap.whole import Command, Whole
from trialog.sandbox.errors import SandboxBusyError

_KEPT_OUTPUT_BYTES = 32 << 20
# How bubblewrap is called, given what it inherits: PID 1's arguments, info, rules.
_Words = Callable[[argv.InitArguments, int, int | None], Command]


@contextlib.contextmanager
def made(tools: Tools, run: Path, sandbox_id: str, record: Record) -> Generator[Home]:
    """Make a sandbox's folder and cgroups; both are removed when starting it fails."""
    home = Home.new(run, record)
    try:
        groups = cgroups.make(tools.parents, cgroups.PREFIX + record.nonce, record.limits)
        home.keep(replace(record, groups=tuple(map(str, groups))))
        if not home.settle(run / sandbox_id):
            raise SandboxBusyError(f"sandbox {sandbox_id} was made by another at this moment")
        yield home
    except BaseException:  # whatever it was, leave nothing behind
        home.remove()
        raise


def over_world(
    tools: Tools, home: Home, world: Path, orphan_ttl_s: float
) -> subprocess.Popen[bytes]:
    """Start a sandbox over a world."""
    layout = argv.Layout(
        tools.bwrap, tools.init, world, home.upper, home.overlay / "work", tools.etc
    )

    def words(init: argv.InitArguments, info_fd: int, seccomp_fd: int | None) -> Command:
        built = argv.build(
            layout,
            home.record.limits,
            init,
            info_fd=info_fd,
            seccomp_fd=seccomp_fd,
            die_with_parent=orphan_ttl_s <= 0,
        )
        return Command([], built, {})

    return _spawn(tools, home, words, orphan_ttl_s)


def in_root(tools: Tools, home: Home, root: Whole, orphan_s: float) -> subprocess.Popen[bytes]:
    """Start a sandbox with a root of its own."""

    def words(init: argv.InitArguments, info_fd: int, seccomp_fd: int | None) -> Command:
        return whole.build(
            tools,
            root,
            home.record.limits,
            init,
            info_fd=info_fd,
            seccomp_fd=seccomp_fd,
            die_with_parent=orphan_s <= 0,
        )

    return _spawn(tools, home, words, orphan_s)


def _spawn(tools: Tools, home: Home, words: _Words, orphan_s: float) -> subprocess.Popen[bytes]:
    limits = home.record.limits
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(home.listen())
        log = stack.enter_context((home.path / "log").open("wb"))
        info = stack.enter_context((home.path / "info").open("wb"))
        rules = stack.enter_context(tools.seccomp.open("rb")) if tools.seccomp else None
        start = argv.InitArguments(
            listener.fileno(),
            int(orphan_s * 1000),
            _KEPT_OUTPUT_BYTES,
            0 if tools.parents.holds_memory else limits.memory_bytes,
            0 if tools.parents.holds_pids else limits.pids,
            home.record.nonce,
        )
        command = words(start, info.fileno(), rules.fileno() if rules else None)
        launch = [str(tools.init), "launch", "-f", str(limits.disk_bytes), *command.launch]
        for group in home.record.groups:
            launch += ["-c", group]
        passed = [listener.fileno(), info.fileno(), *([rules.fileno()] if rules else [])]
        return subprocess.Popen(  # noqa: S603 - our own launcher, no shell
            [*launch, "--", *command.words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            env=command.env,
            pass_fds=passed,
        )
