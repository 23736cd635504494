"""What the fake driver keeps of uploaded tasks."""

from __future__ import annotations

import hashlib
import io
import tarfile
from typing import Any

from fastapi import APIRouter, Request


class FakeTasks:
    """PUT /task-archives: remembers every body; each is named by its digest."""

    def __init__(self) -> None:
        self.archives: list[bytes] = []
        self.router = APIRouter()
        self.router.add_api_route("/task-archives", self._put, methods=["PUT"])

    async def _put(self, request: Request) -> Any:
        body = await request.body()
        assert int(request.headers["content-length"]) == len(body)
        self.archives.append(body)
        sound = {"runs": True, "reason": "", "mend": "", "warnings": []}
        tasks = [{"task": name} | sound for name in sorted({one for one, _ in names(body)})]
        return {"archive": hashlib.sha256(body).hexdigest(), "tasks": tasks}


def names(archive: bytes) -> set[tuple[str, str]]:
    """Return the files of an archive: the task's folder and the path in it."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        files = [member.name for member in opened if member.isreg()]
    return {(name.partition("/")[0], name.partition("/")[2]) for name in files}
