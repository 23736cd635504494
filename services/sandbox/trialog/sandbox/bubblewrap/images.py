"""Images and sandboxes with an image's root: the part of the provider that runs tasks."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from trialog.sandbox.bubblewrap import whole
from trialog.sandbox.bubblewrap.home import Home
from trialog.sandbox.bubblewrap.tools import Tools
from trialog.sandbox.errors import ImageError, ProviderUnavailableError
from trialog.sandbox.images import Image, ImageSpec, Recipe
from trialog.sandbox.rootfs import recipe as recipes
from trialog.sandbox.rootfs import state
from trialog.sandbox.rootfs.library import Library
from trialog.sandbox.rootfs.store import ImageStore, Stored


class Images:
    """The images of a provider's folder."""

    def __init__(self, root: Path, tools: Tools) -> None:
        kind = "one" if tools.base is None else f"from-{tools.base}"
        self._store = ImageStore(root / f"images-{kind}", tools.base)
        self._library = Library(self._store)

    async def build(self, recipe: Recipe) -> Image:
        """Return a recipe's image; see the seam."""
        plan = await asyncio.to_thread(recipes.plan, recipe)
        known = self._store.find(plan.digest)
        if known is None:
            known = await asyncio.to_thread(self._from_base, plan)
        return known.image

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

    def _from_base(self, plan: recipes.Plan) -> Stored:
        assert plan.base is not None
        base = self._library.base(plan.base)
        return self._store.keep(replace(base, image=replace(base.image, digest=plan.digest)))


def check_network(spec: ImageSpec) -> None:
    """Refuse a network that this provider cannot give without sharing the host's."""
    if spec.network != "none":
        raise ProviderUnavailableError(
            "bubblewrap sandboxes have no network: a task that needs `network: public` runs with "
            "`provider: docker`"
        )
