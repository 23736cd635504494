"""Sandboxes by a Docker daemon of this host: one container each, with our own PID 1."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import secrets
import weakref
from collections.abc import Iterable
from pathlib import Path

from trialog.sandbox.docker import building, container, probe
from trialog.sandbox.docker import network as public
from trialog.sandbox.docker.daemon import Daemon, DaemonError
from trialog.sandbox.docker.disk import Disk, Upper, upper_of
from trialog.sandbox.docker.folder import PASSING, Folder, Record
from trialog.sandbox.docker.handover import Handover
from trialog.sandbox.docker.layers import Layers
from trialog.sandbox.docker.sandbox import DockerSandbox, remove
from trialog.sandbox.errors import SandboxBusyError, SandboxGoneError
from trialog.sandbox.images import Image, ImageSpec, Recipe
from trialog.sandbox.init import build as init
from trialog.sandbox.owning import abandoned, to_its_end
from trialog.sandbox.provider import Capabilities, check_sandbox_id
from trialog.sandbox.rootfs.guest import Defaults
from trialog.sandbox.trees import remove_tree

_BEGIN_TIMEOUT_S = 60.0


class DockerProvider:
    """Keeps one container for each sandbox, and a folder for it below ``root``, which processes of
    one host may share. ``address`` is the daemon's: ``unix://PATH``.

    ``orphan_ttl_s`` is how long a sandbox outlives its worker: its PID 1 ends when nobody was
    connected for that time, and the daemon removes the container then. Within that time a new
    worker can ``resume`` it. ``reads_layers`` False never touches the daemon's own folders, as a
    user who is not root may not.
    """

    def __init__(
        self,
        root: Path,
        *,
        address: str,
        orphan_ttl_s: float = 0.0,
        reads_layers: bool = True,
    ) -> None:
        self._root = root.absolute()
        self._run = self._root / "run"
        self._locks = self._root / "images"
        self.mark = hashlib.sha256(os.fsencode(self._root)).hexdigest()[:12]
        self._orphan_ttl_s = orphan_ttl_s
        self._reads_layers = reads_layers and os.geteuid() == 0
        self._daemon = Daemon(address)
        self._builder = building.Builder(self._daemon, self._locks)
        self._sandboxes: dict[str, DockerSandbox] = {}
        self._starting = weakref.WeakValueDictionary[str, asyncio.Lock]()

    async def probe(self) -> Capabilities:
        """Start a sandbox and say what the daemon can hold; see the seam."""
        await probe.try_out(self, f"probe-{os.getpid()}-{secrets.token_hex(4)}")
        info = await self._daemon.ask("GET", "/info")
        return probe.capabilities(
            info, reads_upper=self._reads_layers and info["Driver"] == "overlay2"
        )

    async def identify(self, recipe: Recipe) -> str:
        """Return the digest that the built image has; see the seam."""
        self._make_folders()
        return await self._builder.identify(recipe)

    async def build(self, recipe: Recipe) -> Image:
        """Return a recipe's image; see the seam."""
        self._make_folders()
        return await self._builder.build(recipe)

    async def start(self, sandbox_id: str, spec: ImageSpec) -> DockerSandbox:
        """Return a running sandbox; see the seam."""
        async with self._one_at_a_time(sandbox_id):
            with contextlib.suppress(SandboxGoneError):
                known = await self._resume(sandbox_id)
                if known.image.digest != spec.image:
                    raise SandboxBusyError(f"sandbox {sandbox_id} exists with another image")
                return known
            image = await self._builder.find(spec.image)
            self._make_folders()
            return await self._start(sandbox_id, spec, image)

    async def resume(self, sandbox_id: str) -> DockerSandbox:
        """Return a living sandbox; see the seam."""
        async with self._one_at_a_time(sandbox_id):
            return await self._resume(sandbox_id)

    async def sweep(self, live_ids: Iterable[str]) -> list[str]:
        """Remove what dead workers left; see the seam.

        A container whose worker died ends by itself when its time is over: what still runs has
        time left.
        """
        keep = {*live_ids, *self._sandboxes}
        containers = await self._containers()
        on_disk = {path.name for path in self._run.iterdir()} if self._run.is_dir() else set[str]()
        removed: list[str] = []
        for sandbox_id in sorted((on_disk | set(containers)) - keep):
            if await self._sweep(sandbox_id, containers.get(sandbox_id, "")):
                removed.append(sandbox_id)
        return removed

    async def _containers(self) -> dict[str, str]:
        """Return the state of this folder's containers by their sandbox's id."""
        label = f"{container.LABEL}root={self.mark}"
        params = {"all": "true", "filters": json.dumps({"label": [label]})}
        found = await self._daemon.ask("GET", "/containers/json", params=params)
        return {str(c["Labels"][container.LABEL + "sandbox"]): str(c["State"]) for c in found}

    async def _sweep(self, sandbox_id: str, state: str) -> bool:
        try:
            folder = Folder.find(self._run / sandbox_id)
        except SandboxBusyError:
            return False
        except SandboxGoneError:
            return await self._sweep_unlocked(sandbox_id, state)
        if state == "running":
            folder.close()
            return False
        await self._clear(folder)
        return True

    async def _sweep_unlocked(self, sandbox_id: str, state: str) -> bool:
        """Remove a container whose folder is gone, or a folder whose maker died at once."""
        if state:
            await remove(self._daemon, self._name(sandbox_id))
        path = self._run / sandbox_id
        if abandoned(path):
            await asyncio.to_thread(remove_tree, path)
        return bool(state)

    def _name(self, sandbox_id: str) -> str:
        return container.Owner(self.mark, sandbox_id, "").name

    async def close(self) -> None:
        """Destroy what this provider holds, but for what may outlive its worker."""
        for sandbox in list(self._sandboxes.values()):
            if self._orphan_ttl_s:
                sandbox.leave()
            else:
                await sandbox.destroy()
        await self._daemon.close()

    def _make_folders(self) -> None:
        for folder in (self._run, self._locks):
            folder.mkdir(parents=True, exist_ok=True)

    def _one_at_a_time(self, sandbox_id: str) -> asyncio.Lock:
        return self._starting.setdefault(check_sandbox_id(sandbox_id), asyncio.Lock())

    def _forget(self, sandbox: DockerSandbox) -> None:
        if self._sandboxes.get(sandbox.sandbox_id) is sandbox:
            del self._sandboxes[sandbox.sandbox_id]

    async def _resume(self, sandbox_id: str) -> DockerSandbox:
        known = self._sandboxes.get(sandbox_id)
        if known is not None and not known.ended:
            return known
        if known is not None:
            await known.destroy()
        folder = Folder.find(self._run / sandbox_id)
        record = folder.record()
        if record is None:
            await self._clear(folder)
            raise SandboxGoneError(f"sandbox {sandbox_id} was never finished")
        return await self._adopt(self._sandbox(sandbox_id, folder, record))

    def _sandbox(self, sandbox_id: str, folder: Folder, record: Record) -> DockerSandbox:
        disk = self._disk(record)
        return DockerSandbox(sandbox_id, folder, record, self._daemon, disk, self._forget)

    def _disk(self, record: Record) -> Disk:
        if record.upper:
            return Upper(Path(record.upper), record.limits.disk_bytes)
        return Layers(self._daemon, record.container, record.limits.disk_bytes)

    async def _adopt(self, sandbox: DockerSandbox, begin: ImageSpec | None = None) -> DockerSandbox:
        """Wait until it answers and keep it; one that does not answer is removed."""
        try:
            await sandbox.ready()
            if begin is not None:
                await sandbox.begin(begin.network, begin.states)
                if not begin.resumable:
                    await sandbox.end_soon_until_saved()
        except BaseException:  # also on cancellation nothing may stay behind
            await sandbox.destroy()
            raise
        self._sandboxes[sandbox.sandbox_id] = sandbox
        return sandbox

    async def _start(self, sandbox_id: str, spec: ImageSpec, image: Image) -> DockerSandbox:
        folder = Folder.new(self._run)
        owner = container.Owner(self.mark, sandbox_id, secrets.token_hex(8))
        try:
            folder.furnish(await asyncio.to_thread(init.ensure, self._root / "bin"))
            folder.settle(self._run / sandbox_id)
            record = await self._create(owner, spec, folder, image)
            if spec.states:
                await self._disk(record).before_start(spec.states)
            with Handover(folder) as handover:
                await self._begin(record.container, handover)
        except BaseException:  # whatever it was, leave nothing behind
            await asyncio.shield(self._clear(folder))
            raise
        return await self._adopt(self._sandbox(sandbox_id, folder, record), spec)

    async def _create(
        self, owner: container.Owner, spec: ImageSpec, folder: Folder, image: Image
    ) -> Record:
        network = await public.ensure(self._daemon) if spec.network == "public" else "none"
        tag = building.tag(spec.image)
        body = container.settings(owner, spec, tag, folder.inside, network, self._orphan_ttl_s)
        # Given up halfway, it would come to be after its removal.
        made = await to_its_end(
            self._daemon.ask("POST", "/containers/create", params={"name": owner.name}, body=body)
        )
        made_id = str(made["Id"])
        inspected = await self._daemon.ask("GET", f"/containers/{made_id}/json")
        upper = upper_of(inspected) if self._reads_layers else ""
        given = Defaults.of(image, spec)
        return Record(
            image, spec.limits, made_id, upper, dict(given.env), given.workdir, given.user
        )

    async def _begin(self, container_id: str, handover: Handover) -> None:
        """Start the container and give its PID 1 the socket.

        Raises SandboxGoneError when it ends before it asked.
        """
        path = f"/containers/{container_id}"
        giving = asyncio.ensure_future(handover.give())
        ending = asyncio.ensure_future(
            self._daemon.ask("POST", f"{path}/wait", params={"condition": "next-exit"})
        )
        try:
            await self._daemon.ask("POST", f"{path}/start")
            async with asyncio.timeout(_BEGIN_TIMEOUT_S):
                await asyncio.wait([giving, ending], return_when=asyncio.FIRST_COMPLETED)
            if not giving.done():
                code = ending.result()["StatusCode"]
                raise SandboxGoneError(f"the container ended at once (exit code {code})")
            giving.result()
        except (DaemonError, TimeoutError) as error:
            raise SandboxGoneError(f"the container does not start: {error}") from error
        finally:
            giving.cancel()
            ending.cancel()
            await asyncio.gather(giving, ending, return_exceptions=True)

    async def _clear(self, folder: Folder) -> None:
        """Remove a folder that we own and the container that is named for it."""
        if not folder.path.name.startswith(PASSING):
            await remove(self._daemon, self._name(folder.path.name))
        await asyncio.to_thread(folder.remove)
