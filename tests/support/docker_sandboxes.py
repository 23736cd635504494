"""Sandboxes of the docker provider for tests, and looking for what is left of them."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import AsyncGenerator
from pathlib import Path

from support import dockerd
from trialog.sandbox.docker.container import LABEL
from trialog.sandbox.docker.provider import DockerProvider
from trialog.sandbox.images import Image, ImageSandbox, ImageSpec, Recipe
from trialog.sandbox.provider import ExecResult


@contextlib.asynccontextmanager
async def docker_provider(
    root: Path, *, reads_layers: bool = True
) -> AsyncGenerator[DockerProvider]:
    """A provider of a folder; nothing may be left after it."""
    made = DockerProvider(root, address=dockerd.address(), reads_layers=reads_layers)
    yield made
    await made.close()
    assert states(root) == []
    assert folders(root) == []


def states(root: Path) -> list[str]:
    """Return the states of a folder's containers."""
    mark = hashlib.sha256(os.fsencode(root.absolute())).hexdigest()[:12]
    return dockerd.containers(f"{LABEL}root={mark}")


def folders(root: Path) -> list[str]:
    """Return the names of the folders of sandboxes."""
    run = root / "run"
    return sorted(path.name for path in run.iterdir()) if run.is_dir() else []


async def build(
    provider: DockerProvider, context: Path, dockerfile: str = f"FROM {dockerd.BASE}\n"
) -> Image:
    """Build an image from a Dockerfile's text and what else the folder holds."""
    context.mkdir(exist_ok=True)
    (context / "Dockerfile").write_text(dockerfile)
    return await provider.build(Recipe(context))


async def sandbox_of(
    provider: DockerProvider, tmp_path: Path, sandbox_id: str = "one", **spec: object
) -> ImageSandbox:
    """Start a sandbox from the bare base."""
    image = await build(provider, tmp_path / "bare")
    return await provider.start(sandbox_id, ImageSpec(image.digest, **spec))  # type: ignore[arg-type]


async def sh(
    sandbox: ImageSandbox, exec_id: str, script: str, timeout_s: float = 30, **options: object
) -> ExecResult:
    """Run a script."""
    argv = ["sh", "-c", script]
    return await sandbox.exec(exec_id, argv, timeout_s=timeout_s, **options)  # type: ignore[arg-type]
