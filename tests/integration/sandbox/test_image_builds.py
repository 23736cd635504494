"""Images built from a Dockerfile, over the host's programs and over a real root filesystem."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.rootfs import layer, oci_layout, programs, rootfs_tar
from trialog.sandbox.bubblewrap.provider import BubblewrapProvider
from trialog.sandbox.errors import ImageError
from trialog.sandbox.images import Image, ImageSpec, Recipe
from trialog.sandbox.provider import ExecResult

ONE_ID = "one id only"
INSTRUCTIONS = """# syntax=docker/dockerfile:1
ARG BASE=base
FROM ${BASE} AS only
ARG VERSION=1.2
ENV NAME=value OTHER="two words" \\
    # a comment within
    PLUS=${NAME:+no}$VERSION
LABEL a=b
WORKDIR /srv
WORKDIR app
COPY app .
COPY app/sub/data app/run.sh /usr-files/
COPY --chmod=640 app/sub/data /opt/renamed
COPY *.pyc app/run.s? /globbed/
ADD app/run.sh /bin-tools/
RUN ./run.sh > out && \\
    echo "$VERSION $OTHER" >> out
RUN ["sh", "-c", "echo exec form >> out"]
RUN <<EOF
echo heredoc >> out
EOF
RUN cat <<'A' <<B >> out
not taken
A
$OTHER
B
COPY <<EOF /etc/motd
it is $NAME
EOF
COPY <<'EOF' /etc/literal
it is $NAME
EOF
USER 0
EXPOSE 80
CMD ["nothing"]
"""


class Shop:
    """A provider and a folder whose Dockerfile is built by it."""

    def __init__(self, provider: BubblewrapProvider, context: Path, many_ids: bool) -> None:
        self.provider = provider
        self.context = context
        self.many_ids = many_ids
        self._count = 0
        self.images = {"base": "host"}

    def recipe(self, dockerfile: str, **options: object) -> Recipe:
        (self.context / "Dockerfile").write_text(dockerfile)
        return Recipe(self.context, images=self.images, **options)  # type: ignore[arg-type]

    async def build(self, dockerfile: str, **options: object) -> Image:
        return await self.provider.build(self.recipe(dockerfile, **options))

    async def run(self, image: Image, script: str) -> ExecResult:
        self._count += 1
        sandbox = await self.provider.start(f"s{self._count}", ImageSpec(image.digest))
        try:
            return await sandbox.exec("1", ["sh", "-c", script])
        finally:
            await sandbox.destroy()

    def kept(self) -> list[str]:
        """What the store has: images and layers."""
        root = self.context.parent / "p"
        found = [*root.glob("images-*/images/*"), *root.glob("images-*/layers/*")]
        return sorted(path.name for path in found if not path.name.startswith("host-"))

    async def said(self, dockerfile: str, script: str) -> str:
        result = await self.run(await self.build(dockerfile), script)
        assert result.exit_code == 0, result
        return result.stdout.decode()


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Shop]:
    context = tmp_path / "context"
    context.mkdir()
    provider = BubblewrapProvider(tmp_path / "p", orphan_s=0)
    notes = (await provider.probe()).notes
    yield Shop(provider, context, not any(ONE_ID in note for note in notes))
    await provider.close()
    assert list((tmp_path / "p/run").iterdir()) == []
    assert not list((tmp_path / "p").glob("images-*/layers/.new-*"))


async def test_the_instructions(shop: Shop) -> None:
    (shop.context / "app/sub").mkdir(parents=True)
    (shop.context / "app/run.sh").write_text("#!/bin/sh\necho ran\n")
    (shop.context / "app/run.sh").chmod(0o755)
    (shop.context / "app/sub/data").write_text("data")
    (shop.context / "app/link").symlink_to("sub/data")
    (shop.context / "skip.pyc").write_text("")
    (shop.context / ".dockerignore").write_text("*.pyc\n")
    with pytest.raises(ImageError, match=r"line 14: COPY.*\*\.pyc is not in the build context"):
        await shop.build(INSTRUCTIONS)
    image = await shop.build(INSTRUCTIONS.replace("*.pyc ", ""))
    assert (image.workdir, image.user) == ("/srv/app", 0)
    assert (image.env["NAME"], image.env["PLUS"]) == ("value", "1.2")
    look = (
        "pwd; cat out; cat sub/data link; stat -c %a /opt/renamed run.sh; ls /usr-files /globbed;"
        "cat /etc/motd /etc/literal; readlink link; echo $OTHER; ls /bin-tools"
    )
    assert (await shop.run(image, look)).stdout.decode().split("\n") == [
        "/srv/app", "ran", "1.2 two words", "exec form", "heredoc", "two words",
        "datadata640", "755", "/globbed:", "run.sh", "", "/usr-files:", "data", "run.sh",
        "it is value", "it is $NAME", "sub/data", "two words", "run.sh", "",
    ]  # fmt: skip


async def test_users_of_the_image(shop: Shop) -> None:
    if not shop.many_ids:
        pytest.skip("one id only")
    (shop.context / "f").write_text("f")
    image = await shop.build(
        "FROM base\nRUN useradd -m -u 1500 worker\nCOPY --chown=worker:worker f /home/worker/f\n"
        "COPY --chown=7:8 f /seven\nUSER worker\nWORKDIR /home/worker\nRUN id -un > made\n"
    )
    assert image.user == "worker"
    look = "id -u; cat made; stat -c '%U %g' f; stat -c '%u %g' /seven; echo $HOME"
    assert (await shop.run(image, look)).stdout.split(b"\n")[:-1] == [
        b"1500", b"worker", b"worker 1500", b"7 8", b"/home/worker",
    ]  # fmt: skip


async def test_stages(shop: Shop) -> None:
    said = await shop.said(
        "FROM base AS unused\nRUN exit 1\n"
        "FROM base AS build\nRUN mkdir -p /out/d && echo made > /out/d/f && chmod 750 /out/d/f "
        "&& ln -s f /out/d/l && rm -r /srv\n"
        "FROM build AS more\nRUN echo more > /out/more\n"
        "FROM base\nCOPY --from=more /out /got\nCOPY --from=1 /out/d/f /one\nRUN test -d /srv\n",
        "cd /got; cat d/f d/l more /one; stat -c %a d/f; readlink d/l",
    )
    assert said.split() == ["made", "made", "more", "made", "750", "f"]


async def test_a_digest_follows_what_counts(shop: Shop) -> None:
    (shop.context / "f").write_text("f")

    async def digest(text: str) -> str:
        return await shop.provider.identify(shop.recipe(text))

    first = await digest("FROM base\nCOPY f /\nCMD x\n")
    assert first == await digest("FROM base\nCOPY f /\nCMD x\n")
    assert first != await digest("FROM base\nCOPY f /g\n")
    (shop.context / "f").write_text("g")
    assert first != await digest("FROM base\nCOPY f /\n")
    without = await digest("FROM base\nRUN true\n")
    (shop.context / "f").write_text("h")
    assert without == await digest("# comment\nFROM base\n\nRUN true\nCMD y\n")
    (shop.context / "f").chmod(0o755)
    assert first != await digest("FROM base\nCOPY f /\n")


REFUSED = {
    "FROM other\n": r"Dockerfile: line 1: image 'other' is not declared.*images",
    "FROM base\nRUN echo before; echo why >&2; exit 3\n": r"line 2: RUN .*exit code 3\nbefore\nwhy",
    "FROM base\nNONSENSE x\n": r"line 2: NONSENSE is not a known",
    "RUN true\n": r"line 1: RUN stands before any FROM",
    "": "no FROM",
    "FROM base\n\nADD https://example.invalid/x /x\n": r"line 3: ADD .*address",
    "FROM base\nADD x.tar.gz /x\n": r"ADD of an archive",
    "FROM base\nCOPY ../../etc/passwd /x\n": r"leads out of the build context",
    "FROM base\nCOPY outside/passwd /x\n": r"not in the build context",
    "FROM base\nCOPY --from=nobody /x /y\n": r"--from=nobody is no earlier stage",
    "FROM base\nRUN --mount=type=secret,id=x true\n": r"type=secret is not supported",
    "FROM base\nRUN --network=host true\n": r"not allowed",
    "FROM base\nRUN <<END\ntrue\n": r"no end",
    "FROM base\nENV x ${y?z}\n": r"line 2: ENV .*not a form",
}


@pytest.mark.parametrize("dockerfile", REFUSED)
async def test_what_cannot_be_built_is_said_with_its_line(shop: Shop, dockerfile: str) -> None:
    (shop.context / "outside").symlink_to("/etc")
    kept = shop.kept()
    with pytest.raises(ImageError, match=f"(?s){REFUSED[dockerfile]}"):
        await shop.build(dockerfile)
    assert shop.kept() == kept


async def test_a_build_ends_in_its_time(shop: Shop) -> None:
    with pytest.raises(ImageError, match=r"longer than 0\.5 s"):
        await shop.build("FROM base\nRUN sleep 1000\n", timeout_s=0.5)


async def test_what_a_step_started_ends_with_it(shop: Shop) -> None:
    said = await shop.said(
        "FROM base\nRUN (while :; do date >> /beat; done) & until [ -s /beat ]; do :; done\n"
        "RUN cp /beat /was; sleep 0.1; cmp /beat /was\n",
        "echo built",
    )
    assert said == "built\n"


async def test_builds_have_no_network_and_nothing_of_the_host(shop: Shop) -> None:
    said = await shop.said(
        "FROM base\nRUN cat /proc/net/dev > /dev-seen; ls -a / > /seen; env > /env\n",
        "cat /dev-seen /seen /env",
    )
    assert "eth" not in said
    assert "boot" not in said.split()
    assert "VIRTUAL_ENV" not in said


async def test_one_recipe_is_built_once(shop: Shop, tmp_path: Path) -> None:
    recipe = shop.recipe("FROM base\nRUN head -c 16 /dev/urandom | od > /drawn\n")
    others = [BubblewrapProvider(tmp_path / "p", orphan_s=0) for _ in range(2)]
    made = await asyncio.gather(*(each.build(recipe) for each in (shop.provider, *others)))
    assert len({image.digest for image in made}) == 1
    layers = [path.name for path in (tmp_path / "p").glob("images-*/layers/build-*")]
    assert len(layers) == 1
    for each in others:
        await each.close()


async def test_a_root_filesystem_of_its_own(shop: Shop, tmp_path: Path) -> None:
    """No program of the host is in it, and its devices are not unpacked."""
    shop.images = {"docker.io/library/tiny:latest": f"tar:{rootfs_tar(tmp_path / 'tiny.tar.gz')}"}
    image = await shop.build(
        "FROM tiny\nRUN rm /etc/removed && echo 1 > /made\nCOPY Dockerfile /bin/\n"
    )
    seen = await shop.run(image, "ls /bin/ /etc; cat /made /etc/hosts; ls -l /etc/hard")
    text = seen.stdout.decode()
    assert seen.exit_code == 0, seen
    for expected in ("Dockerfile", "kept", "1\n", "localhost", " 2 "):
        assert expected in text
    for hidden in ("removed", "python3", "disk"):
        assert hidden not in text


HOSTILE = {"up": "../escaped", "down and up": "a/../../escaped", "link": "etc/out/escaped"}


@pytest.mark.parametrize("way", HOSTILE)
async def test_an_archive_cannot_leave_its_folder(shop: Shop, tmp_path: Path, way: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    made = rootfs_tar(tmp_path / "bad.tar", {HOSTILE[way]: b"x"}, links={"etc/out": str(outside)})
    shop.images = {"bad": f"tar:{made}"}
    with pytest.raises(ImageError, match=r"leads out of the image|cannot be unpacked"):
        await shop.build("FROM bad\n")
    assert list(outside.iterdir()) == []
    assert not list(tmp_path.rglob("escaped"))


@pytest.mark.parametrize("content", [b"", b"no archive", b"\x1f\x8b broken"])
async def test_a_broken_archive_is_named(shop: Shop, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "broken.tar").write_bytes(content)
    shop.images = {"bad": f"tar:{tmp_path / 'broken.tar'}"}
    with pytest.raises(ImageError, match=r"broken\.tar"):
        await shop.build("FROM bad\n")


@pytest.mark.parametrize("source", ["tar:/none.tar", "oci:/none", "ftp:x", "tar:"])
async def test_a_source_that_is_none_is_named(shop: Shop, source: str) -> None:
    shop.images = {"bad": source}
    with pytest.raises(ImageError, match=source.partition(":")[2] or source):
        await shop.build("FROM bad\n")


def tiny_layers() -> list[bytes]:
    files = {"data/a": b"a", "data/b": b"b", "shut/x": b"x", "lib-of/old": b"old"}
    return [
        layer({**programs(), **files}),
        layer({"data/.wh.a": b"", "shut/.wh..wh..opq": b"", "shut/new": b"new", ".wh.lib-of": b""}),
        layer({"lib-of": None, "lib-of/fresh": b"fresh", "data/b": b"b2"}),
    ]


async def test_an_image_layout(shop: Shop, tmp_path: Path) -> None:
    """Deletions of a layer, whole folders that it hides, and its configuration."""
    config = {"Env": ["PATH=/usr/bin", "WHO=layout"], "WorkingDir": "/data", "User": "0:0"}
    layout = oci_layout(tmp_path / "layout", tiny_layers(), config)
    shop.images = {"tiny:1": f"oci:{layout}:latest", "again": f"oci:{layout}"}
    image = await shop.build("FROM tiny:1\n")
    assert (image.workdir, image.env["WHO"]) == ("/data", "layout")
    seen = await shop.provider.start("one", ImageSpec(image.digest))
    listed = await seen.exec("1", ["/usr/bin/ls", "/data", "/shut", "/lib-of"])
    assert listed.stdout.decode().split() == [
        "/data:", "b", "/lib-of:", "fresh", "/shut:", "new",
    ]  # fmt: skip
    assert await seen.read("/data/b", 10) == b"b2"
    assert (await shop.build("FROM again\n")).workdir == "/data"


async def test_a_layout_that_was_changed_is_refused(shop: Shop, tmp_path: Path) -> None:
    layout = oci_layout(tmp_path / "layout", tiny_layers(), {})
    shop.images = {"tiny": f"oci:{layout}", "other": f"oci:{layout}:other"}
    with pytest.raises(ImageError, match=r"tags there: latest"):
        await shop.build("FROM other\n")
    largest = max((layout / "blobs/sha256").iterdir(), key=lambda path: path.stat().st_size)
    largest.write_bytes(largest.read_bytes() + b"x")
    with pytest.raises(ImageError, match="not what its name says"):
        await shop.build("FROM tiny\n")
