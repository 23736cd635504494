"""Images of the docker provider: built once by content, and what is said when they cannot be."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support import dockerd
from support.docker_sandboxes import build, docker_provider, sh
from support.rootfs import layer, oci_layout, programs, rootfs_tar
from support.waiting import until
from trialog.sandbox.docker.building import tag
from trialog.sandbox.docker.declared import REPOSITORY
from trialog.sandbox.docker.provider import DockerProvider
from trialog.sandbox.errors import ImageError
from trialog.sandbox.images import ImageSpec, Recipe

pytestmark = dockerd.MARKS
BASE = f"FROM {dockerd.BASE}\n"


@pytest.fixture
async def provider(tmp_path: Path) -> AsyncIterator[DockerProvider]:
    async with docker_provider(tmp_path / "root") as made:
        yield made


@pytest.fixture
def context(tmp_path: Path) -> Path:
    folder = tmp_path / "context"
    (folder / "data").mkdir(parents=True)
    (folder / "data/a.txt").write_text("alpha\n")
    return folder


def times_built(digest: str, since: float) -> int:
    """How often the daemon gave an image its name, from a time to now."""
    asked = {"since": f"{since:.9f}", "until": f"{time.time():.9f}"}
    events = dockerd.ask("GET", "/events", params={**asked, "filters": '{"event": ["tag"]}'})
    return events.text.count(f'"name":"{tag(digest)}"')


async def test_what_the_dockerfile_says_is_what_commands_get(
    provider: DockerProvider, context: Path
) -> None:
    text = (
        BASE + "RUN useradd -m -u 1234 worker && echo made > /made\n"
        "ENV GREETING=hello NAME='a b'\nWORKDIR /work\nCOPY data/ data/\nUSER worker\n"
        'ENTRYPOINT ["/bin/false"]\nHEALTHCHECK CMD touch /never\n'
    )
    image = await build(provider, context, text)
    assert (image.workdir, image.user) == ("/work", "worker")
    assert image.env["GREETING"] == "hello" and image.env["NAME"] == "a b"
    sandbox = await provider.start("one", ImageSpec(image.digest))
    script = 'cat data/a.txt /made; pwd; id -un; echo "$GREETING $NAME $HOME"'
    said = (await sh(sandbox, "1", script)).stdout.decode()
    assert said == "alpha\nmade\n/work\nworker\nhello a b /home/worker\n"
    assert (await sh(sandbox, "2", "id -un", user="root")).stdout == b"root\n"
    assert (await sh(sandbox, "3", "id -u", user=4321)).stdout == b"4321\n"
    unknown = await sh(sandbox, "4", "id", user="nobody-of-that-name")
    assert unknown.exit_code == 126 and b"nobody-of-that-name" in unknown.stderr


async def test_a_recipe_is_built_once_by_content(provider: DockerProvider, context: Path) -> None:
    text = BASE + "COPY data /data\nRUN head -c 16 /dev/urandom > /random\n"
    text += f"# {os.urandom(8).hex()}: never built before\n"
    (context / "Dockerfile").write_text(text)
    recipe, begun = Recipe(context), time.time()
    identified = await provider.identify(recipe)
    # More at once than there are threads to wait in.
    built = await asyncio.gather(*(provider.build(recipe) for _ in range(40)))
    assert {image.digest for image in built} == {identified}
    assert times_built(identified, begun) == 1
    os.utime(context / "data/a.txt", (1, 1))
    assert (await provider.build(replace(recipe, timeout_s=5))).digest == identified
    assert times_built(identified, begun) == 1
    (context / "data/a.txt").write_text("beta\n")
    assert await provider.identify(recipe) != identified


async def test_another_base_is_another_image(provider: DockerProvider, context: Path) -> None:
    name = f"trialog-test:{os.getpid()}"
    digests: list[str] = []
    try:
        for value in ("1", "2"):
            dockerd.docker(
                "build", "-q", "-t", name, "--build-arg", f"V={value}", str(_base(context, value))
            )
            (context / "Dockerfile").write_text(f"FROM {name}\nCOPY data /data\n")
            digests.append(await provider.identify(Recipe(context)))
    finally:
        dockerd.docker("rmi", "-f", name)
    assert digests[0] != digests[1]


def _base(context: Path, value: str) -> Path:
    folder = context.with_name(f"base-{value}")
    folder.mkdir()
    (folder / "Dockerfile").write_text(BASE + f"ENV V={value}\n")
    return folder


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            BASE + "RUN echo about to fail && exit 7\n",
            r"Dockerfile: RUN echo.*code: 7\nabout to fail$",
        ),
        (BASE + "COPY nothing /\n", r"Dockerfile: COPY nothing /: .*nothing"),
        (BASE + "NONSENSE\n", r"Dockerfile: line 2: NONSENSE is not a known instruction"),
        ("FROM no.such/image:1\n", r"docker pull no.such/image:1.*network: public"),
        (BASE + "ADD https://127.0.0.1/x /\n", r"adds https://127.0.0.1/x"),
        ("RUN true\n", r"Dockerfile: line 1: RUN stands before any FROM"),
    ],
)
async def test_a_build_that_fails_says_at_which_step(
    provider: DockerProvider, context: Path, text: str, said: str
) -> None:
    with pytest.raises(ImageError, match=f"(?s){said}"):
        await build(provider, context, text)


async def test_a_base_is_pulled_only_where_that_is_allowed(
    provider: DockerProvider, context: Path
) -> None:
    (context / "Dockerfile").write_text("FROM 127.0.0.1:1/nobody/here:1\n")
    with pytest.raises(ImageError, match="docker pull 127"):
        await provider.build(Recipe(context))
    with pytest.raises(ImageError, match=r"cannot be pulled: .*refused"):
        await provider.build(Recipe(context, network="public"))


async def test_a_build_over_its_time_is_ended(provider: DockerProvider, context: Path) -> None:
    (context / "Dockerfile").write_text(BASE + "RUN sleep 1000 # of this test\n")
    with pytest.raises(ImageError, match=r"RUN sleep 1000.*longer than 1 s"):
        await provider.build(Recipe(context, timeout_s=1))
    await _gone("sleep 1000 # of this test")


async def _gone(command: str) -> None:
    """The daemon ends what it ran for a client that left, a moment later."""
    running = ("ps", "--no-trunc", "--format", "{{.Command}}")
    await asyncio.to_thread(until, lambda: command not in dockerd.docker(*running))


async def test_a_build_has_no_network(provider: DockerProvider, context: Path) -> None:
    image = await build(provider, context, BASE + "RUN cat /proc/net/dev > /seen\n")
    sandbox = await provider.start("one", ImageSpec(image.digest))
    seen = (await sandbox.read("/seen", 10_000)).decode()
    assert [line.split(":")[0].strip() for line in seen.splitlines() if ":" in line] == ["lo"]


async def test_a_ready_image_by_name(provider: DockerProvider, context: Path) -> None:
    recipe = Recipe(context, dockerfile=None, docker_image=dockerd.BASE)
    image = await provider.build(recipe)
    assert image.digest == await provider.identify(recipe)
    sandbox = await provider.start("one", ImageSpec(image.digest))
    assert (await sh(sandbox, "1", "echo $PATH")).stdout.startswith(b"/usr/local/sbin")
    with pytest.raises(ImageError, match="neither"):
        await provider.identify(replace(recipe, docker_image=None))


@pytest.fixture
def only_here() -> Iterator[None]:
    """Remove the bases that a test imported."""
    before = set(imported())
    yield
    for name in set(imported()) - before:
        dockerd.docker("rmi", "-f", name)


def imported() -> list[str]:
    return dockerd.docker("images", "--format", "{{.Repository}}:{{.Tag}}", REPOSITORY).split()


@pytest.mark.usefixtures("only_here")
async def test_a_base_that_the_run_declares(provider: DockerProvider, context: Path) -> None:
    """Under its own name: what the daemon has under the Dockerfile's name stays as it is."""
    source = rootfs_tar(context.parent / "rootfs.tar.gz", {"declared": b"by the run"})
    recipe = Recipe(context, images={dockerd.BASE: f"tar:{source}"})
    base = dockerd.docker("image", "inspect", "-f", "{{.Id}}", dockerd.BASE)
    (context / "Dockerfile").write_text(BASE + "RUN cp /declared /copied\n")
    built = await provider.build(recipe)
    sandbox = await provider.start("one", ImageSpec(built.digest))
    assert await sandbox.read("/copied", 100) == b"by the run"
    assert dockerd.docker("image", "inspect", "-f", "{{.Id}}", dockerd.BASE) == base
    with pytest.raises(ImageError, match=r"'host'.*tar:PATH"):
        await provider.build(replace(recipe, images={dockerd.BASE: "host"}))
    with pytest.raises(ImageError, match="nowhere"):
        await provider.build(replace(recipe, images={dockerd.BASE: "tar:/nowhere"}))
    (context.parent / "broken.tar").write_bytes(b"no archive" * 100)
    with pytest.raises(ImageError, match=r"broken\.tar cannot be imported"):
        await provider.build(
            replace(recipe, images={dockerd.BASE: f"tar:{context.parent / 'broken.tar'}"})
        )


@pytest.mark.usefixtures("only_here")
async def test_a_base_in_an_image_layout(provider: DockerProvider, context: Path) -> None:
    layers = [layer({**programs(), "a": b"a", "b": b"b"}), layer({".wh.a": b"", "c": b"c"})]
    config = {"Env": ["PATH=/usr/bin", "WHO=layout"], "WorkingDir": "/usr", "User": "7:8"}
    layout = oci_layout(context.parent / "layout", layers, config)
    recipe = Recipe(context, None, docker_image="x/y:1", images={"x/y:1": f"oci:{layout}:latest"})
    image = await provider.build(recipe)
    assert (image.env["WHO"], image.workdir, image.user) == ("layout", "/usr", 7)
    sandbox = await provider.start("one", ImageSpec(image.digest))
    assert (await sandbox.exec("1", ["sh", "-c", "cd / && cat b c; id -u; ls a"])).exit_code != 0
    assert (await sandbox.exec("2", ["sh", "-c", "cd / && cat b c; id -u"])).stdout == b"bc7\n"


async def test_two_workers_build_once(context: Path, tmp_path: Path) -> None:
    text = BASE + f"RUN echo {os.urandom(8).hex()} && sleep 0.3 && date +%N > /when\n"
    (context / "Dockerfile").write_text(text)
    async with docker_provider(tmp_path / "root") as one, docker_provider(tmp_path / "root") as two:
        begun = time.time()
        images = await asyncio.gather(one.build(Recipe(context)), two.build(Recipe(context)))
    assert images[0] == images[1]
    assert times_built(images[0].digest, begun) == 1
