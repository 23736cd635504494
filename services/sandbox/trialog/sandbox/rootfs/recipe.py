"""From a recipe to a plan: its stages, their bases, and the digest of all that counts."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from trialog.sandbox.errors import ImageError
from trialog.sandbox.images import Recipe
from trialog.sandbox.rootfs import bases
from trialog.sandbox.rootfs.bases import Base

_FORMAT = 1  # raised when the same recipe is to give another image


@dataclass(frozen=True, slots=True)
class Plan:
    """A recipe looked into. ``digest`` is of its content and its bases'."""

    recipe: Recipe
    digest: str
    base: Base | None = None


def plan(recipe: Recipe) -> Plan:
    """Look into a recipe without building anything (blocking). Raises ImageError."""
    if recipe.docker_image is not None:
        base = bases.resolve(recipe.docker_image, recipe.images)
        return Plan(recipe, _digest({"image": base.identity}), base)
    if recipe.dockerfile is None:
        raise ImageError("the task has neither a Dockerfile nor a docker_image")
    raise ImageError("Dockerfiles are not built yet")


def _digest(parts: dict[str, object]) -> str:
    text = json.dumps({"rootfs": _FORMAT, **parts}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
