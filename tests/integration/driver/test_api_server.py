"""The API as a server: keys, other sites, outages, health, its own description."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import asyncpg
from support.api import serve_api
from support.stack import StackThread
from trialog.driver.api import schemas
from trialog.proto.rubric import Rubric, parse_reference
from trialog.proto.runspec import RunSpec
from trialog.spine.blobs import PostgresBlobs
from trialog.spine.database import Database
from trialog.spine.postgres.log import PostgresLog
from trialog.spine.presence import Presence, new_incarnation

RUN = "/runs/r-abcdefghijklmnop"


async def test_every_route_but_health_asks_for_the_key(
    log: PostgresLog, blobs: PostgresBlobs
) -> None:
    async with serve_api(log, blobs, None, api_key="sécret") as api:
        for path in ("/runs", RUN, "/metrics", "/openapi.json", "/nowhere", "/processes"):
            for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "sécret"}):
                given = [(name.encode(), value.encode()) for name, value in headers.items()]
                answer = await api.client.get(path, headers=given)
                assert answer.status_code == 401
                assert answer.headers["www-authenticate"].startswith("Bearer")
                assert answer.headers["content-type"] == "application/problem+json"
            key = [(b"Authorization", "Bearer sécret".encode())]
            assert (await api.client.get(path, headers=key)).status_code != 401
        for path in ("/livez", "/readyz"):
            assert (await api.client.get(path)).status_code == 200


async def test_other_sites_pages_are_refused_where_no_key_is(
    log: PostgresLog, blobs: PostgresBlobs
) -> None:
    async with serve_api(log, blobs, None) as api:
        rebound = await api.client.get("/runs", headers={"Host": "evil.example:80"})
        assert (rebound.status_code, rebound.json()["title"]) == (421, "Misdirected request")
        end = await log.end(0)
        for origin in ("http://evil.example", "null", "http://127.0.0.1:1"):
            answer = await api.client.post("/runs", json={}, headers={"Origin": origin})
            assert answer.status_code == 403
        assert await log.end(0) == end
        own = await api.client.get("/runs", headers={"Origin": api.url})
        assert own.status_code == 200
        local = await api.client.get("/runs", headers={"Host": "localhost:1"})
        assert local.status_code == 200


async def test_wrong_routes_and_methods_are_problems(
    log: PostgresLog, blobs: PostgresBlobs
) -> None:
    async with serve_api(log, blobs, None) as api:
        for method, path, status in (
            ("GET", "/nowhere", 404),
            ("GET", "/runs/", 404),
            ("GET", "/docs", 404),
            ("DELETE", "/runs", 405),
            ("PUT", RUN, 405),
        ):
            answer = await api.client.request(method, path)
            problem = schemas.Problem.model_validate(answer.json())
            assert (answer.status_code, problem.status) == (status, status)
            assert problem.instance == path
            assert answer.headers["content-type"] == "application/problem+json"
        assert "POST" in (await api.client.delete("/runs")).headers["allow"]


async def test_without_postgres_requests_are_put_off(blobs: PostgresBlobs) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        database = Database(f"postgresql://nobody@127.0.0.1:{port}/none")
        log = PostgresLog(database, new_incarnation())
        async with serve_api(
            log, PostgresBlobs(database, blobs._folder), None, request_s=1.0
        ) as api:
            for method, path in (
                ("GET", RUN),
                ("GET", "/runs"),
                ("POST", "/runs"),
                ("POST", f"{RUN}/cancel"),
                ("GET", f"{RUN}/events"),
                ("GET", "/processes"),
                ("GET", "/log/verify"),
            ):
                body: Any = {} if (method, path) == ("POST", "/runs") else None
                answer = await api.client.request(method, path, json=body)
                assert (answer.status_code, answer.headers["retry-after"]) == (503, "1"), path
                assert schemas.Problem.model_validate(answer.json()).status == 503
            assert (await api.client.get("/livez")).status_code == 200
        await database.dispose()


async def test_a_database_that_does_not_answer_is_not_waited_for(
    log: PostgresLog, blobs: PostgresBlobs, stack: StackThread
) -> None:
    async with serve_api(log, blobs, None, request_s=0.5) as api:
        owner = await asyncpg.connect(stack.admin_database_url)
        async with owner.transaction():
            await owner.execute("lock table run_view in access exclusive mode")
            answers = await asyncio.gather(*(api.client.get(RUN) for _ in range(12)))
            assert {answer.status_code for answer in answers} == {503}
        await owner.close()
        assert (await api.client.get(RUN)).status_code == 404


async def test_health_metrics_and_the_chain(
    log: PostgresLog, blobs: PostgresBlobs, stack: StackThread
) -> None:
    ready = [False]
    presence = Presence(stack.database_url, "driver", log.incarnation, log.reincarnate)
    await presence.join()
    async with serve_api(log, blobs, None, is_ready=lambda: ready[0]) as api:
        answer = await api.client.get("/readyz")
        assert (answer.status_code, answer.json()["status"]) == (503, 503)
        ready[0] = True
        assert (await api.client.get("/readyz")).json() == {"status": "ready"}
        assert (await api.client.get("/livez")).json() == {"status": "ok"}
        for _ in range(2):
            await api.client.post("/runs", json={})
        metrics = await api.client.get("/metrics")
        assert metrics.headers["content-type"].startswith("text/plain")
        assert "trialog_log_batches_total" in metrics.text
        end = await log.end(0)
        chain = schemas.Verification.model_validate((await api.client.get("/log/verify")).json())
        assert (chain.broken_at, chain.checked_until) == (None, end)
        part = (await api.client.get("/log/verify", params={"after": 1, "until": 2})).json()
        assert part == {"broken_at": None, "checked_until": 2}
        found = schemas.Processes.model_validate((await api.client.get("/processes")).json())
        assert f"driver-{log.incarnation:x}" in [one.worker for one in found.processes]
    await presence.leave()


async def test_two_drivers_share_a_port(log: PostgresLog, blobs: PostgresBlobs) -> None:
    async with serve_api(log, blobs, None) as first:
        port = int(first.url.rpartition(":")[2])
        async with serve_api(log, blobs, None, port=port) as second:
            assert second.url == first.url
            first.stopping.set()
            await first.serving
            assert (await second.client.get("/livez")).status_code == 200


async def test_the_description_is_complete(log: PostgresLog, blobs: PostgresBlobs) -> None:
    async with serve_api(log, blobs, None) as api:
        described = (await api.client.get("/openapi.json")).json()
    operations = {
        f"{method.upper()} {path}": operation
        for path, methods in described["paths"].items()
        for method, operation in methods.items()
    }
    assert set(operations) == {
        "POST /runs",
        "GET /runs",
        "GET /runs/{run_id}",
        "POST /runs/{run_id}/fork",
        "GET /runs/{run_id}/lineage",
        "GET /runs/{a}/compare/{b}",
        "GET /runs/{run_id}/steps",
        "GET /runs/{run_id}/trials",
        "GET /runs/{run_id}/tasks",
        "GET /runs/{run_id}/rows",
        "GET /runs/{run_id}/files",
        "GET /runs/{run_id}/trials/{trial_id}/files",
        "PUT /task-archives",
        "GET /runs/{run_id}/events",
        "GET /runs/{run_id}/weights/{version}",
        "POST /runs/{run_id}/cancel",
        "POST /runs/{run_id}/pause",
        "POST /runs/{run_id}/resume",
        "GET /trials/{run_id}/{trial_id}",
        "GET /trials/{run_id}/{trial_id}/trajectory",
        "PUT /rubrics/{name}",
        "GET /rubrics",
        "GET /rubrics/{name}",
        "GET /rubrics/{name}/diff",
        "GET /rubrics/{name}/{version}",
        "GET /dead-letters",
        "POST /dead-letters/redrive",
        "GET /log/verify",
        "GET /processes",
        "GET /livez",
        "GET /readyz",
        "GET /metrics",
    }
    ids = [operation["operationId"] for operation in operations.values()]
    assert len(set(ids)) == len(ids)
    schema_names = set(described["components"]["schemas"])
    assert {"RunSpec", "Problem", "Faults", "Rubric"} <= schema_names
    assert not {"HTTPValidationError", "ValidationError"} & schema_names
    for name, operation in operations.items():
        assert operation["summary"] and operation["description"] and operation["tags"], name
        for status, response in operation["responses"].items():
            assert response["description"], name
            if status >= "400":
                assert set(response["content"]) == {"application/problem+json"}, name
        answered = operation["responses"].get("200", operation["responses"].get("201", {}))
        schema = answered.get("content", {}).get("application/json", {}).get("schema", {})
        if "$ref" in schema:
            shape = described["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
            assert shape["examples"], name
    for reference in _references(described):
        assert reference.removeprefix("#/components/schemas/") in schema_names
    for route, check in (("POST /runs", _is_run), ("PUT /rubrics/{name}", _is_rubric)):
        body = operations[route]["requestBody"]["content"]["application/json"]
        for example in body["examples"].values():
            check(example["value"])


def _is_run(example: dict[str, Any]) -> None:
    named = parse_reference(str(example.get("rubric", "v1"))).name
    RunSpec.model_validate(example | {"rubric": named}, strict=False)


def _is_rubric(example: dict[str, Any]) -> None:
    Rubric.model_validate(example, strict=False)


def _references(part: Any) -> list[str]:
    match part:
        case dict():
            inner = [found for value in part.values() for found in _references(value)]
            return inner + ([part["$ref"]] if isinstance(part.get("$ref"), str) else [])
        case list():
            return [found for value in part for found in _references(value)]
        case _:
            return []
