"""COPY and ADD: from the build context, an earlier stage, or the Dockerfile itself."""

from __future__ import annotations

import itertools
import posixpath
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

from trialog.sandbox.bubblewrap import wire
from trialog.sandbox.bubblewrap.wire import Listed, Put
from trialog.sandbox.errors import FileMissingError, FileRefusedError, ImageError
from trialog.sandbox.rootfs import transfer
from trialog.sandbox.rootfs.context import Context, Owner
from trialog.sandbox.rootfs.dockerfile import Instruction
from trialog.sandbox.rootfs.expansion import closing, words
from trialog.sandbox.rootfs.guest import Guest
from trialog.sandbox.rootfs.transfer import Ask

OpenStage = Callable[[str], Awaitable[tuple[Ask, Callable[[], Awaitable[None]]]]]
_REMOTE = re.compile(r"[a-z+]+://|git@", re.IGNORECASE)
_ARCHIVE = re.compile(r"\.(tar|tgz|tbz2?|txz|tar\.(gz|bz2|xz|zst))$")
_DOLLAR = re.compile(r"\\\$|\$\w+|\$\{")
_FLAGS = {"chown", "chmod", "from", "link"}  # link: how layers are made, not what is in them
_MAX_NAMES_BYTES = 4 << 20
_CHUNK_BYTES = 4 << 20


class Copier:
    """Copies into one stage's sandbox."""

    def __init__(self, guest: Guest, ask: Ask, context: Context, workdir: str) -> None:
        self._guest = guest
        self._ask = ask
        self._context = context
        self._workdir = workdir

    async def copy(
        self, each: Instruction, expanded: Callable[[str], str], open_stage: OpenStage
    ) -> None:
        """Do one COPY or ADD. Raises ImageError, FileRefusedError."""
        flags = dict(each.flags)
        for key in flags:
            if key not in _FLAGS:
                raise ImageError(f"--{key} is not supported")
        said = each.words() or words(each.text)
        *sources, target = [expanded(word) for word in said]
        if not sources:
            raise ImageError(f"{each.name} takes sources and a target")
        owner = await self._owner(flags, expanded)
        many = len(sources) > 1 or target.endswith("/")
        target = posixpath.join(self._workdir, target)
        if "from" in flags:
            ask, close = await open_stage(expanded(flags["from"]))
            try:
                await self._from_stage(ask, sources, target, owner, many)
            finally:
                await close()
            return
        heredocs = {f"<<{here.name}": here for here in each.heredocs}
        entries: list[Iterator[Put]] = []
        into_folder = many or await self._is_folder(target)
        for source in sources:
            mark = re.sub(r"^<<-?[\"']?(\w+)[\"']?$", r"<<\1", source)
            if mark in heredocs:
                here = heredocs[mark]
                text = here.text if here.literal else expanded_text(here.text, expanded)
                place = f"{target.rstrip('/')}/{here.name}" if into_folder else target
                mode = 0o644 if owner.mode is None else owner.mode
                entries.append(iter([Put("f", place, mode, text.encode(), owner.uid, owner.gid)]))
            else:
                entries += self._local(each, source, target, owner, into_folder)
        await transfer.put(self._ask, itertools.chain(*entries), follow=True)

    def _local(
        self, each: Instruction, source: str, target: str, owner: Owner, into_folder: bool
    ) -> list[Iterator[Put]]:
        if _REMOTE.match(source):
            raise ImageError(
                f"{each.name} of an address ({source}) is not supported: put the file "
                "beside the Dockerfile"
            )
        if each.name == "ADD" and _ARCHIVE.search(source):
            raise ImageError(f"ADD of an archive ({source}) is not supported: COPY it and RUN tar")
        found = self._context.find(source)
        entries: list[Iterator[Put]] = []
        for path in found:
            if self._context.is_folder(path):
                entries.append(iter([Put("m", target, 0o755, b"", owner.uid, owner.gid)]))
                entries.append(self._context.folder_entries(path, target, owner))
            else:
                name = path.rpartition("/")[2]
                inside = into_folder or len(found) > 1
                place = f"{target.rstrip('/')}/{name}" if inside else target
                entries.append(self._context.file_entries(path, place, owner))
        return entries

    async def _is_folder(self, target: str) -> bool:
        try:
            found, _ = wire.listing(target, await self._ask(wire.list_request(target, 1, ())))
        except FileMissingError:
            return False
        except FileRefusedError:
            return True  # a symlink, followed when it is written to
        return not (len(found) == 1 and not found[0].path)

    async def _owner(self, flags: dict[str, str], expanded: Callable[[str], str]) -> Owner:
        mode = None
        if "chmod" in flags:
            text = expanded(flags["chmod"])
            if not re.fullmatch(r"[0-7]{3,4}", text):
                raise ImageError(f"--chmod={text} is not an octal mode")
            mode = int(text, 8)
        if "chown" not in flags:
            return Owner(mode=mode)
        user, _, group = expanded(flags["chown"]).partition(":")
        uid = await self._id("/etc/passwd", user)
        return Owner(uid, await self._id("/etc/group", group) if group else uid, mode)

    async def _id(self, file: str, name: str) -> int:
        if name.isdigit():
            return int(name)
        try:
            text = (await self._guest.read(file, _MAX_NAMES_BYTES)).decode("utf-8", "replace")
        except FileMissingError:
            text = ""
        for line in text.splitlines():
            known, *rest = line.split(":")
            if known == name and len(rest) > 1 and rest[1].isdigit():
                return int(rest[1])
        raise ImageError(f"--chown: {name} is not in the image's {file}")

    async def _from_stage(
        self, ask: Ask, sources: list[str], target: str, owner: Owner, many: bool
    ) -> None:
        into_folder = many or await self._is_folder(target)
        for source in sources:
            path = posixpath.normpath(posixpath.join("/", source))
            async for batch in _taken(ask, path, target, owner, into_folder):
                await transfer.put(self._ask, iter(batch), follow=True)


async def _taken(
    ask: Ask, source: str, target: str, owner: Owner, into_folder: bool
) -> AsyncIterator[list[Put]]:
    """Yield what puts a stage's file or folder at a path, read there part by part."""
    limit = transfer.MAX_ENTRIES
    listed, cut = wire.listing(source, await ask(wire.list_request(source, limit, ())))
    if cut:
        raise ImageError(f"{source} has more than {limit} files")
    if not (len(listed) == 1 and not listed[0].path):
        yield [Put("m", target, 0o755, b"", owner.uid, owner.gid)]
    for entry in sorted(listed, key=lambda each: each.path):
        if entry.path:
            place, found = f"{target.rstrip('/')}/{entry.path}", f"{source}/{entry.path}"
        else:
            name = source.rpartition("/")[2]
            place, found = (f"{target.rstrip('/')}/{name}" if into_folder else target), source
        async for puts in _entry(ask, entry, found, place, owner):
            yield puts


async def _entry(
    ask: Ask, entry: Listed, found: str, place: str, owner: Owner
) -> AsyncIterator[list[Put]]:
    mode = entry.mode if owner.mode is None else owner.mode
    ids = owner.uid, owner.gid
    if entry.kind == "d":
        yield [Put("d", place, mode, b"", *ids)]
    elif entry.kind == "l":
        yield [Put("l", place, 0o777, entry.target, *ids)]
    elif entry.kind == "f":
        at = 0
        while True:
            body = await ask(wire.chunk_request(found, at, _CHUNK_BYTES))
            data = wire.file_bytes(found, body)
            yield [Put("a" if at else "f", place, mode, data, *ids)]
            at += len(data)
            if len(data) < _CHUNK_BYTES:
                return


def expanded_text(text: str, expanded: Callable[[str], str]) -> str:
    """Replace variables in a heredoc: its quotes are text like any other. Raises ImageError."""
    out: list[str] = []
    at = 0
    for match in _DOLLAR.finditer(text):
        if match.start() < at:
            continue  # within braces that were dealt with
        end = closing(text, match.end() - 1) + 1 if match[0] == "${" else match.end()
        out += [text[at : match.start()]]
        out += ["$" if match[0] == "\\$" else expanded(text[match.start() : end])]
        at = end
    return "".join([*out, text[at:]])
