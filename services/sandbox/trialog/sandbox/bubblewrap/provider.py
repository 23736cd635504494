"""Sandboxes by bubblewrap on this host, as root or as an ordinary user."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import subprocess
import time
import weakref
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from trialog.sandbox.bubblewrap import argv, cgroups, find, home, seccomp
from trialog.sandbox.bubblewrap.home import Home
from trialog.sandbox.bubblewrap.sandbox import BubblewrapSandbox
from trialog.sandbox.errors import (
    ProviderUnavailableError,
    SandboxBusyError,
    SandboxError,
    SandboxGoneError,
    WorldError,
)
from trialog.sandbox.init import build
from trialog.sandbox.provider import (
    Capabilities,
    Enforcement,
    SandboxSpec,
    check_sandbox_id,
)
from trialog.sandbox.worlds.archive import pack
from trialog.sandbox.worlds.store import WorldStore

_KEPT_OUTPUT_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class _Tools:
    """What is found once and used by every sandbox."""

    bwrap: Path
    init: Path
    etc: Path
    seccomp: Path | None
    parents: cgroups.Parents


class BubblewrapProvider:
    """Keeps worlds and sandboxes below one folder, which processes of one host may share.

    ``orphan_ttl_s`` is how long a sandbox outlives its worker: 0 ties its life to the worker's by
    the kernel; more lets a new worker ``attach`` within that time. All sandboxes are started from
    one thread that lives as long as the provider, since bubblewrap dies with the *thread* that
    started it.
    """

    def __init__(self, root: Path, *, orphan_ttl_s: float = 0.0, use_cgroups: bool = True) -> None:
        self._root = root
        self._orphan_ttl_s = orphan_ttl_s
        self._use_cgroups = use_cgroups
        self._worlds = WorldStore(root / "worlds")
        self._run = root / "run"
        self._tools: _Tools | None = None
        self._sandboxes: dict[str, BubblewrapSandbox] = {}
        self._creating = weakref.WeakValueDictionary[str, asyncio.Lock]()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sandbox-spawner")

    async def probe(self) -> Capabilities:
        """Start a sandbox, look around in it, and say what is enforced; see the seam."""
        world = pack({"probe.txt": b"probe\n"})
        digest = hashlib.sha256(world).hexdigest()
        sandbox_id = f"probe-{os.getpid()}"
        try:
            await self.prepare(digest, world)
            sandbox = await self.create(sandbox_id, SandboxSpec(digest))
        except (OSError, SandboxError) as error:
            if isinstance(error, ProviderUnavailableError):
                raise
            raise ProviderUnavailableError(_mend(str(error), self._root)) from error
        try:
            script = "cat probe.txt && echo x > probe.txt && cat /proc/net/dev && echo $$"
            seen = await sandbox.exec("probe", ["sh", "-c", script], timeout_s=20)
        finally:
            await sandbox.destroy()
        lines = seen.stdout.decode("utf-8", "replace").splitlines()
        devices = [line.split(":")[0].strip() for line in lines if ":" in line]
        if seen.exit_code != 0 or lines[:1] != ["probe"] or devices != ["lo"]:
            said = seen.stderr.decode("utf-8", "replace").strip()
            raise ProviderUnavailableError(
                f"the self-test saw {lines[:1]} and network devices {devices} "
                f"(exit code {seen.exit_code}): {said}"
            )
        return self._capabilities(self._find_tools())

    async def prepare(self, world_digest: str, tar_bytes: bytes) -> None:
        """Unpack a world once per host; see the seam."""
        await asyncio.to_thread(self._worlds.prepare, world_digest, tar_bytes)

    async def prepared(self, world_digest: str) -> bool:
        """Tell whether a world is unpacked here."""
        return self._worlds.path(world_digest) is not None

    async def create(self, sandbox_id: str, spec: SandboxSpec) -> BubblewrapSandbox:
        """Fork a world; see the seam."""
        async with self._one_at_a_time(sandbox_id):
            try:
                known = await self._attach(sandbox_id)
            except SandboxGoneError:
                pass
            else:
                if known.world_digest != spec.world_digest:
                    raise SandboxBusyError(f"sandbox {sandbox_id} exists over another world")
                return known
            loop = asyncio.get_running_loop()
            made = await loop.run_in_executor(self._thread, self._start, sandbox_id, spec)
            return await self._adopt(made)

    async def attach(self, sandbox_id: str) -> BubblewrapSandbox:
        """Return a living sandbox; see the seam."""
        async with self._one_at_a_time(sandbox_id):
            return await self._attach(sandbox_id)

    async def sweep(self, live_ids: Iterable[str]) -> list[str]:
        """Remove what dead workers left; see the seam."""
        keep = {*live_ids, *self._sandboxes}
        return await asyncio.to_thread(self._sweep, keep)

    async def close(self) -> None:
        """Destroy what this provider holds and end its thread."""
        for sandbox in list(self._sandboxes.values()):
            await sandbox.destroy()
        self._thread.shutdown()

    def _one_at_a_time(self, sandbox_id: str) -> asyncio.Lock:
        return self._creating.setdefault(check_sandbox_id(sandbox_id), asyncio.Lock())

    def _forget(self, sandbox: BubblewrapSandbox) -> None:
        if self._sandboxes.get(sandbox.sandbox_id) is sandbox:
            del self._sandboxes[sandbox.sandbox_id]

    async def _attach(self, sandbox_id: str) -> BubblewrapSandbox:
        known = self._sandboxes.get(sandbox_id)
        if known is not None and not known.ended:
            return known
        if known is not None:
            await known.destroy()
        found = await asyncio.to_thread(Home.find, self._run / sandbox_id)
        sandbox = BubblewrapSandbox(sandbox_id, found, None, self._forget)
        return await self._adopt(sandbox)

    async def _adopt(self, sandbox: BubblewrapSandbox) -> BubblewrapSandbox:
        """Wait until it answers and keep it; one that does not answer is removed."""
        try:
            await sandbox.ready()
        except BaseException:  # also on cancellation nothing may stay behind
            await sandbox.destroy()
            raise
        self._sandboxes[sandbox.sandbox_id] = sandbox
        return sandbox

    def _start(self, sandbox_id: str, spec: SandboxSpec) -> BubblewrapSandbox:
        """Make the folder, the cgroups and the process (blocking, in the spawner's thread)."""
        begun_at = time.perf_counter()
        tools = self._find_tools()
        world = self._worlds.path(spec.world_digest)
        if world is None:
            raise WorldError(f"world {spec.world_digest} is not prepared on this host")
        made = Home.new(self._run, spec)
        try:
            name = cgroups.PREFIX + made.record.nonce
            groups = cgroups.make(tools.parents, name, spec.limits)
            made.keep(replace(made.record, groups=tuple(map(str, groups))))
            if not made.settle(self._run / sandbox_id):
                raise SandboxBusyError(f"sandbox {sandbox_id} was made by another at this moment")
            process = self._spawn(tools, made, world)
            return BubblewrapSandbox(sandbox_id, made, process, self._forget, begun_at)
        except BaseException:  # whatever it was, leave nothing behind
            made.remove()
            raise

    def _spawn(self, tools: _Tools, made: Home, world: Path) -> subprocess.Popen[bytes]:
        limits = made.record.spec.limits
        layout = argv.Layout(
            tools.bwrap, tools.init, world, made.path / "upper", made.path / "work", tools.etc
        )
        with contextlib.ExitStack() as stack:
            listener = stack.enter_context(made.listen())
            log = stack.enter_context((made.path / "log").open("wb"))
            info = stack.enter_context((made.path / "info").open("wb"))
            rules = stack.enter_context(tools.seccomp.open("rb")) if tools.seccomp else None
            start = argv.InitArguments(
                listener.fileno(),
                int(self._orphan_ttl_s * 1000),
                _KEPT_OUTPUT_BYTES,
                0 if tools.parents.holds_memory else limits.memory_bytes,
                0 if tools.parents.holds_pids else limits.pids,
                made.record.nonce,
            )
            words = argv.build(
                layout,
                limits,
                start,
                info_fd=info.fileno(),
                seccomp_fd=rules.fileno() if rules else None,
                die_with_parent=self._orphan_ttl_s <= 0,
            )
            launch = [str(tools.init), "launch", "-f", str(limits.disk_bytes)]
            for group in made.record.groups:
                launch += ["-c", group]
            passed = [listener.fileno(), info.fileno(), *([rules.fileno()] if rules else [])]
            return subprocess.Popen(  # noqa: S603 - our own launcher, no shell
                [*launch, "--", *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env={},
                pass_fds=passed,
            )

    def _find_tools(self) -> _Tools:
        if self._tools is None:
            try:
                self._run.mkdir(parents=True, exist_ok=True)
                etc = self._root / "etc"
                argv.make_etc(etc)
                rules = _write_rules(self._root / "seccomp.bpf")
            except OSError as error:
                raise ProviderUnavailableError(_mend(str(error), self._root)) from error
            parents = cgroups.find() if self._use_cgroups else cgroups.Parents()
            init = build.ensure(self._root / "bin")
            self._tools = _Tools(find.bwrap(), init, etc, rules, parents)
        return self._tools

    def _sweep(self, keep: set[str]) -> list[str]:
        removed: list[str] = []
        for path in self._run.iterdir() if self._run.is_dir() else ():
            if path.name in keep:
                continue
            try:
                left = Home.find(path)
            except SandboxBusyError:
                continue
            except SandboxGoneError:
                if home.abandoned(path):
                    home.remove_tree(path)
                continue
            left.kill()
            left.remove()
            removed.append(path.name)
        cgroups.sweep(self._find_tools().parents)
        return removed

    def _capabilities(self, tools: _Tools) -> Capabilities:
        hard, polled = Enforcement.HARD, Enforcement.POLLED
        root = os.geteuid() == 0
        notes = ["disk: one file by rlimit, their sum by a watchdog that looks 4 times a second"]
        if not tools.parents.holds_memory:
            notes.append("memory: no cgroup can be made here; a watchdog looks 10 times a second")
        if tools.seccomp is None:
            notes.append("no seccomp filter is written for this machine's architecture")
        if root:
            notes.append("started as root: uid 0 inside is uid 0 outside, without capabilities")
        return Capabilities(
            provider="bubblewrap",
            memory=hard if tools.parents.holds_memory else polled,
            pids=polled if root and not tools.parents.holds_pids else hard,
            cpu=Enforcement.NONE,
            disk=polled,
            network=hard,
            notes=tuple(notes),
        )


def _write_rules(path: Path) -> Path | None:
    rules = seccomp.program()
    if rules is None:
        return None
    if not path.exists() or path.read_bytes() != rules:
        aside = path.with_name(f".{path.name}.{os.getpid()}")
        aside.write_bytes(rules)
        aside.replace(path)
    return path


def _mend(said: str, root: Path) -> str:
    """Say what is missing for the usual reasons that bubblewrap does not start."""
    return (
        f"bubblewrap cannot isolate here: {said}. It needs unprivileged user namespaces (in a "
        "container: a seccomp profile that allows clone, unshare and mount, and "
        f"systempaths=unconfined), and {root} must be writable by this user and on a filesystem "
        "that an overlay can write to (not itself an overlay: use a volume)"
    )
