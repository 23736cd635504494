"""The rubrics of the small server that follows the driver's API contract (support/fake_api.py)."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse
from trialog.driver.api.rubric_diff import differences
from trialog.proto.canonical import digest
from trialog.proto.rubric import BUILT_IN, Reference, Rubric, parse_reference


class FakeRubrics:
    """Rubrics in memory; ``page_size`` bounds every list."""

    def __init__(self) -> None:
        self.page_size = 100
        self.kept: dict[str, list[Rubric]] = {name: [one] for name, one in BUILT_IN.items()}
        self.router = APIRouter()
        self.router.add_api_route("/rubrics/{name}", self._put, methods=["PUT"])
        self.router.add_api_route("/rubrics", self._list)
        self.router.add_api_route("/rubrics/{name}", self._rubric)
        self.router.add_api_route("/rubrics/{name}/diff", self._diff)
        self.router.add_api_route("/rubrics/{name}/{version}", self._version)

    async def _put(self, request: Request, name: str) -> Response:
        if name in BUILT_IN:
            detail = f"{name} is built in and never changes: put yours under another name"
            return _problem(409, "Built-in rubric", detail)
        rubric = Rubric.model_validate_json(await request.body())
        versions = self.kept.setdefault(name, [])
        added = rubric not in versions
        if added:
            versions.append(rubric)
        number = versions.index(rubric) + 1
        what = {"added": added, "latest": len(versions)}
        where = {"Location": f"/rubrics/{name}/{number}"}
        return JSONResponse(self._whole(name, number) | what, 201 if added else 200, where)

    async def _list(self, cursor: str = "0", limit: int = 100) -> Any:
        lines = [
            self._line(name, len(versions))
            | {"scoring": versions[-1].scoring, "n_criteria": len(versions[-1].criteria)}
            for name, versions in sorted(self.kept.items())
        ]
        page, following = self._page(lines, cursor, limit)
        return {"rubrics": page, "next_cursor": following}

    async def _rubric(self, name: str, cursor: str = "0", limit: int = 100) -> Any:
        if name not in self.kept:
            return _unknown(name)
        numbers = range(len(self.kept[name]), 0, -1)
        page, following = self._page(
            [self._line(name, number) for number in numbers], cursor, limit
        )
        return {
            "name": name,
            "built_in": name in BUILT_IN,
            "latest": self._whole(name, numbers[0]),
            "versions": [
                {key: line[key] for key in ("version", "digest", "created_at")} for line in page
            ],
            "next_cursor": following,
        }

    async def _version(self, name: str, version: int) -> Any:
        if not 0 < version <= len(self.kept.get(name, [])):
            return _unknown(f"{name}@{version}")
        return self._whole(name, version)

    async def _diff(self, name: str, to: str, from_: int | None = Query(None, alias="from")) -> Any:
        sides = (Reference(name, from_), parse_reference(to))
        found = [(side.name, side.version or len(self.kept.get(side.name, []))) for side in sides]
        for other, number in found:
            if not 0 < number <= len(self.kept.get(other, [])):
                return _unknown(f"{other}@{number}")
        one, other = (self.kept[name][number - 1] for name, number in found)
        shown = [
            {key: self._line(*each)[key] for key in ("name", "version", "digest")} for each in found
        ]
        return {"from": shown[0], "to": shown[1]} | differences(one, other)

    def _line(self, name: str, number: int) -> dict[str, Any]:
        built_in = name in BUILT_IN
        return {
            "name": name,
            "version": number,
            "digest": digest(self.kept[name][number - 1].content()),
            "built_in": built_in,
            "created_at": None if built_in else "2026-11-30T12:00:00.000000+00:00",
        }

    def _whole(self, name: str, number: int) -> dict[str, Any]:
        rubric = self.kept[name][number - 1]
        return self._line(name, number) | {"rubric": rubric.model_dump(mode="json")}

    def _page(self, items: list[Any], cursor: str, limit: int) -> tuple[list[Any], str | None]:
        start = int(cursor)
        end = start + min(limit, self.page_size)
        return items[start:end], str(end) if end < len(items) else None


def _unknown(what: str) -> Response:
    return _problem(404, "No such rubric", f"rubric {what} is unknown")


def _problem(status: int, title: str, detail: str) -> Response:
    body = {"type": "about:blank", "title": title, "status": status, "detail": detail}
    return JSONResponse(body, status, media_type="application/problem+json")
