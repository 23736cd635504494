"""Rubrics over HTTP: versions that never change, however many put them, and what differs."""

from __future__ import annotations

import asyncio
import json
import math
import os
from collections.abc import AsyncGenerator
from typing import Any

import asyncpg
import httpx
import pytest
from support.api import serve_api
from support.stack import StackThread
from trialog.driver.api import rubric_schemas as shapes
from trialog.driver.api import schemas
from trialog.proto.rubric import BUILT_IN, MAX_BYTES, Rubric
from trialog.spine.blobs import PostgresBlobs
from trialog.spine.database import connect
from trialog.spine.postgres.log import PostgresLog

JSON = {"Content-Type": "application/json"}


@pytest.fixture
def name() -> str:
    """A name that nobody has used."""
    return f"t{os.urandom(6).hex()}"


def criteria(*weights: float) -> list[dict[str, Any]]:
    return [{"name": f"c{n}", "weight": weight} for n, weight in enumerate(weights)]


async def put(api: httpx.AsyncClient, name: str, **rubric: Any) -> shapes.RubricPut:
    answer = await api.put(f"/rubrics/{name}", json=rubric)
    assert answer.status_code in (200, 201), answer.text
    shown = shapes.RubricPut.model_validate_json(answer.text)
    assert answer.headers["location"] == f"/rubrics/{name}/{shown.version}"
    read = await api.get(answer.headers["location"])
    assert read.json() | {"latest": shown.latest, "added": shown.added} == answer.json()
    assert shown.added is (answer.status_code == 201)
    return shown


async def test_new_content_is_the_next_version_and_the_same_is_the_same(
    api: httpx.AsyncClient, name: str
) -> None:
    first = await put(api, name, criteria=criteria(1.0))
    second = await put(api, name, criteria=criteria(2.0))
    assert (first.version, first.latest, second.version) == (1, 1, 2)
    for body in (
        {"criteria": criteria(1)},
        {"name": name, "criteria": criteria(1.0), "scoring": "per_criterion"},
        {"criteria": [{"scale": [0, 1], "prompt": None, "weight": 1, "name": "c0"}]},
    ):
        answer = await api.put(f"/rubrics/{name}", json=body)
        again = shapes.RubricPut.model_validate_json(answer.text)
        assert (answer.status_code, again.added) == (200, False)
        assert (again.version, again.latest) == (1, 2)
        assert (again.digest, again.created_at) == (first.digest, first.created_at)
    assert first.rubric == Rubric.model_validate({"name": name, "criteria": criteria(1.0)})


async def test_a_checks_declared_version_and_the_order_are_content_too(
    api: httpx.AsyncClient, name: str
) -> None:
    check = {"name": "right", "check": "correct"}
    bodies = [[check], [check | {"version": "2"}], criteria(1, 1), criteria(1, 1)[::-1]]
    made = [(await put(api, name, criteria=body)).version for body in bodies]
    assert made == [1, 2, 3, 4]


async def test_a_rubric_is_read_with_all_its_versions(api: httpx.AsyncClient, name: str) -> None:
    for weight in range(1, 6):
        await put(api, name, criteria=criteria(weight))
    seen: list[int] = []
    params: dict[str, Any] = {"limit": 2}
    while True:
        answer = await api.get(f"/rubrics/{name}", params=params)
        page = shapes.RubricVersions.model_validate_json(answer.text)
        assert (page.latest.version, page.built_in) == (5, False)
        assert page.latest.rubric.weights == {"c0": 5.0}
        seen += [one.version for one in page.versions]
        if page.next_cursor is None:
            break
        params["cursor"] = page.next_cursor
    assert seen == [5, 4, 3, 2, 1]
    latest = await api.get(f"/rubrics/{name}/latest")
    assert latest.json() == answer.json()["latest"]


async def test_rubrics_are_listed_by_name_in_pages(api: httpx.AsyncClient, name: str) -> None:
    names = [f"{name}-{letter}" for letter in "abc"]
    for each in names:
        await put(api, each, criteria=criteria(1))
        await put(api, each, criteria=criteria(1, 2), scoring="holistic")
    seen: list[shapes.RubricLine] = []
    params: dict[str, Any] = {"limit": 2}
    while True:
        answer = await api.get("/rubrics", params=params)
        page = shapes.RubricPage.model_validate_json(answer.text)
        assert 1 <= len(page.rubrics) <= 2
        seen += page.rubrics
        if page.next_cursor is None:
            break
        params["cursor"] = page.next_cursor
    assert [one.name for one in seen] == sorted({one.name for one in seen})
    kept = [one for one in seen if one.name in names]
    assert [one.name for one in kept] == names
    assert {(one.version, one.scoring, one.n_criteria, one.built_in) for one in kept} == {
        (2, "holistic", 2, False)
    }
    built_in = {one.name: one for one in seen if one.built_in}
    assert set(built_in) == set(BUILT_IN)
    assert {(one.version, one.created_at) for one in built_in.values()} == {(1, None)}


@pytest.mark.parametrize("built_in", BUILT_IN)
async def test_what_is_built_in_is_shown_and_never_changed(
    api: httpx.AsyncClient, built_in: str
) -> None:
    page = shapes.RubricVersions.model_validate_json((await api.get(f"/rubrics/{built_in}")).text)
    assert (page.built_in, [one.version for one in page.versions]) == (True, [1])
    assert page.latest.rubric == BUILT_IN[built_in]
    for body in ({"criteria": criteria(1)}, BUILT_IN[built_in].content()):
        answer = await api.put(f"/rubrics/{built_in}", json=body)
        problem = schemas.Problem.model_validate(answer.json())
        assert (answer.status_code, problem.errors[0].field) == (409, "name")
        assert "under another name" in problem.detail
    assert (await api.get(f"/rubrics/{built_in}/2")).status_code == 404


async def test_many_puts_at_once_never_give_one_version_twice(
    log: PostgresLog, blobs: PostgresBlobs, name: str
) -> None:
    """Of two drivers, each content four times: one version each, without a gap."""
    contents = [{"criteria": criteria(weight)} for weight in range(1, 9)]
    async with serve_api(log, blobs, None) as one, serve_api(log, blobs, None) as other:
        answers = await asyncio.gather(
            *(
                served.client.put(f"/rubrics/{name}", json=content)
                for content in contents
                for served in (one, other)
                for _ in range(2)
            )
        )
    by_content: dict[float, set[int]] = {}
    made = 0
    for answer in answers:
        assert answer.status_code in (200, 201), answer.text
        made += answer.status_code == 201
        shown = shapes.RubricPut.model_validate_json(answer.text)
        by_content.setdefault(shown.rubric.weights["c0"], set()).add(shown.version)
    assert made == len(contents)
    assert all(len(versions) == 1 for versions in by_content.values())
    assert {min(versions) for versions in by_content.values()} == set(range(1, 9))


async def test_a_service_writes_no_rubric_by_itself_and_nobody_changes_one(
    api: httpx.AsyncClient, stack: StackThread, name: str
) -> None:
    await put(api, name, criteria=criteria(1))
    writes = (
        "update rubric set data = '{}' where name = $1",
        "delete from rubric where name = $1",
        "insert into rubric (name, version, digest, data) values ($1, 9, '', '{}')",
        "truncate rubric",
    )
    service, owner = await connect(stack.database_url), await connect(stack.admin_database_url)
    for write in writes:
        arguments = [name] if "$1" in write else []
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await service.execute(write, *arguments)
        if not write.startswith("insert"):
            with pytest.raises(asyncpg.RaiseError, match="rubric is append-only"):
                await owner.execute(write, *arguments)
    await service.close()
    await owner.close()


LONG = [{"name": f"c{n}", "prompt": "x" * 20_000} for n in range(6)]
STYLE = {"name": "style", "weight": 0.5, "scale": [1, 5], "prompt": "Clear?"}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "criteria"),
        ({"criteria": []}, "criteria"),
        ({"criteria": None}, "criteria"),
        ({"criteria": [{"name": "a", "weight": -1}]}, "criteria.0.weight"),
        ({"criteria": [{"name": "a", "weight": math.nan}]}, "criteria.0.weight"),
        ({"criteria": [{"name": "a", "weight": math.inf}]}, "criteria.0.weight"),
        ({"criteria": [{"name": "a", "weight": "1"}]}, "criteria.0.weight"),
        ({"criteria": [{"name": "a"}, {"name": "b"}, {"name": "a"}]}, "criteria"),
        ({"criteria": [{"name": "a", "wieght": 1}]}, "criteria.0.wieght"),
        ({"criteria": [{"name": "a"}], "author": "me"}, "author"),
        ({"criteria": [{"name": "a", "prompt": "a\0"}]}, "criteria.0.prompt"),
        ({"criteria": [{"name": "a", "prompt": "x" * 20_001}]}, "criteria.0.prompt"),
        ({"criteria": [{"name": "a", "prompt": "p", "check": "correct"}]}, "criteria.0"),
        ({"criteria": [STYLE, {"name": "A"}]}, "criteria.1.name"),
        ({"criteria": [STYLE | {"scale": [5, 1]}]}, "criteria.0.scale"),
        ({"criteria": [STYLE | {"scale": [0, math.inf]}]}, "criteria.0.scale.1"),
        ({"criteria": [{"name": "a"}], "scoring": "check"}, "scoring"),
        ({"criteria": [{"name": "a"}], "scoring": "vibes"}, "scoring"),
        ({"criteria": [{"name": f"c{n}"} for n in range(33)]}, "criteria"),
        ({"criteria": LONG}, "criteria"),
        ({"criteria": [{"name": "a"}], "name": "another"}, "name"),
        ({"criteria": [{"name": "a"}], "name": 7}, "name"),
        ({"criteria": [{"name": "a"}], "name": None}, "name"),
        ([], ""),
    ],
)
async def test_a_bad_rubric_names_its_field_and_leaves_nothing(
    api: httpx.AsyncClient, name: str, body: Any, field: str
) -> None:
    answer = await api.put(f"/rubrics/{name}", content=json.dumps(body), headers=JSON)
    problem = schemas.Problem.model_validate(answer.json())
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert [error.field for error in problem.errors] == [field]
    assert len(answer.content) < 2000
    assert (await api.get(f"/rubrics/{name}")).status_code == 404


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"", 400, "line 1"),
        (b'{"criteria": [}', 400, "line 1 column 15"),
        (b"\xff", 400, "line 1"),
        (b"[" * 100_000, 400, "recursion"),
        (b"[" * 400 + b"]" * 400, 422, "must be an object"),
        (b'{"criteria": [{"name": "a", "name": "a"}]}', 422, "criteria.0.name: the key is given"),
        (b'{"criteria": [{"name": "a", "prompt": "\\ud800"}]}', 422, "half of a surrogate pair"),
        (b'{"criteria": [{"name": "a", "prompt": "' + b"x" * 1_000_000 + b'"}]}', 413, "limit"),
    ],
)
async def test_a_broken_body_is_a_problem(
    api: httpx.AsyncClient, name: str, body: bytes, status: int, words: str
) -> None:
    answer = await api.put(f"/rubrics/{name}", content=body, headers=JSON)
    assert (answer.status_code, answer.json()["status"]) == (status, status)
    assert words in answer.json()["detail"]
    assert (await api.get(f"/rubrics/{name}")).status_code == 404


async def test_other_content_types_and_names_are_refused(api: httpx.AsyncClient, name: str) -> None:
    plain = await api.put(f"/rubrics/{name}", content=b"{}", headers={"Content-Type": "text/yaml"})
    assert plain.status_code == 415
    for bad in ("Mine", "-x", "x" * 41, "a%20b", f"{name}@2", "%00", "%C3%BC"):
        answer = await api.put(f"/rubrics/{bad}", json={"criteria": criteria(1)})
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "name"), bad
        assert (await api.get(f"/rubrics/{bad}")).status_code == 404


async def test_the_largest_rubric_that_is_kept_can_be_run(
    api: httpx.AsyncClient, name: str
) -> None:
    """Escapes and a run's other settings at their largest included."""
    prompts = [{"name": f"c{n:02}", "prompt": '"' * 1_500} for n in range(32)]
    size = len(json.dumps({"criteria": prompts}))
    assert MAX_BYTES * 0.95 < size < MAX_BYTES
    await put(api, name, criteria=prompts)
    labels = {f"k{n:02}": "é" * 200 for n in range(32)}
    answer = await api.post("/runs", json={"rubric": name, "labels": labels})
    assert answer.status_code == 201, answer.text


async def diff(api: httpx.AsyncClient, name: str, **sides: str) -> Any:
    answer = await api.get(f"/rubrics/{name}/diff", params=sides)
    assert answer.status_code == 200, answer.text
    shapes.RubricDiff.model_validate_json(answer.text)
    return answer.json()


@pytest.fixture
async def two(api: httpx.AsyncClient, name: str) -> AsyncGenerator[str]:
    """A rubric with two versions."""
    right, tidy = {"name": "right", "check": "correct"}, {"name": "tidy"}
    await put(api, name, criteria=[right, STYLE, tidy])
    changed = STYLE | {"weight": 1, "scale": [0, 10], "prompt": "Is it clear?"}
    await put(api, name, criteria=[{"name": "kind"}, changed, right], scoring="holistic")
    yield name


async def test_a_diff_says_what_differs(api: httpx.AsyncClient, two: str) -> None:
    found = await diff(api, two, **{"from": "1", "to": "2"})
    assert (found["from"]["version"], found["to"]["version"]) == (1, 2)
    assert found["scoring"] == {"from": "per_criterion", "to": "holistic"}
    assert [one["name"] for one in found["added"]] == ["kind"]
    assert [one["name"] for one in found["removed"]] == ["tidy"]
    assert found["changed"] == [
        {
            "name": "style",
            "fields": [
                {"field": "weight", "from": 0.5, "to": 1.0},
                {"field": "scale", "from": [1.0, 5.0], "to": [0.0, 10.0]},
                {"field": "prompt", "from": "Clear?", "to": "Is it clear?"},
            ],
        }
    ]
    assert found["reordered"] is True
    back = await diff(api, two, **{"from": "2", "to": "1"})
    assert (back["added"], back["removed"]) == (found["removed"], found["added"])


async def test_either_side_may_be_any_rubrics(api: httpx.AsyncClient, two: str) -> None:
    for sides in ({}, {"from": two, "to": f"{two}@2"}, {"from": "2"}, {"to": "2"}):
        same = await diff(api, two, **sides)
        assert same["from"] == same["to"]
        nothing = [same[part] for part in ("scoring", "reordered", "added", "removed", "changed")]
        assert nothing == [None, False, [], [], []]
    other = f"{two}-copy"
    version = (await api.get(f"/rubrics/{two}/1")).json()["rubric"]
    del version["name"]
    await put(api, other, **version)
    copied = await diff(api, two, **{"from": "1", "to": f"{other}@1"})
    assert (copied["changed"], copied["to"]["name"]) == ([], other)
    built_in = await diff(api, "v1", to="v2-efficiency")
    assert [one["name"] for one in built_in["changed"]] == ["efficiency", "tidiness"]


@pytest.mark.parametrize(
    ("path", "status", "field"),
    [
        ("/rubrics/{two}/3", 404, None),
        ("/rubrics/{two}/0", 404, None),
        ("/rubrics/{two}/01", 404, None),
        ("/rubrics/{two}/newest", 404, None),
        ("/rubrics/{two}/99999999999999999999", 404, None),
        ("/rubrics/{two}-not", 404, None),
        ("/rubrics/{two}-not/1", 404, None),
        ("/rubrics/{two}-not/diff", 404, None),
        ("/rubrics/{two}/diff?from=3", 422, "from"),
        ("/rubrics/{two}/diff?to=0", 422, "to"),
        ("/rubrics/{two}/diff?to=%00", 422, "to"),
        ("/rubrics/{two}/diff?to={two}-not", 422, "to"),
        ("/rubrics/{two}/diff?to={two}@9", 422, "to"),
        ("/rubrics/{two}?cursor=x", 422, "cursor"),
        ("/rubrics/{two}?cursor=WyJ4Il0", 422, "cursor"),
        ("/rubrics?cursor=WyJcdTAwMDAiXQ", 422, "cursor"),
        ("/rubrics?limit=0", 422, "limit"),
    ],
)
async def test_what_is_not_there_is_a_problem(
    api: httpx.AsyncClient, two: str, path: str, status: int, field: str | None
) -> None:
    answer = await api.get(path.format(two=two))
    problem = schemas.Problem.model_validate(answer.json())
    assert answer.status_code == status
    assert [error.field for error in problem.errors] == ([] if field is None else [field])
