"""Archives of tasks: uploaded once, and named by what they hold."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import IO, ClassVar

from fastapi import Request, Response
from starlette.requests import ClientDisconnect

from trialog.driver.api import task_runs, task_sources
from trialog.driver.api.dependencies import ApiDependencies, Deps
from trialog.driver.api.problems import ProblemError
from trialog.driver.api.routing import BoundedRoute, answer, problems, router
from trialog.driver.api.task_schemas import TaskArchive
from trialog.proto.canonical import bytes_digest
from trialog.proto.tasks import manifest
from trialog.proto.tasks.check import Settings, Verdict, verdict_on
from trialog.proto.tasks.files import TaskProblem
from trialog.spine.blobs import BlobsUnavailableError
from trialog.spine.tasks.archives import ArchiveTooLargeError, Spool, tasks_in

PATH = "/task-archives"

_TITLE = "Invalid archive"
_KINDS = ("application/x-tar", "application/gzip", "application/octet-stream")
_STALLED_S = 20.0
_PIECE = 1 << 20


class UploadRoute(BoundedRoute):
    """A route whose body may take minutes to come."""

    patience: ClassVar[int] = 120


routes = router("runs", UploadRoute)

_BODY = {
    "requestBody": {
        "required": True,
        "description": "A tar, gzipped or not, of a task's folder or a folder of them.",
        "content": {kind: {"schema": {"type": "string", "format": "binary"}} for kind in _KINDS},
    }
}


@routes.put(
    PATH,
    operation_id="put_task_archive",
    summary="Upload tasks",
    response_model=TaskArchive,
    responses=problems(400, 413, 415, 422),
    openapi_extra=_BODY,
)
async def put_task_archive(request: Request, deps: Deps) -> Response:
    """Keep the tasks of an archive. The digest is of the tasks, whatever their order and times in
    the archive; give it as ``tasks.archive``. A task that cannot be read refuses all of them; one
    that no run could play under default settings says so."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in _KINDS:
        detail = f"the content type must be {' or '.join(_KINDS)}, not {kind or 'missing'}"
        raise ProblemError(415, "unsupported-media-type", "Unsupported media type", detail)
    # Who sends slowly holds up others that send, and nobody who asks for a run.
    async with deps.receiving_tasks:
        spool = Spool(deps.spool_folder, deps.max_archive_bytes)
        try:
            tar = await _spooled(request, spool, deps.max_archive_bytes)
            async with deps.reading_tasks:
                return answer(await _kept(deps, tar))
        except TaskProblem as problem:
            raise task_runs.unreadable("", problem, _TITLE) from None
        finally:
            spool.close()


async def _spooled(request: Request, spool: Spool, limit_bytes: int) -> IO[bytes]:
    piece = bytearray()
    try:
        pieces = request.stream()
        while (data := await asyncio.wait_for(anext(pieces, None), _STALLED_S)) is not None:
            piece += data
            if len(piece) >= _PIECE:
                await asyncio.to_thread(spool.write, bytes(piece))
                piece.clear()
        await asyncio.to_thread(spool.write, bytes(piece))
        return await asyncio.to_thread(spool.finish)
    except ArchiveTooLargeError:
        detail = f"unpacked it has more than {limit_bytes} bytes (TRIALOG_MAX_ARCHIVE_BYTES)"
        raise ProblemError(413, "too-large", "Archive too large", detail) from None
    except TimeoutError:
        detail = f"nothing came for {_STALLED_S:g} s"
        raise ProblemError(408, "request-timeout", "Upload stalled", detail) from None
    except ClientDisconnect:
        raise ProblemError(400, "cut-off", "Upload cut off") from None
    except OSError as error:
        raise BlobsUnavailableError(f"the upload cannot be spooled: {error}") from error


async def _kept(deps: ApiDependencies, tar: IO[bytes]) -> dict[str, object]:
    source = task_sources.from_thread(lambda: tasks_in(tar))
    found: list[Verdict] = []
    broken: dict[int, Verdict] = {}
    async for name, read in source():
        found.append(verdict_on(name, read, Settings()))
        if isinstance(read, TaskProblem):
            broken[len(found) - 1] = found[-1]
    task_runs.refuse(broken, _TITLE)
    tasks = await task_runs.keep(deps, source)
    encoded = manifest.encode(tasks)
    await deps.blobs.put(encoded)
    return {"archive": bytes_digest(encoded), "tasks": [asdict(one) for one in found]}
