"""Images and sandboxes with an image's root: the part of the provider that runs tasks."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from trialog.sandbox.bubblewrap import whole
from trialog.sandbox.bubblewrap.bench import BuildBench
from trialog.sandbox.bubblewrap.home import Home
from trialog.sandbox.bubblewrap.rooted import RootedSandbox
from trialog.sandbox.bubblewrap.tools import Tools
from trialog.sandbox.errors import ImageError, ProviderUnavailableError
from trialog.sandbox.images import Image, ImageSpec, Recipe
from trialog.sandbox.rootfs import reading, state
from trialog.sandbox.rootfs import recipe as recipes
from trialog.sandbox.rootfs.bases import Base
from trialog.sandbox.rootfs.library import Library
from trialog.sandbox.rootfs.recipe import Plan, PlannedStage
from trialog.sandbox.rootfs.runner import Builder
from trialog.sandbox.rootfs.store import ImageStore, Stored

OpenSandbox = Callable[[str, Stored], Awaitable[RootedSandbox]]


class Images:
    """The images of a provider's folder."""

    def __init__(self, root: Path, tools: Tools) -> None:
        kind = "one" if tools.base is None else f"from-{tools.base}"
        self._store = ImageStore(root / f"images-{kind}", tools.base)
        self._library = Library(self._store)
        self._unpacking = asyncio.Lock()

    async def build(self, recipe: Recipe, open_sandbox: OpenSandbox) -> Image:
        """Return a recipe's image; see the seam. One process builds it, others wait for that."""
        plan = await reading.in_thread(recipe.timeout_s, recipes.plan, recipe)
        known = self._store.find(plan.digest)
        if known is not None:
            return known.image
        async with self._store.locked(f"image-{plan.digest}"):
            known = self._store.find(plan.digest)
            if known is None:
                made = await self._make(plan, open_sandbox)
                kept = replace(made, image=replace(made.image, digest=plan.digest))
                known = await asyncio.to_thread(self._store.keep, kept)
        return known.image

    async def _make(self, plan: Plan, open_sandbox: OpenSandbox) -> Stored:
        if plan.base is not None:
            return await self._base(plan.base, plan.recipe.timeout_s)
        opened = itertools.count()

        async def open_bench(begun: Stored) -> BuildBench:
            name = f"build-{plan.digest[:16]}-{next(opened)}-{secrets.token_hex(4)}"
            sandbox = await open_sandbox(name, begun)
            return BuildBench(sandbox, begun, self._store, name)

        async def base_of(stage: PlannedStage) -> Stored:
            assert not isinstance(stage.base, int)
            return await self._base(stage.base, plan.recipe.timeout_s)

        return await Builder(plan, open_bench).build(base_of)

    async def _base(self, base: Base, timeout_s: float) -> Stored:
        """One at a time: who waits for another's unpacking holds one of few threads meanwhile."""
        async with self._unpacking:
            return await reading.in_thread(timeout_s, self._library.base, base)

    def find(self, digest: str) -> Stored:
        """Return an image that is here. Raises ImageError."""
        stored = self._store.find(digest)
        if stored is None:
            raise ImageError(f"image {digest} is not built on this host")
        return stored

    def fill(self, home: Home, spec: ImageSpec) -> None:
        """Lay the saved states of a sandbox into its folder (blocking)."""
        state.unpack(spec.states, home.upper, base=self._store.base)

    def whole(self, home: Home, stored: Stored) -> whole.Whole:
        """Return what a sandbox's root is made of."""
        return whole.Whole(self._library.over(stored), home.overlay, stored.host)

    def sweep(self) -> None:
        """Remove what dead builders left."""
        self._store.sweep()


def check_network(spec: ImageSpec) -> None:
    """Refuse a network that this provider cannot give without sharing the host's."""
    if spec.network != "none":
        raise ProviderUnavailableError(
            "bubblewrap sandboxes have no network: a task that needs `network: public` runs with "
            "`provider: docker`"
        )
