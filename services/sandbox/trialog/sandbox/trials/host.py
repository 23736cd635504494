"""What the trials of a worker share: providers, images known to be here, tasks, scratch folders."""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from trialog.proto.runspec import RunSpec
from trialog.sandbox.errors import ImageError, ProviderUnavailableError
from trialog.sandbox.images import Image, ImageProvider, ImageSandbox, ImageSpec, Network, Recipe
from trialog.sandbox.trials.plan import Place
from trialog.sandbox.trials.scratch import Scratch
from trialog.spine.blobs import BlobStore
from trialog.spine.tasks.store import OpenTask, TaskStore

_KNOWN_IMAGES = 1000
_LARGE_BYTES = 32 << 20
_NO_DAEMON = (
    "; start it with TRIALOG_DOCKER_HOST=unix:///var/run/docker.sock, which `trialog up` hands on"
)
_ImageKey = tuple[object, ...]


@dataclass(slots=True)
class Host:
    """One worker's means. ``agent_modules`` are patterns of modules to import agents from,
    ``image_roots`` the folders that a run's images may lie in."""

    providers: Mapping[str, ImageProvider]
    blobs: BlobStore
    tasks: TaskStore
    scratch: Scratch
    agent_modules: Sequence[str] = ()
    image_roots: Sequence[Path] = ()
    _images: OrderedDict[_ImageKey, Image] = field(default_factory=OrderedDict[_ImageKey, Image])
    # Starting is work for the processor: more at once than it has cores slow one another down.
    _turns: asyncio.Semaphore = field(
        default_factory=lambda: asyncio.Semaphore(max(1, (os.cpu_count() or 2) // 2))
    )

    def provider(self, spec: RunSpec) -> ImageProvider:
        """Return a run's provider. Raises ProviderUnavailableError."""
        found = self.providers.get(spec.provider)
        if found is None:
            known = ", ".join(sorted(self.providers)) or "none"
            mend = _NO_DAEMON if spec.provider == "docker" else ""
            raise ProviderUnavailableError(
                f"this worker runs no tasks under the provider {spec.provider}: it has {known}"
                f"{mend}"
            )
        return found

    async def open(self, blob: str) -> OpenTask:
        """Return a task by its blob. Raises TaskProblem, BlobMissingError."""
        return await self.tasks.open(blob, self.blobs.get)

    async def image(self, spec: RunSpec, place: Place) -> Image:
        """Return the image of a place, built here if it is not. Raises ImageError."""
        key = _key(spec, place)
        if key not in self._images:
            await asyncio.to_thread(_check_images, spec, self.image_roots)
            self._images[key] = await self.provider(spec).build(_recipe(spec, place))
            if len(self._images) > _KNOWN_IMAGES:
                self._images.popitem(last=False)
        return self._images[key]

    async def start(
        self,
        spec: RunSpec,
        sandbox_id: str,
        place: Place,
        network: Network,
        states: Sequence[Path] = (),
        *,
        resumable: bool = True,
    ) -> ImageSandbox:
        """Return a running sandbox of a place, over the states that were saved of another.

        An image that was here and is gone is built again. Raises ImageError, SandboxError.
        """
        try:
            return await self._start(spec, sandbox_id, place, network, states, resumable)
        except ImageError:
            if self._images.pop(_key(spec, place), None) is None:
                raise
            return await self._start(spec, sandbox_id, place, network, states, resumable)

    async def _start(
        self,
        spec: RunSpec,
        sandbox_id: str,
        place: Place,
        network: Network,
        states: Sequence[Path],
        resumable: bool,
    ) -> ImageSandbox:
        image = await self.image(spec, place)
        env, workdir = place.environment.env, place.environment.workdir
        made_of = ImageSpec(
            image.digest,
            place.limits,
            network,
            tuple(states),
            env,
            workdir,
            resumable=resumable,
        )
        # A large state is work for the disk, and others need not wait for it.
        is_large = bool(states) and await asyncio.to_thread(_size, states) > _LARGE_BYTES
        async with nullcontext() if is_large else self._turns:
            return await self.provider(spec).start(sandbox_id, made_of)


def _size(states: Sequence[Path]) -> int:
    return sum(state.stat().st_size for state in states)


def _check_images(spec: RunSpec, roots: Sequence[Path]) -> None:
    """Raise ImageError for an image outside the folders that this worker's operator named."""
    for name, source in spec.images.items():
        kind, _, path = source.partition(":")
        if kind == "host":
            continue
        real = Path(path).resolve()
        if not any(real.is_relative_to(root.resolve()) for root in roots):
            raise ImageError(
                f"the image {name} of this run is to come from {path}, which is in no folder that "
                "this worker takes images from: name one in TRIALOG_IMAGE_ROOTS"
            )


def _recipe(spec: RunSpec, place: Place) -> Recipe:
    return place.recipe(spec.images, spec.network)


def _key(spec: RunSpec, place: Place) -> _ImageKey:
    """A task's folder on this host is named by its digest, so a path stands for its content."""
    images = tuple(sorted(spec.images.items()))
    return spec.provider, place.context, place.docker_image, images, spec.network
