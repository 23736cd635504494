"""The in-memory twin of an image provider: a dict of files and a small shell.

It keeps the seam's promises (stable ids, states, users by name, timeouts, limits of output) without
a process, so that trials can be tested anywhere. It isolates nothing and limits no resource.
"""

from __future__ import annotations

import asyncio
import base64
import fnmatch
import hashlib
import json
import posixpath
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trialog.sandbox.errors import (
    FileMissingError,
    FileRefusedError,
    ImageError,
    InvalidNameError,
    SandboxBusyError,
    SandboxGoneError,
    SnapshotRefusedError,
)
from trialog.sandbox.images import Image, ImageSpec, Pulled, Recipe, User
from trialog.sandbox.memory_build import PATH, CommandRun, build
from trialog.sandbox.memory_files import Node, Tree
from trialog.sandbox.provider import (
    DEFAULT_TIMEOUT_S,
    Capabilities,
    Enforcement,
    ExecResult,
    check_exec_id,
    check_sandbox_id,
    inside,
)
from trialog.sandbox.snapshot import Snapshot, SnapshotEntry

USERS = ("root", "nobody", "agent")
_MAX_ENTRIES = 100_000


class MemoryImageSandbox:
    """A sandbox whose files are a dict and whose processes are tasks."""

    def __init__(self, sandbox_id: str, image: Image, spec: ImageSpec, tree: Tree) -> None:
        self.sandbox_id = sandbox_id
        self.image = image
        self.spec = spec
        self.tree = tree
        self.ended = False
        self._runs: dict[str, asyncio.Task[ExecResult]] = {}
        self._alive: set[asyncio.Task[None]] = set()

    async def exec(
        self,
        exec_id: str,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        timeout_s: float = DEFAULT_TIMEOUT_S,
        output_limit_bytes: int | None = None,
        user: User | None = None,
    ) -> ExecResult:
        """Run a command of the small shell once per exec id."""
        self._check_alive()
        run = self._runs.get(check_exec_id(exec_id))
        if run is None:
            limit = self.spec.limits.output_bytes
            limit = limit if output_limit_bytes is None else min(limit, output_limit_bytes)
            shell = self._shell(cwd, env or {}, stdin, limit)
            work = self._run(shell, list(argv), timeout_s, user)
            run = self._runs[exec_id] = asyncio.ensure_future(work)
        try:
            return await asyncio.shield(run)
        except asyncio.CancelledError:
            if run.cancelled():
                raise SandboxGoneError(f"sandbox {self.sandbox_id} was destroyed") from None
            raise

    def _shell(
        self, cwd: str | None, env: Mapping[str, str], stdin: bytes, limit: int
    ) -> CommandRun:
        default = self.image.workdir if self.spec.workdir is None else self.spec.workdir
        variables = {"PATH": PATH, "HOME": "/root", **self.image.env, **self.spec.env, **env}
        return CommandRun(self.tree, default if cwd is None else cwd, variables, stdin, limit)

    async def _run(
        self, run: CommandRun, argv: list[str], timeout_s: float, user: User | None
    ) -> ExecResult:
        given = user if user is not None else self.spec.user
        who = self.image.user if given is None else given
        if isinstance(who, str) and who not in USERS and not who.isdigit():
            return ExecResult(126, stderr=f"no user {who}\n".encode())
        if not self.tree.is_dir(run.shell.cwd):
            return ExecResult(126, stderr=f"no folder {run.shell.cwd}\n".encode())
        children: set[asyncio.Task[None]] = set()

        def spawn(work: Coroutine[Any, Any, None]) -> None:
            child = asyncio.ensure_future(work)
            for group in (children, self._alive):
                group.add(child)
                child.add_done_callback(group.discard)

        run.shell.spawn = spawn
        try:
            async with asyncio.timeout(timeout_s):
                code = await run.shell.run(argv)
        except TimeoutError:
            for child in children:
                child.cancel()
            return run.result(-9, timed_out=True)
        except asyncio.CancelledError:
            if self.ended:
                raise
            return run.result(-9)
        return run.result(code)

    async def read(self, path: str, limit_bytes: int) -> bytes:
        """Return a file's bytes."""
        self._check_alive()
        full = _absolute(path)
        if self.tree.links_on_the_way(full):
            raise FileRefusedError(f"{path} leads over a link")
        if not self.tree.exists(full):
            raise FileMissingError(f"{path} does not exist")
        if self.tree.is_dir(full):
            raise FileRefusedError(f"{path} is a folder")
        data = self.tree.data(full)
        if len(data) > limit_bytes:
            raise FileRefusedError(f"{path} has {len(data)} bytes, above {limit_bytes}")
        return data

    async def write(self, path: str, data: bytes, mode: int = 0o644) -> None:
        """Put a file in place."""
        self._check_alive()
        full = _absolute(path)
        if self.tree.links_on_the_way(posixpath.dirname(full)) or self.tree.is_dir(full):
            raise FileRefusedError(f"{path} leads over a link, or is a folder")
        self.tree.remove(full)
        self.tree.put(full, data, mode)

    async def upload(self, source: Path, target: str) -> None:
        """Copy a folder's content into a folder."""
        self._check_alive()
        folder = _absolute(target)
        if self.tree.links_on_the_way(folder):
            raise FileRefusedError(f"{target} leads over a link")
        self.tree.mkdir(folder)
        _upload(source, self.tree, folder)

    async def download(
        self, source: str, target: Path, limit_bytes: int, exclude: Sequence[str] = ()
    ) -> Pulled:
        """Copy a file or folder out, as plain files."""
        self._check_alive()
        full = _absolute(source)
        if not self.tree.exists(full, follow=False):
            raise FileMissingError(f"{source} does not exist")
        if self.tree.links_on_the_way(full):
            raise FileRefusedError(f"{source} leads over a link")
        return _download(self.tree, full, target, limit_bytes, exclude)

    async def processes(self) -> int:
        """Return how many tasks go on."""
        self._check_alive()
        return len(self._alive) + sum(not run.done() for run in self._runs.values())

    async def kill_all(self) -> None:
        """Cancel everything that goes on."""
        self._check_alive()
        await self._cancel()

    async def _cancel(self) -> None:
        running: list[asyncio.Task[Any]] = [*self._alive]
        running += [run for run in self._runs.values() if not run.done()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def save(self, target: Path, limit_bytes: int) -> Snapshot:
        """Write what differs from the image, as JSON."""
        self._check_alive()
        changes = {
            path: node
            for path, node in self.tree.changes().items()
            if not path.startswith(("/run/", "/dev/"))
        }
        if sum(len(node.data) for node in changes.values() if node) > limit_bytes:
            raise SnapshotRefusedError(f"the state is above {limit_bytes} bytes")
        kept = json.dumps({path: _packed(changes[path]) for path in sorted(changes)})
        await asyncio.to_thread(target.write_text, kept)
        return Snapshot(tuple(_entry(path, changes[path]) for path in sorted(changes)))

    async def destroy(self) -> None:
        """End it."""
        if not self.ended:
            self.ended = True
            await self._cancel()

    def _check_alive(self) -> None:
        if self.ended:
            raise SandboxGoneError(f"sandbox {self.sandbox_id} was destroyed")


class MemoryImageProvider:
    """Keeps images and sandboxes in dicts. A second worker is whoever uses it next."""

    def __init__(self) -> None:
        self.sandboxes: dict[str, MemoryImageSandbox] = {}
        self.started: list[str] = []
        self.builds = 0
        self._images: dict[str, tuple[Image, dict[str, Node]]] = {}

    async def probe(self) -> Capabilities:
        """Say that nothing is enforced."""
        none = Enforcement.NONE
        return Capabilities("memory", none, none, none, none, none, ("a twin for tests",))

    async def identify(self, recipe: Recipe) -> str:
        """Return the digest of a recipe's content."""
        told: list[Any] = [recipe.docker_image, sorted(recipe.images.items())]
        for path in sorted(recipe.context.rglob("*")) if recipe.docker_image is None else ():
            if path.is_file():
                mode = path.stat().st_mode & 0o111
                content = hashlib.sha256(path.read_bytes()).hexdigest()
                told.append([str(path.relative_to(recipe.context)), mode, content])
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()

    async def build(self, recipe: Recipe) -> Image:
        """Run a Dockerfile's lines in the small shell."""
        digest = await self.identify(recipe)
        if digest not in self._images:
            self.builds += 1
            made = await build(digest, recipe)
            self._images[digest] = made
        return self._images[digest][0]

    async def start(self, sandbox_id: str, spec: ImageSpec) -> MemoryImageSandbox:
        """Return a sandbox; the same id gives the same one."""
        known = self.sandboxes.get(check_sandbox_id(sandbox_id))
        if known is not None and not known.ended:
            if known.spec.image != spec.image:
                raise SandboxBusyError(f"sandbox {sandbox_id} exists over another image")
            return known
        if spec.image not in self._images:
            raise ImageError(f"image {spec.image} is not built here")
        image, nodes = self._images[spec.image]
        tree = Tree(nodes)
        for state in spec.states:
            tree.apply(_read_state(state))
        made = self.sandboxes[sandbox_id] = MemoryImageSandbox(sandbox_id, image, spec, tree)
        self.started.append(sandbox_id)
        return made

    async def resume(self, sandbox_id: str) -> MemoryImageSandbox:
        """Return a living sandbox."""
        known = self.sandboxes.get(check_sandbox_id(sandbox_id))
        if known is None or known.ended:
            raise SandboxGoneError(f"there is no living sandbox {sandbox_id}")
        return known

    async def sweep(self, live_ids: Iterable[str]) -> list[str]:
        """Nothing outlives this process."""
        return []

    async def close(self) -> None:
        """Destroy all sandboxes."""
        for sandbox in self.sandboxes.values():
            await sandbox.destroy()

    @property
    def alive(self) -> list[str]:
        """The sandboxes that have not ended."""
        return [name for name, sandbox in self.sandboxes.items() if not sandbox.ended]


def _absolute(path: str) -> str:
    if not path.startswith("/"):
        raise InvalidNameError(f"path {path[:120]!r} is not absolute")
    return inside(path, "/")


def _upload(source: Path, tree: Tree, folder: str) -> None:
    for path in sorted(source.rglob("*")):
        place = posixpath.join(folder, path.relative_to(source).as_posix())
        if path.is_symlink():
            tree.link(place, str(path.readlink()))
        elif path.is_dir():
            tree.mkdir(place)
        else:
            tree.put(place, path.read_bytes(), path.stat().st_mode & 0o777)


def _download(
    tree: Tree, full: str, target: Path, limit_bytes: int, exclude: Sequence[str]
) -> Pulled:
    target.mkdir(parents=True, exist_ok=True)
    is_dir = tree.is_dir(full)
    home = full if is_dir else posixpath.dirname(full)
    files: list[str] = []
    refused: list[tuple[str, str]] = []
    for path in list(tree.below(full)) if is_dir else [full]:
        name, node = path[len(home.rstrip("/")) + 1 :], tree.nodes[path]
        if node.kind == "dir" or any(_excluded(name, pattern) for pattern in exclude):
            continue
        if node.kind == "symlink":
            refused.append((name, "a symlink"))
            continue
        if len(node.data) > limit_bytes:
            refused.append((name, "above the limit"))
            continue
        try:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (target / name).write_bytes(node.data)
        except OSError as error:
            refused.append((name, f"it cannot be kept: {error.strerror}"))
            continue
        limit_bytes -= len(node.data)
        (target / name).chmod(0o755 if node.mode & 0o100 else 0o644)
        files.append(name)
    return Pulled(tuple(files), tuple(refused), is_dir)


def _excluded(name: str, pattern: str) -> bool:
    parts = name.split("/")
    tails = ("/".join(parts[n:]) for n in range(len(parts)))
    heads = ["/".join(parts[: n + 1]) for n in range(len(parts))]
    return any(fnmatch.fnmatch(text, pattern) for text in (*tails, *heads, *parts))


def _packed(node: Node | None) -> list[Any] | None:
    return None if node is None else [node.kind, base64.b64encode(node.data).decode(), node.mode]


def _unpacked(packed: list[Any] | None) -> Node | None:
    return None if packed is None else Node(packed[0], base64.b64decode(packed[1]), packed[2])


def _read_state(path: Path) -> dict[str, Node | None]:
    try:
        changes = json.loads(path.read_text())
        return {name: _unpacked(packed) for name, packed in changes.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise ImageError(f"{path.name} is no state: {error}") from error


def _entry(path: str, node: Node | None) -> SnapshotEntry:
    name = path.lstrip("/")
    if node is None:
        return SnapshotEntry(name, "deleted")
    is_file = node.kind == "file"
    return SnapshotEntry(
        name,
        node.kind,
        len(node.data),
        is_file and bool(node.mode & 0o111),
        "" if node.kind == "dir" else hashlib.sha256(node.data).hexdigest(),
        node.data if is_file else None,
        mode=node.mode,
    )
