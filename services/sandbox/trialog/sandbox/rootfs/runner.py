"""Running a Dockerfile's instructions, each stage in a sandbox of its own."""

from __future__ import annotations

import asyncio
import posixpath
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from trialog.sandbox.bubblewrap.wire import Put
from trialog.sandbox.errors import ImageError, SandboxError
from trialog.sandbox.images import Image
from trialog.sandbox.provider import ExecResult
from trialog.sandbox.rootfs.context import Context
from trialog.sandbox.rootfs.copying import Copier
from trialog.sandbox.rootfs.dockerfile import Heredoc, Instruction, without_heredocs
from trialog.sandbox.rootfs.expansion import Expansion, check_environment, pairs
from trialog.sandbox.rootfs.guest import PATH, Guest
from trialog.sandbox.rootfs.library import plain_user
from trialog.sandbox.rootfs.recipe import Plan, PlannedStage, stage_number
from trialog.sandbox.rootfs.store import Stored
from trialog.sandbox.rootfs.transfer import Ask, put

_SHELL = ("/bin/sh", "-c")
_SHOWN_BYTES = 4_000
_NO_NETWORK = (
    "\n(builds have no network under this provider: declare an image that holds what is needed, "
    "or run with `provider: docker`)"
)


class Bench(Protocol):
    """A sandbox that a stage is built in."""

    guest: Guest

    async def ask(self, request: bytes) -> bytes:
        """Send a request to PID 1."""
        ...

    async def finish(self, image: Image) -> Stored:
        """Stop it and return what it became: its image with what was written as a layer."""
        ...

    async def discard(self) -> None:
        """Remove it and all that was written; harmless after ``finish``."""
        ...


OpenBench = Callable[[Stored], Awaitable[Bench]]


@dataclass(frozen=True, slots=True)
class _Now:
    """Where a stage stands: what instructions have set so far."""

    env: dict[str, str]
    workdir: str
    user: str
    arguments: dict[str, str] = field(default_factory=dict[str, str])
    shell: tuple[str, ...] = _SHELL

    def variables(self) -> dict[str, str]:
        return {**self.arguments, **self.env}


class Builder:
    """One build of a plan, in benches that a provider opens over images."""

    def __init__(self, plan: Plan, open_bench: OpenBench) -> None:
        self._plan = plan
        self._open_bench = open_bench
        self._expansion = Expansion(plan.escape)
        self._context = Context(plan.recipe.context)
        self._deadline = time.monotonic() + plan.recipe.timeout_s
        self._done: dict[int, Stored] = {}

    async def build(self, base_of: Callable[[PlannedStage], Awaitable[Stored]]) -> Stored:
        """Build all stages and return the last. Raises ImageError naming the line."""
        for stage in self._plan.stages:
            begun = self._done[stage.base] if isinstance(stage.base, int) else await base_of(stage)
            self._done[stage.number] = await self._stage(stage, begun)
        return self._done[self._plan.stages[-1].number]

    async def _stage(self, stage: PlannedStage, begun: Stored) -> Stored:
        image = begun.image
        now = _Now(dict(image.env), image.workdir, str(image.user or ""))
        bench = await self._open_bench(begun)
        try:
            for at, each in enumerate(stage.instructions):
                await asyncio.sleep(0)  # thousands of ENV wait for nothing themselves
                try:
                    now = await self._do(bench, now, each, f"{stage.number}-{at}", stage.number)
                except (ImageError, SandboxError, OSError) as error:
                    shown = f"{each.name} {each.text}".splitlines()[0][:120]
                    raise ImageError(
                        f"{self._plan.recipe.dockerfile}, line {each.line}: {shown}: {error}"
                    ) from error
            made = Image(image.digest, now.env, now.workdir, plain_user(now.user))
            return await bench.finish(made)
        finally:
            await bench.discard()

    async def _do(self, bench: Bench, now: _Now, each: Instruction, name: str, number: int) -> _Now:
        match each.name:
            case "ENV":
                env = dict(now.env)
                for key, value in pairs(each.text, self._plan.escape):
                    env[key] = self._expanded(value, now)
                check_environment(env)
                return replace(now, env=env)
            case "ARG":
                return replace(now, arguments=self._declared(each, now))
            case "WORKDIR":
                workdir = posixpath.join(now.workdir, self._expanded(each.text, now))
                workdir = posixpath.normpath(workdir)
                await put(bench.ask, iter([Put("m", workdir)]), follow=True)
                return replace(now, workdir=workdir)
            case "USER":
                return replace(now, user=self._expanded(each.text, now))
            case "SHELL":
                words = each.words()
                if not words:
                    raise ImageError("SHELL takes a JSON list of words")
                return replace(now, shell=tuple(words))
            case "RUN":
                await self._run(bench, now, each, name)
            case "COPY" | "ADD":
                await self._copy(bench, now, each, number)
            case _:
                pass  # VOLUME: what is written there stays in the image
        return now

    def _expanded(self, text: str, now: _Now) -> str:
        return self._expansion.expand(text, now.variables())

    def _declared(self, each: Instruction, now: _Now) -> dict[str, str]:
        """A global argument's value counts from where the stage declares it."""
        arguments = dict(now.arguments)
        for word in each.text.split() if "=" not in each.text else ():
            if (value := (self._plan.arguments or {}).get(word)) is not None:
                arguments[word] = value
        if "=" in each.text:
            for key, value in pairs(each.text, self._plan.escape):
                arguments[key] = self._expanded(value, now)
        check_environment(arguments)
        return arguments

    async def _run(self, bench: Bench, now: _Now, each: Instruction, name: str) -> None:
        _check_flags(each)
        result = await bench.guest.exec(
            f"run-{name}",
            _argv(each, now.shell),
            cwd=now.workdir,
            env={"PATH": PATH, **now.variables()},
            user=now.user or 0,
            timeout_s=max(self._deadline - time.monotonic(), 0.001),
        )
        await bench.guest.kill_all()
        if result.timed_out:
            raise ImageError(f"the build took longer than {self._plan.recipe.timeout_s:g} s")
        if result.exit_code != 0:
            public = self._plan.recipe.network == "public"
            raise ImageError(_said(result) + (_NO_NETWORK if public else ""))

    async def _copy(self, bench: Bench, now: _Now, each: Instruction, number: int) -> None:
        if time.monotonic() > self._deadline:
            raise ImageError(f"the build took longer than {self._plan.recipe.timeout_s:g} s")
        copier = Copier(bench.guest, bench.ask, self._context, now.workdir)
        await copier.copy(
            each,
            lambda text: self._expanded(text, now),
            lambda name: self._stage_ask(name, number),
        )

    async def _stage_ask(self, name: str, below: int) -> tuple[Ask, Callable[[], Awaitable[None]]]:
        """Open an earlier stage's result to copy from; the second closes it again."""
        found = stage_number(name, self._plan.names or {}, below)
        if found is None or found not in self._done:
            raise ImageError(
                f"--from={name} is no earlier stage; another image is copied from by a stage of "
                f"its own (FROM {name} AS other)"
            )
        bench = await self._open_bench(self._done[found])
        return bench.ask, bench.discard


def _check_flags(each: Instruction) -> None:
    for key, value in each.flags:
        kinds = [part.removeprefix("type=") for part in value.split(",") if "type=" in part]
        kind = kinds[0] if kinds else "bind"
        if key == "mount" and kind not in ("cache", "tmpfs"):
            raise ImageError(f"RUN --mount=type={kind} is not supported: COPY what is needed")
        if (key == "network" and value == "host") or key == "security":
            raise ImageError(f"RUN --{key}={value} is not allowed")


def _argv(each: Instruction, shell: tuple[str, ...]) -> list[str]:
    words = each.words()
    if words is not None:
        return words
    match each.heredocs:
        case ():
            return [*shell, each.text]
        case (Heredoc(name, text, _),) if without_heredocs(each.text) == f"<<{name}":
            return _script(text, shell)
        case several:
            ends = "".join(f"{here.text}{here.name}\n" for here in several)
            # Tabs and quotes of the marks were dealt with when the file was read.
            marked = without_heredocs(each.text)
            for here in several:
                if here.literal:
                    marked = marked.replace(f"<<{here.name}", f"<<'{here.name}'")
            return [*shell, f"{marked}\n{ends}"]


def _script(text: str, shell: tuple[str, ...]) -> list[str]:
    """A text that names its own interpreter is run by it, as a file's would be."""
    if not text.startswith("#!"):
        return [*shell, text]
    interpreter = text.splitlines()[0].removeprefix("#!").split()
    return [
        "/bin/sh",
        "-c",
        'f=$(mktemp) && printf %s "$1" > "$f" && shift && "$@" "$f"; c=$?; rm -f "$f"; exit $c',
        "sh",
        text,
        *interpreter,
    ]


def _said(result: ExecResult) -> str:
    why = f"exit code {result.exit_code}"
    if result.limit is not None:
        why += f" (over the {result.limit} limit)"
    said = b"\n".join(filter(None, (result.stdout.strip(), result.stderr.strip())))
    tail = said[-_SHOWN_BYTES:].decode("utf-8", "replace")
    return f"{why}\n{tail}" if tail else why
