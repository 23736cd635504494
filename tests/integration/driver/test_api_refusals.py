"""What the API does with a body or a header that it will not take."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import httpx
import pytest
from trialog.driver.api import schemas
from trialog.spine.postgres.log import PostgresLog


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"n_stepz": 1}, "n_stepz"),
        ({"n_steps": "3"}, "n_steps"),
        ({"n_steps": -1}, "n_steps"),
        ({"n_worlds": 0}, "n_worlds"),
        ({"faults": {"flaky_trial_rate": 1.5}}, "faults.flaky_trial_rate"),
        ({"faults": {"straggler": {"x": 1}}}, "faults.straggler.x"),
        ({"faults": {"hang": ["s9-p0-n0"]}}, "faults.hang.0"),
        ({"faults": {"hang": ["s00-p0-n0"]}}, "faults.hang.0"),
        ({"faults": {"straggler": {"s9-p0-n0": 1}}}, "faults.straggler.s9-p0-n0"),
        ({"faults": {"crash_driver_after_step": 3}}, "faults.crash_driver_after_step"),
        ({"prompts_per_step": 20_000, "n_samples": 2}, "prompts_per_step"),
        ({"rubric": "v9"}, "rubric"),
        ({"rubric": {"name": "x", "criteria": [{"name": "A B"}]}}, "rubric.criteria.0.name"),
        (
            {"rubric": {"name": "x", "criteria": [{"name": "a", "prompt": "a\0"}]}},
            "rubric.criteria.0.prompt",
        ),
        ({"labels": {"UPPER": "x"}}, "labels.UPPER"),
        ({"labels": {"team": "a\0"}}, "labels.team"),
        ({"lr": None}, "lr"),
        ([], ""),
    ],
)
async def test_a_bad_spec_names_its_field_and_leaves_nothing(
    api: httpx.AsyncClient, log: PostgresLog, body: Any, field: str
) -> None:
    end = await log.end(0)
    answer = await api.post("/runs", json=body)
    problem = schemas.Problem.model_validate(answer.json())
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert field in [error.field for error in problem.errors]
    assert len(problem.errors) == 1, "one mistake is one error"
    assert "Traceback" not in answer.text
    assert await log.end(0) == end


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b'{"n_steps": 1,\n "n_worlds": }', 400, "line 2 column 14"),
        (b"", 400, "line 1 column 0"),
        (b"\xff", 400, "line 1"),
        (b"[" * 100_000, 400, "recursion"),
        (b'{"lr": NaN}', 422, "lr"),
        *((b'{"a":' * n + b"1" + b"}" * n, 400, "recursion") for n in (300, 900, 5000)),
        (b'{"labels": {"a": "\\ud800"}}', 422, "labels.a: holds half of a surrogate pair"),
        (b'{"\\ud800": 1}', 422, "\\ud800: holds half of a surrogate pair"),
        (b'{"n_steps": ' + b"9" * 5000 + b"}", 400, "number"),
        (b'{"n_steps": 1, "n_steps": 1}', 422, "n_steps: the key is given twice"),
        (b'{"rubric": {"criteria": [{}, {"a": 1, "a": 2}]}}', 422, "rubric.criteria.1.a: the key"),
        (b'"x"', 422, "the body must be an object"),
        (b"null", 422, "the body must be an object"),
        (b"[]", 422, "the body must be an object"),
        (b'{"labels": {"a": "' + b"x" * 1_000_000 + b'"}}', 413, "limit"),
    ],
)
async def test_a_broken_body_is_a_problem(
    api: httpx.AsyncClient, body: bytes, status: int, words: str
) -> None:
    answer = await api.post("/runs", content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["status"]) == (status, status)
    assert words in answer.json()["detail"]


@pytest.mark.parametrize(
    ("body", "errors"),
    [
        ({f"x{n}": n for n in range(5000)}, 5000),
        ({"x" * 900_000: 1}, 1),
        ({"rubric": "x" * 900_000}, 1),
        ({"labels": {"X" * 10_000 + str(n): n for n in range(50)}}, 100),
    ],
)
async def test_an_answer_to_many_or_long_mistakes_is_short(
    api: httpx.AsyncClient, body: Any, errors: int
) -> None:
    answer = await api.post("/runs", json=body)
    problem = schemas.Problem.model_validate(answer.json())
    assert answer.status_code == 422
    assert len(answer.content) < 20_000
    assert all(len(error.field) <= 200 for error in problem.errors)
    if errors > 20:
        more = f"and {errors - 20} more"
        assert (len(problem.errors), problem.errors[-1].message) == (21, more)
        assert problem.detail.endswith(more)


async def test_a_body_in_chunks_is_counted_too(api: httpx.AsyncClient) -> None:
    async def chunks() -> AsyncGenerator[bytes]:
        yield b'{"labels": {"a": "'
        for _ in range(200):
            yield b"x" * 10_000

    headers = {"Content-Type": "application/json"}
    answer = await api.post("/runs", content=chunks(), headers=headers)
    assert (answer.status_code, answer.json()["title"]) == (413, "Body too large")
    assert (await api.get("/livez")).status_code == 200


async def test_other_content_types_and_keys_are_refused(api: httpx.AsyncClient) -> None:
    answer = await api.post("/runs", content=b"n_steps: 3", headers={"Content-Type": "text/yaml"})
    assert answer.status_code == 415
    answer = await api.post("/runs", json={}, headers={"Idempotency-Key": "x" * 201})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"].lower() == "idempotency-key"
