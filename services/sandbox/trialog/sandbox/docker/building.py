"""Images by content: a recipe's digest, and its image in the daemon under a tag of that digest."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import json
import re
import tempfile
import weakref
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trialog.sandbox.docker import bases, context, flat
from trialog.sandbox.docker.container import LABEL
from trialog.sandbox.docker.daemon import Daemon, DaemonError
from trialog.sandbox.docker.declared import Declared
from trialog.sandbox.errors import ImageError
from trialog.sandbox.images import Image, Recipe, User
from trialog.sandbox.rootfs import dockerfile
from trialog.sandbox.rootfs.bases import declared
from trialog.sandbox.rootfs.context import read_text

REPOSITORY = "trialog/task"
_FORMAT = 1  # raised when the same recipe shall give another image
_KEPT_OUTPUT_CHARS = 4_000
_PULL_TIMEOUT_S = 1_800.0
_LOCK_LOOK_S = 0.1
# The count is one more than the file's steps: our label is the last.
_STEP = re.compile(r"Step \d+/\d+ : (.*)", re.DOTALL)
_OWN_WORDS = (" ---> ", "Removing intermediate container")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def tag(digest: str) -> str:
    """Return the name that a built image has in the daemon."""
    return f"{REPOSITORY}:{digest}"


@dataclass(frozen=True, slots=True)
class _Plan:
    """A recipe looked into: its digest, and the name of a ready image or the Dockerfile's text with
    the daemon's names of its bases."""

    digest: str
    ready: str = ""
    text: str = ""


class Builder:
    """Builds recipes, each at most once for a daemon and a folder of locks."""

    def __init__(self, daemon: Daemon, locks: Path) -> None:
        self._daemon = daemon
        self._locks = locks
        self._declared = Declared(daemon)
        self._building = weakref.WeakValueDictionary[str, asyncio.Lock]()

    async def identify(self, recipe: Recipe) -> str:
        """Return the digest of a recipe; see the seam."""
        return (await self._plan(recipe)).digest

    async def build(self, recipe: Recipe) -> Image:
        """Return a recipe's image; see the seam."""
        plan = await self._plan(recipe)
        with contextlib.suppress(ImageError):
            return await self.find(plan.digest)
        ours = self._building.setdefault(plan.digest, asyncio.Lock())
        async with ours, _locked(self._locks / f"{plan.digest}.lock"):
            with contextlib.suppress(ImageError):
                return await self.find(plan.digest)
            if plan.ready:
                await self._name(plan)
            else:
                await self._make(recipe, plan)
            await flat.without_volumes(self._daemon, tag(plan.digest))
            return await self.find(plan.digest)

    async def find(self, digest: str) -> Image:
        """Return an image that was built. Raises ImageError when it was not, in this daemon."""
        found = await self._inspect(tag(digest))
        config = found["Config"] or {} if found else {}
        if found is None or config.get("Volumes"):  # with volumes it is not finished
            raise ImageError(f"image {digest} is not built in the Docker daemon")
        pairs = (text.partition("=") for text in config.get("Env") or ())
        return Image(
            digest,
            {name: value for name, _, value in pairs},
            config.get("WorkingDir") or "/",
            _user(config.get("User") or ""),
        )

    async def _plan(self, recipe: Recipe) -> _Plan:
        if recipe.docker_image is not None:
            name, identity = await self._base(recipe.docker_image, recipe)
            return _Plan(_digest({"image": identity}), ready=name)
        if recipe.dockerfile is None:
            raise ImageError("the task has neither a Dockerfile nor a docker_image")
        text = read_text(recipe.context, recipe.dockerfile)
        try:
            file = dockerfile.parse(text)
            found = bases.bases(file)
        except ImageError as error:
            raise ImageError(f"{recipe.dockerfile}: {error}") from error
        if recipe.network == "none" and (fetched := bases.fetches(file)):
            raise ImageError(
                f"{recipe.dockerfile} adds {fetched[0]} and the task may not use the network to "
                "build: put the file into the context, or allow `network: public`"
            )
        names: dict[str, str] = {}
        identities: list[str] = []
        for base in found:
            names[base.name], identity = await self._base(base.name, recipe)
            identities.append(identity)
        # The digest is of the names that the task wrote: those of imports are our own.
        content = await asyncio.to_thread(context.pack, recipe.context, recipe.dockerfile, text)
        parts = {"context": content, "dockerfile": recipe.dockerfile, "bases": identities}
        return _Plan(_digest(parts), text=bases.rebased(text, found, names))

    async def _base(self, name: str, recipe: Recipe) -> tuple[str, str]:
        """Return a base's name in the daemon and its identity, fetching it where that is allowed.

        The identity is of its layers and settings, not its id: an import's id tells its time.
        """
        if declared(name, recipe.images) is not None:
            name = await self._declared.name(name, dict(recipe.images), recipe.timeout_s)
        found = await self._inspect(name)
        if found is None:
            await self._pull(name, recipe)
            found = await self._inspect(name)
        if found is None:
            raise ImageError(f"image {name} was pulled and is not there")
        kept = ("Env", "Cmd", "Entrypoint", "User", "WorkingDir", "Shell", "OnBuild", "Volumes")
        config = found["Config"] or {}
        settings = {key: config[key] for key in kept if config.get(key)}
        layers = found["RootFS"].get("Layers") or []
        return name, _digest({"layers": layers, "settings": settings})

    async def _pull(self, name: str, recipe: Recipe) -> None:
        if recipe.network != "public":
            raise ImageError(
                f"image {name} is not in the Docker daemon and the task may not use the network to "
                f"build: run `docker pull {name}`, declare it in the run's `images`, or allow "
                "`network: public`"
            )
        repository, tagged = _split(name)
        params = {"fromImage": repository, "tag": tagged}
        try:
            async with asyncio.timeout(_PULL_TIMEOUT_S):
                await self._daemon.do("/images/create", params, b"")
        except DaemonError as error:
            raise ImageError(f"image {name} cannot be pulled: {error}") from error
        except TimeoutError:
            raise ImageError(f"image {name} was not pulled within {_PULL_TIMEOUT_S} s") from None

    async def _name(self, plan: _Plan) -> None:
        repository, _, tagged = tag(plan.digest).partition(":")
        params = {"repo": repository, "tag": tagged}
        await self._daemon.ask("POST", f"/images/{plan.ready}/tag", params=params)

    async def _make(self, recipe: Recipe, plan: _Plan) -> None:
        name = recipe.dockerfile or ""
        params = {
            "t": tag(plan.digest),
            "dockerfile": name,
            "networkmode": "none" if recipe.network == "none" else "default",
            "rm": "true",
            "forcerm": "true",
            "version": "1",
            "labels": json.dumps({LABEL + "image": plan.digest}),
        }
        said = _Said()
        try:
            with tempfile.TemporaryFile(dir=self._locks) as archive:
                await asyncio.to_thread(context.pack, recipe.context, name, plan.text, archive)
                async with asyncio.timeout(recipe.timeout_s):
                    body = context.chunks(archive)
                    async for message in self._daemon.lines("/build", params=params, content=body):
                        said.take(message)
        except DaemonError as error:
            raise ImageError(f"{name}: {error}") from error
        except TimeoutError:
            why = f"it took longer than {recipe.timeout_s:g} s"
            raise ImageError(said.told(name, why)) from None
        if said.error:
            raise ImageError(said.told(name, said.error))

    async def _inspect(self, name: str) -> dict[str, Any] | None:
        try:
            return await self._daemon.ask("GET", f"/images/{name}/json")
        except DaemonError as error:
            if error.status == 404:
                return None
            raise ImageError(f"image {name}: {error}") from error


class _Said:
    """What a build said: its last step, the end of its output, its error."""

    def __init__(self) -> None:
        self.step = ""
        self.output = ""
        self.error = ""

    def take(self, message: dict[str, Any]) -> None:
        text = _COLOUR.sub("", str(message.get("stream", "")))
        if step := _STEP.fullmatch(text.strip()):
            self.step, self.output = step[1], ""
        elif not text.startswith(_OWN_WORDS):
            self.output = (self.output + text)[-_KEPT_OUTPUT_CHARS:]
        if "error" in message:
            self.error = str(message["error"])

    def told(self, name: str, why: str) -> str:
        said = self.output.strip()
        return f"{name}: {self.step or 'before the first step'}: {why}" + (said and f"\n{said}")


def _user(text: str) -> User:
    """A group beside the user is left out: the user's own is taken."""
    name = text.partition(":")[0] or "0"
    return int(name) if name.isdigit() else name


def _split(name: str) -> tuple[str, str]:
    """Part a reference into repository and tag or digest."""
    if "@" in name:
        repository, _, digest = name.partition("@")
        return repository, digest
    head, colon, last = name.rpartition(":")
    return (head, last) if colon and "/" not in last else (name, "latest")


def _digest(parts: dict[str, Any]) -> str:
    text = json.dumps({"docker": _FORMAT, **parts}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


@contextlib.asynccontextmanager
async def _locked(path: Path) -> AsyncGenerator[None]:
    """Hold a lock among all processes of this host that share the folder.

    It is asked for now and then: threads that wait for it would be missing to who holds it.
    """
    with path.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(_LOCK_LOOK_S)
        yield
