"""Providers of sandboxes with a whole root, each with an image, for the one suite of all of them.

A provider is a place: it comes with a recipe of an image that has a shell and the usual small
tools, and says whether it has several ids.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from support import dockerd
from support.docker_sandboxes import docker_provider
from trialog.sandbox.bubblewrap.provider import BubblewrapProvider
from trialog.sandbox.images import ImageProvider, ImageSandbox, ImageSpec, Recipe
from trialog.sandbox.memory_images import MemoryImageProvider
from trialog.sandbox.provider import ExecResult


@dataclass(frozen=True)
class Place:
    """A provider under test; ``recipe`` is of a small image, ``many_ids`` of several users."""

    provider: ImageProvider
    recipe: Recipe
    many_ids: bool
    scratch: Path

    async def start(self, name: str = "one", **spec: object) -> ImageSandbox:
        image = await self.provider.build(self.recipe)
        return await self.provider.start(name, ImageSpec(image.digest, **spec))  # type: ignore[arg-type]

    def folder(self, name: str) -> Path:
        made = self.scratch / name
        made.mkdir()
        return made


async def bubblewrap(tmp_path: Path, scratch: Path) -> AsyncIterator[Place]:
    provider = BubblewrapProvider(tmp_path / "provider", orphan_s=0)
    recipe = Recipe(scratch, None, docker_image="base", images={"base": "host"})
    notes = (await provider.probe()).notes
    yield Place(provider, recipe, not any("one id only" in note for note in notes), scratch)
    await provider.close()
    assert list((tmp_path / "provider/run").iterdir()) == []


async def docker(tmp_path: Path, scratch: Path) -> AsyncIterator[Place]:
    async with docker_provider(tmp_path / "provider") as provider:
        recipe = Recipe(scratch, None, docker_image=dockerd.BASE)
        yield Place(provider, recipe, True, scratch)


async def memory(tmp_path: Path, scratch: Path) -> AsyncIterator[Place]:
    provider = MemoryImageProvider()
    recipe = Recipe(scratch, None, docker_image="base", images={"base": "host"})
    yield Place(provider, recipe, False, scratch)
    await provider.close()


PLACES = {"memory": memory, "bubblewrap": bubblewrap, "docker": docker}
# What the twin has none of: programs that its shell does not know, users, processes that stop.
NEEDS_A_KERNEL = {
    "test_services_live_on_between_commands",
    "test_commands_of_other_users",
    "test_a_folder_goes_in_and_comes_out",
    "test_an_upload_lies_over_what_is_there",
    "test_downloads_are_bounded",
    "test_a_saved_state_is_started_from",
    "test_processes_stand_still_while_saved_and_go_on",
    "test_programs_that_start_programs_stand_still_too",
    "test_a_command_waits_for_the_save_under_way",
    "test_what_was_stopped_stays_so",
}


async def run(sandbox: ImageSandbox, exec_id: str, script: str, **options: object) -> ExecResult:
    return await sandbox.exec(exec_id, ["sh", "-c", script], **options)  # type: ignore[arg-type]


async def sh(sandbox: ImageSandbox, exec_id: str, script: str, **options: object) -> str:
    result = await run(sandbox, exec_id, script, **options)
    assert result.exit_code == 0, result
    return result.stdout.decode()
