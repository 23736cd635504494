"""Exports: trials as folders of the Harbor format, and as rows for training."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from typing import IO, Annotated, Any

import msgspec
from fastapi import Depends, Query, Request, Response
from fastapi.responses import StreamingResponse

from trialog.driver.api import export_schemas as schemas
from trialog.driver.api.dependencies import Reading
from trialog.driver.api.export_reader import ExportReader
from trialog.driver.api.problems import ProblemError
from trialog.driver.api.reader import TrialFilter, check_trial_id
from trialog.driver.api.routing import (
    Cursor,
    Limit,
    PatientRoute,
    RunId,
    TrialId,
    cursor_of,
    json_bytes,
    parts_of,
    problems,
    router,
)
from trialog.driver.api.steps import StepNumber
from trialog.driver.export import job
from trialog.driver.export.archive import Archive
from trialog.driver.export.folder import Exported, write_folder
from trialog.driver.export.rows import is_valid, row
from trialog.driver.views import TRIAL_ENDED, Doc

routes = router("exports", PatientRoute)

TAR = "application/x-tar"
_PAGE_BYTES = 4_000_000
_CHUNK = 1 << 16
_IN_MEMORY = 1 << 20


def _exports(request: Request) -> ExportReader:
    return request.app.state.exports


def _building(request: Request) -> asyncio.Semaphore:
    return request.app.state.building


Exports = Annotated[ExportReader, Depends(_exports)]
Building = Annotated[asyncio.Semaphore, Depends(_building)]

_ARCHIVE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "A tar archive of regular files.",
        "content": {TAR: {"schema": {"type": "string", "format": "binary"}}},
    }
}


@routes.get(
    "/runs/{run_id}/trials/{trial_id}/files",
    operation_id="export_trial",
    summary="Export a trial as a folder of the Harbor format",
    response_class=Response,
    responses=problems(404, 409) | _ARCHIVE,
)
async def export_trial(
    reader: Reading, exports: Exports, building: Building, run_id: RunId, trial_id: TrialId
) -> Response:
    """What harbor's own trial folders have, as far as it was kept: result.json (the last file),
    config.json, agent/, verifier/, artifacts/ or steps/NAME/ with them, and attempts/ with what
    failed before. Of an open trial there is none yet."""
    doc = await reader.trial(run_id, trial_id)
    if doc["state"] not in TRIAL_ENDED:
        detail = f"trial {run_id}/{trial_id} is {doc['state']}: ask again when it has ended"
        raise ProblemError(409, "trial-open", "The trial has not ended", detail)
    run = await exports.run(run_id)
    texts = await exports.task(run, trial_id)
    exported = Exported(run, doc, await exports.facts(doc), texts.config)
    out = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - closed when it is sent
    try:
        async with building:
            await write_folder(exported, exports.blobs, out)
    except BaseException:  # a cancellation too: nobody else closes it
        out.close()
        raise
    return _sent(out)


@routes.get(
    "/runs/{run_id}/files",
    operation_id="export_job",
    summary="Export what stands above the trials of a run",
    response_class=Response,
    responses=problems(404) | _ARCHIVE,
)
async def export_job(reader: Reading, exports: Exports, run_id: RunId) -> Response:
    """config.json and result.json of a Harbor job: the run as its trials are now."""
    doc = await reader.run(run_id)
    run = await exports.run(run_id)
    tally = await exports.tally(run)
    out = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - closed when it is sent
    archive = Archive(out, 0)
    archive.add_json(("config.json",), job.config(run))
    archive.add_json(("result.json",), job.result(run, doc, tally))
    archive.close()
    return _sent(out)


def _sent(out: IO[bytes]) -> Response:
    headers = {"Content-Length": str(out.tell()), "Cache-Control": "no-store"}
    out.seek(0)
    return StreamingResponse(_chunks(out), headers=headers, media_type=TAR)


def _chunks(out: IO[bytes]) -> Iterator[bytes]:
    with out:
        yield from iter(lambda: out.read(_CHUNK), b"")


@routes.get(
    "/runs/{run_id}/rows",
    operation_id="list_rows",
    summary="List a run's trials as rows for training",
    response_model=schemas.RowPage,
    responses=problems(404, 422),
)
async def list_rows(
    reader: Reading,
    exports: Exports,
    run_id: RunId,
    step: StepNumber = None,
    unscored: Annotated[
        bool, Query(alias="all", description="Also trials that ended without a verdict.")
    ] = False,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response:
    """A page of rows in order of the text of their trial ids; a page is shorter than asked for when
    its rows are large. Only trials that can be trained on, unless all are asked for."""
    after = ""
    if cursor is not None:
        (after,) = parts_of(cursor, 1)
        check_trial_id(after)
    run = await exports.run(run_id)
    wanted = TrialFilter(step, None if unscored else "judged", after)
    docs = await reader.trial_page(run_id, wanted, limit + 1)
    rows: list[bytes] = []
    room, last = _PAGE_BYTES, None
    for doc in docs[:limit]:
        last = doc
        if _is_row(doc, unscored):
            rows.append(msgspec.json.encode(row(run, await exports.tried(run, doc))))
            room -= len(rows[-1])
        if room < 0:
            break
    more = last is not None and last is not docs[-1]
    next_cursor = cursor_of(last["trial_id"]) if more and last is not None else None
    page = {"rows": [msgspec.Raw(one) for one in rows], "next_cursor": next_cursor}
    return json_bytes(msgspec.json.encode(page))


def _is_row(doc: Doc, unscored: bool) -> bool:
    return is_valid(doc) or (unscored and doc["state"] in TRIAL_ENDED)
