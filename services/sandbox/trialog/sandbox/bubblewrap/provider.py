"""Sandboxes by bubblewrap on this host, as root or as an ordinary user."""

from __future__ import annotations

import asyncio
import secrets
import subprocess
import time
import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from trialog.sandbox.bubblewrap import bench, cgroups, home, probing, spawn
from trialog.sandbox.bubblewrap.home import Home, Record, Rooted
from trialog.sandbox.bubblewrap.images import Images, check_network
from trialog.sandbox.bubblewrap.living import Living
from trialog.sandbox.bubblewrap.rooted import RootedSandbox
from trialog.sandbox.bubblewrap.sandbox import BubblewrapSandbox
from trialog.sandbox.bubblewrap.tools import Tools, capabilities, find_tools
from trialog.sandbox.errors import (
    ProviderUnavailableError,
    SandboxBusyError,
    SandboxGoneError,
    WorldError,
)
from trialog.sandbox.images import Image, ImageSpec, Recipe
from trialog.sandbox.owning import abandoned
from trialog.sandbox.provider import Capabilities, SandboxSpec, check_sandbox_id
from trialog.sandbox.rootfs import reading
from trialog.sandbox.rootfs import recipe as recipes
from trialog.sandbox.rootfs.guest import Defaults
from trialog.sandbox.rootfs.store import Stored
from trialog.sandbox.worlds.store import WorldStore

_Made = tuple[Home, subprocess.Popen[bytes], float]


class BubblewrapProvider:
    """Keeps worlds and sandboxes below one folder, which processes of one host may share.

    ``orphan_ttl_s`` is how long a world's sandbox outlives its worker, ``orphan_s`` the same for an
    image's: 0 ties its life to the worker's by the kernel; more lets a new worker ``attach`` or
    ``resume`` within that time. All sandboxes are started from one thread that lives as long as
    the provider, since bubblewrap dies with the *thread* that started it.
    """

    def __init__(
        self,
        root: Path,
        *,
        orphan_ttl_s: float = 0.0,
        orphan_s: float = 120.0,
        use_cgroups: bool = True,
    ) -> None:
        self._root = root
        self._orphan_ttl_s = orphan_ttl_s
        self._orphan_s = orphan_s
        self._use_cgroups = use_cgroups
        self._worlds = WorldStore(root / "worlds")
        self._run = root / "run"
        self._tools: Tools | None = None
        self._images: Images | None = None
        self._refused = ""
        self._sandboxes: dict[str, BubblewrapSandbox | RootedSandbox] = {}
        self._creating = weakref.WeakValueDictionary[str, asyncio.Lock]()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sandbox-spawner")

    async def probe(self) -> Capabilities:
        """Start a sandbox, look around in it, and say what is enforced; see the seam."""
        await probing.world(self, self._root)
        tools = self._find_tools()
        self._refused = await probing.image(self, tools.base)
        return capabilities(tools, self._refused)

    async def prepare(self, world_digest: str, tar_bytes: bytes) -> None:
        """Unpack a world once per host; see the seam."""
        await asyncio.to_thread(self._worlds.prepare, world_digest, tar_bytes)

    async def prepared(self, world_digest: str) -> bool:
        """Tell whether a world is unpacked here."""
        return self._worlds.path(world_digest) is not None

    async def create(self, sandbox_id: str, spec: SandboxSpec) -> BubblewrapSandbox:
        """Fork a world; see the seam."""
        made = await self._make(sandbox_id, spec.world_digest, partial(self._fork, spec))
        assert isinstance(made, BubblewrapSandbox)
        return made

    async def attach(self, sandbox_id: str) -> BubblewrapSandbox:
        """Return a living sandbox; see the seam."""
        async with self._one_at_a_time(sandbox_id):
            found = await self._attach(sandbox_id)
        if not isinstance(found, BubblewrapSandbox):
            raise SandboxBusyError(f"sandbox {sandbox_id} is not over a world")
        return found

    async def identify(self, recipe: Recipe) -> str:
        """Return the digest that a recipe's image has; see the seam."""
        return (await reading.in_thread(recipe.timeout_s, recipes.plan, recipe)).digest

    async def build(self, recipe: Recipe) -> Image:
        """Return a recipe's image; see the seam."""
        self._check_refused()
        return await self._find_images().build(recipe, self._open_bench)

    async def start(self, sandbox_id: str, spec: ImageSpec) -> RootedSandbox:
        """Start a sandbox from an image; see the seam."""
        self._check_refused()
        check_network(spec)
        stored = self._find_images().find(spec.image)
        made = await self._make(
            sandbox_id, spec.image, partial(self._root_in, spec, stored, self._orphan_s)
        )
        assert isinstance(made, RootedSandbox)
        if not spec.resumable:
            await made.end_soon_unless_saved()
        return made

    def _check_refused(self) -> None:
        if self._refused:
            raise ProviderUnavailableError(
                f"this host starts no sandboxes from images: {self._refused}"
            )

    async def resume(self, sandbox_id: str) -> RootedSandbox:
        """Return a living sandbox; see the seam."""
        async with self._one_at_a_time(sandbox_id):
            found = await self._attach(sandbox_id)
        if not isinstance(found, RootedSandbox):
            raise SandboxBusyError(f"sandbox {sandbox_id} is not from an image")
        return found

    async def sweep(self, live_ids: Iterable[str]) -> list[str]:
        """Remove what dead workers left; see the seam."""
        keep = {*live_ids, *self._sandboxes}
        return await asyncio.to_thread(self._sweep, keep)

    async def close(self) -> None:
        """Destroy what this provider holds, but for what may outlive it; end its thread."""
        for sandbox in list(self._sandboxes.values()):
            if isinstance(sandbox, RootedSandbox) and sandbox.outlives:
                sandbox.let_go()
            else:
                await sandbox.destroy()
        self._thread.shutdown()

    def _one_at_a_time(self, sandbox_id: str) -> asyncio.Lock:
        return self._creating.setdefault(check_sandbox_id(sandbox_id), asyncio.Lock())

    def _forget(self, sandbox: Living) -> None:
        if self._sandboxes.get(sandbox.sandbox_id) is sandbox:
            del self._sandboxes[sandbox.sandbox_id]

    async def _make(
        self, sandbox_id: str, content: str, start: Callable[[str], _Made]
    ) -> BubblewrapSandbox | RootedSandbox:
        """Return the sandbox of an id, started by a function in the spawner's thread if need be."""
        async with self._one_at_a_time(sandbox_id):
            try:
                known = await self._attach(sandbox_id)
            except SandboxGoneError:
                pass
            else:
                if known.content != content:
                    raise SandboxBusyError(f"sandbox {sandbox_id} exists over something else")
                return known
            loop = asyncio.get_running_loop()
            home, process, begun_at = await loop.run_in_executor(self._thread, start, sandbox_id)
            return await self._adopt(self._living(sandbox_id, home, process, begun_at))

    async def _open_bench(self, name: str, begun: Stored) -> RootedSandbox:
        """Start a sandbox that an image is built in; it dies with us, whatever ``orphan_s``."""
        spec = ImageSpec("", bench.LIMITS)
        loop = asyncio.get_running_loop()
        start = partial(self._root_in, spec, begun, 0.0)
        home, process, begun_at = await loop.run_in_executor(self._thread, start, name)
        made = RootedSandbox(name, home, process, self._forget, begun_at)
        made.max_entries = bench.MAX_ENTRIES
        try:
            await made.ready()
        except BaseException:  # also on cancellation nothing may stay behind
            await made.destroy()
            raise
        return made

    async def _attach(self, sandbox_id: str) -> BubblewrapSandbox | RootedSandbox:
        known = self._sandboxes.get(sandbox_id)
        if known is not None and not known.ended:
            return known
        if known is not None:
            await known.destroy()
        found = await asyncio.to_thread(Home.find, self._run / sandbox_id)
        return await self._adopt(self._living(sandbox_id, found, None, None))

    def _living(
        self,
        sandbox_id: str,
        found: Home,
        process: subprocess.Popen[bytes] | None,
        begun_at: float | None,
    ) -> BubblewrapSandbox | RootedSandbox:
        kind = RootedSandbox if found.record.rooted else BubblewrapSandbox
        return kind(sandbox_id, found, process, self._forget, begun_at)

    async def _adopt(
        self, sandbox: BubblewrapSandbox | RootedSandbox
    ) -> BubblewrapSandbox | RootedSandbox:
        """Wait until it answers and keep it; one that does not answer is removed."""
        try:
            await sandbox.ready()
        except BaseException:  # also on cancellation nothing may stay behind
            await sandbox.destroy()
            raise
        self._sandboxes[sandbox.sandbox_id] = sandbox
        return sandbox

    def _fork(self, spec: SandboxSpec, sandbox_id: str) -> _Made:
        """Start a sandbox over a world (blocking, in the spawner's thread)."""
        begun_at = time.perf_counter()
        tools = self._find_tools()
        world = self._worlds.path(spec.world_digest)
        if world is None:
            raise WorldError(f"world {spec.world_digest} is not prepared on this host")
        nonce = secrets.token_hex(8)
        record = Record(spec.world_digest, spec.limits, nonce, outlives=self._orphan_ttl_s > 0)
        with spawn.made(tools, self._run, sandbox_id, record) as home:
            process = spawn.over_world(tools, home, world, self._orphan_ttl_s)
        return home, process, begun_at

    def _root_in(self, spec: ImageSpec, stored: Stored, orphan_s: float, sandbox_id: str) -> _Made:
        """Start a sandbox from an image (blocking, in the spawner's thread)."""
        begun_at = time.perf_counter()
        tools, images = self._find_tools(), self._find_images()
        rooted = Rooted.of(stored.image, Defaults.of(stored.image, spec), tools.base)
        outlives = orphan_s > 0
        record = Record(
            spec.image, spec.limits, secrets.token_hex(8), outlives=outlives, rooted=rooted
        )
        with spawn.made(tools, self._run, sandbox_id, record) as home:
            images.fill(home, spec)
            process = spawn.in_root(tools, home, images.whole(home, stored), orphan_s)
        return home, process, begun_at

    def _find_tools(self) -> Tools:
        if self._tools is None:
            self._tools = find_tools(self._root, use_cgroups=self._use_cgroups)
        return self._tools

    def _find_images(self) -> Images:
        if self._images is None:
            self._images = Images(self._root, self._find_tools())
        return self._images

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
                if abandoned(path):
                    home.remove_tree(path)
                continue
            if left.record.rooted and left.record.outlives and left.alive():
                left.close()  # its time is not over: then it ends by itself
                continue
            left.kill()
            left.remove()
            removed.append(path.name)
        cgroups.sweep(self._find_tools().parents)
        self._find_images().sweep()
        return removed
