"""The stand-in as a real process, and the HTTP client against it and against bad servers."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support import golden
from support.asking import MODEL, questions
from support.judge_servers import http, scripted, standin
from trialog.judge.clients import MAX_REPLY_BYTES, HttpJudgeClient
from trialog.judge.errors import JudgeRefusedError, JudgeTimeoutError, JudgeUnavailableError
from trialog.judge.evidence import Evidence
from trialog.proto.rubric import BUILT_IN


def request_for(run: str, reward: dict[str, Any]) -> dict[str, Any]:
    evidence = Evidence(
        trial_id=reward["trial_id"],
        trajectory=golden.trajectory(run, reward["trial_id"]),
        verified=reward["verified"],
        found_doc=reward["found_doc"],
        n_turns=reward["n_turns"],
    )
    return questions(BUILT_IN[golden.RUBRICS[run]], evidence)[0].sent


CASES = [(run, reward) for run in golden.RUBRICS for reward in golden.rewards(run)]
REQUEST = request_for(*CASES[1])


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with standin() as (url, _):
        yield url


@pytest.fixture
async def client(url: str) -> AsyncIterator[HttpJudgeClient]:
    client = HttpJudgeClient(url)
    yield client
    await client.close()


async def counted(url: str) -> dict[str, Any]:
    async with httpx.AsyncClient(trust_env=False) as http:
        return (await http.get(f"{url}/v1/calls")).json()


async def test_every_golden_score_over_http(url: str, client: HttpJudgeClient) -> None:
    async def score(run: str, reward: dict[str, Any]) -> float | None:
        key = f"{run}/{reward['trial_id']}"
        request = request_for(run, reward)
        reply = await client.call(request, idempotency_key=key, latency_s=0, timeout_s=30)
        return reply.score

    scores = await asyncio.gather(*(score(*case) for case in CASES))
    assert scores == [reward["judge_score"] for _, reward in CASES]
    report = await counted(url)
    assert (report["calls"], report["keys"]) == (len(CASES), len(CASES))
    assert set(report["by_key"].values()) == {1}


async def test_a_slow_call_is_cut_and_was_made(url: str, client: HttpJudgeClient) -> None:
    with pytest.raises(JudgeTimeoutError):
        await client.call(REQUEST, idempotency_key="slow", latency_s=60, timeout_s=1)
    assert (await counted(url))["by_key"] == {"slow": 1}
    reply = await client.call(REQUEST, idempotency_key="slow", latency_s=0, timeout_s=30)
    assert reply.valid
    assert (await counted(url))["by_key"] == {"slow": 2}


async def test_latency_is_kept_and_measured(client: HttpJudgeClient) -> None:
    reply = await client.call(REQUEST, idempotency_key="k", latency_s=0.2, timeout_s=30)
    assert reply.latency_ms >= 200


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"trial_id": 1}', b'{"trial_id": NaN}', b"[" * 100_000, b"\xff"]
)
async def test_a_bad_body_is_a_problem_and_no_call(url: str, body: bytes) -> None:
    async with httpx.AsyncClient(trust_env=False) as http:
        answer = await http.post(f"{url}/v1/judge", content=body)
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"
    assert set(answer.json()) == {"type", "title", "status", "detail"}
    assert (await counted(url))["calls"] == 0


@pytest.mark.parametrize(
    ("model", "field"),
    [
        (None, "model"),
        ("gpt", "model"),
        (MODEL | {"temperature": 3}, "temperature"),
        (MODEL | {"max_tokens": 0}, "max_tokens"),
        (MODEL | {"top_p": 1}, "top_p"),
        ({"model": "m", "temperature": 0}, "max_tokens"),
    ],
)
async def test_a_model_that_is_none_is_refused_by_name_and_no_call(
    url: str, model: object, field: str
) -> None:
    async with httpx.AsyncClient(trust_env=False) as http:
        answer = await http.post(f"{url}/v1/judge", json=REQUEST | {"model": model})
    assert answer.status_code == 400
    assert field in answer.json()["detail"]
    assert (await counted(url))["calls"] == 0


async def test_every_model_scores_by_the_formula_at_the_same_cost(client: HttpJudgeClient) -> None:
    async def ask(**model: object) -> tuple[float | None, int, int]:
        request = REQUEST | {"model": MODEL | model}
        reply = await client.call(request, idempotency_key="k", latency_s=0, timeout_s=30)
        return reply.score, reply.prompt_tokens, reply.completion_tokens

    expected = await ask()
    assert expected[0] == CASES[1][1]["judge_score"]
    assert await ask(model="another/model-2", temperature=1.5, max_tokens=1) == expected


async def test_bad_latency_and_huge_bodies_are_refused(url: str) -> None:
    async with httpx.AsyncClient(trust_env=False) as http:
        for latency in ("-1", "nan", "inf", "soon"):
            headers = {"X-Judge-Latency-S": latency}
            answer = await http.post(f"{url}/v1/judge", json=REQUEST, headers=headers)
            assert answer.status_code == 400
        huge = b" " * 4_000_001
        assert (await http.post(f"{url}/v1/judge", content=huge)).status_code == 413
    assert (await counted(url))["calls"] == 0


async def test_the_count_outlives_a_killed_stand_in(tmp_path: Path) -> None:
    state = tmp_path / "calls.jsonl"
    async with standin(state=state) as (url, process):
        client = HttpJudgeClient(url)
        for key in ("a", "b", "a"):
            await client.call(REQUEST, idempotency_key=key, latency_s=0, timeout_s=30)
        process.kill()
        await process.wait()
        with pytest.raises(JudgeUnavailableError):
            await client.call(REQUEST, idempotency_key="a", latency_s=0, timeout_s=30)
        with state.open("ab") as file:
            file.write(b'{"key": "to')
        port = int(url.rpartition(":")[2])
        async with standin(port=port, state=state):
            await client.call(REQUEST, idempotency_key="a", latency_s=0, timeout_s=30)
            assert (await counted(url))["by_key"] == {"a": 3, "b": 1}
        await client.close()
    assert [json.loads(line)["key"] for line in state.read_text().splitlines()] == list("abaa")


async def test_nobody_there_is_unavailable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    client = HttpJudgeClient(url)
    with pytest.raises(JudgeUnavailableError, match="did not answer"):
        await client.call(REQUEST, idempotency_key="k", latency_s=0, timeout_s=10)
    await client.close()


@pytest.mark.parametrize(
    ("status", "error"),
    [
        ("503 Service Unavailable", JudgeUnavailableError),
        ("429 Too Many Requests", JudgeUnavailableError),
        ("401 Unauthorized", JudgeRefusedError),
        ("307 Temporary Redirect", JudgeRefusedError),
    ],
)
async def test_statuses_become_errors_and_are_sent_once(status: str, error: type) -> None:
    sent: list[bytes] = []

    def answer(body: bytes, _: dict[str, str]) -> bytes:
        sent.append(body)
        return http(b"no", status, Retry_After="7", Location="http://127.0.0.1:1/")

    async with scripted(answer) as url:
        client = HttpJudgeClient(url)
        with pytest.raises(error) as caught:
            await client.call(REQUEST, idempotency_key="k", latency_s=0, timeout_s=10)
        await client.close()
    assert len(sent) == 1
    if error is JudgeUnavailableError:
        assert caught.value.retry_after_s == 7


async def test_a_reply_without_end_is_cut_and_invalid() -> None:
    async with scripted(lambda *_: http(b" " * (MAX_REPLY_BYTES + 10))) as url:
        client = HttpJudgeClient(url)
        reply = await client.call(REQUEST, idempotency_key="k", latency_s=0, timeout_s=10)
        await client.close()
    assert not reply.valid
    assert len(reply.raw) == MAX_REPLY_BYTES
