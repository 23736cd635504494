"""One suite for every judge client: in memory, and over HTTP to a real server."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
from support import golden
from support.asking import MODEL, questions
from support.judge_servers import http, scripted
from trialog.judge.clients import HttpJudgeClient, JudgeClient
from trialog.judge.errors import JudgeRefusedError, JudgeTimeoutError, JudgeUnavailableError
from trialog.judge.evidence import Evidence
from trialog.judge.memory import MemoryJudgeClient
from trialog.judge.replies import Prices
from trialog.judge.standin.answers import answer_to
from trialog.judge.standin.reference import InvalidRequestError
from trialog.proto.rubric import BUILT_IN

PRICES = Prices(prompt_usd_per_mtok=2.0, completion_usd_per_mtok=10.0)
REWARD = golden.rewards("clean")[1]
REQUEST = questions(
    BUILT_IN["v1"],
    Evidence(
        trial_id=REWARD["trial_id"],
        trajectory=golden.trajectory("clean", REWARD["trial_id"]),
        verified=True,
        found_doc=REWARD["found_doc"],
        n_turns=REWARD["n_turns"],
    ),
)[0].sent
Make = Callable[
    [Callable[[dict[str, Any]], bytes]], contextlib.AbstractAsyncContextManager[JudgeClient]
]


@contextlib.asynccontextmanager
async def in_memory(respond: Callable[[dict[str, Any]], bytes]) -> AsyncGenerator[JudgeClient]:
    yield MemoryJudgeClient(respond, prices=PRICES)


@contextlib.asynccontextmanager
async def over_http(respond: Callable[[dict[str, Any]], bytes]) -> AsyncGenerator[JudgeClient]:
    def answer(body: bytes, headers: dict[str, str]) -> bytes | None:
        try:
            return None if float(headers["x-judge-latency-s"]) else http(respond(json.loads(body)))
        except InvalidRequestError as error:
            return http(str(error).encode(), "400 Bad Request")
        except JudgeUnavailableError:
            return None

    async with scripted(answer) as url:
        client = HttpJudgeClient(url, prices=PRICES)
        yield client
        await client.close()


@pytest.fixture(params=[in_memory, over_http], ids=["memory", "http"])
def make(request: pytest.FixtureRequest) -> Make:
    return request.param


async def ask(client: JudgeClient, **changes: object):
    return await client.call(REQUEST | changes, idempotency_key="k", latency_s=0, timeout_s=10)


async def test_a_verdict_is_read_and_priced(make: Make) -> None:
    async with make(answer_to) as client:
        reply = await ask(client)
    assert reply.valid
    assert reply.score == REWARD["judge_score"]
    assert set(reply.scores) == set(BUILT_IN["v1"].weights)
    assert reply.cost_microusd == 2 * reply.prompt_tokens + 10 * reply.completion_tokens > 0
    assert json.loads(reply.raw)["score"] == reply.score
    assert reply.latency_ms >= 0


@pytest.mark.parametrize("raw", [b"", b"8/10", b'{"score": NaN, "scores": {}}', b'{"score": 1}'])
async def test_an_invalid_reply_is_data_without_a_score(make: Make, raw: bytes) -> None:
    async with make(lambda _: raw) as client:
        reply = await ask(client)
    assert (reply.valid, reply.score, reply.scores, reply.raw) == (False, None, {}, raw)
    assert reply.cost_microusd > 0


async def test_a_request_that_is_refused_raises(make: Make) -> None:
    async with make(answer_to) as client:
        with pytest.raises(JudgeRefusedError, match="verified") as caught:
            await ask(client, verified="perhaps")
    assert caught.value.status == 400


async def test_the_model_reaches_the_judge_and_is_no_prompt(make: Make) -> None:
    seen: list[dict[str, Any]] = []

    def respond(request: dict[str, Any]) -> bytes:
        seen.append(request)
        return b"no verdict, and no word on tokens"

    model = {"model": "another/model-2", "temperature": 0.5, "max_tokens": 77}
    async with make(respond) as client:
        first, second = await ask(client), await ask(client, model=model)
    assert [request["model"] for request in seen] == [MODEL, model]
    assert first.prompt_tokens == second.prompt_tokens > 0


async def test_an_outage_raises(make: Make) -> None:
    def out(_: dict[str, Any]) -> bytes:
        raise JudgeUnavailableError("gone")

    async with make(out) as client:
        with pytest.raises(JudgeUnavailableError):
            await ask(client)


async def test_a_lone_surrogate_reaches_the_judge(make: Make) -> None:
    seen: list[dict[str, Any]] = []

    def respond(request: dict[str, Any]) -> bytes:
        seen.append(request)
        return answer_to(request)

    trajectory = {"turns": [], "answer": "\ud800", "files": []}
    async with make(respond) as client:
        assert (await ask(client, trajectory=trajectory)).valid
    assert seen[0]["trajectory"] == trajectory


async def test_calls_run_side_by_side(make: Make) -> None:
    async with make(answer_to) as client:
        replies = await asyncio.gather(*(ask(client) for _ in range(40)))
    assert {reply.score for reply in replies} == {REWARD["judge_score"]}


async def test_the_twin_times_out_as_the_real_one_does() -> None:
    client = MemoryJudgeClient()
    with pytest.raises(JudgeTimeoutError):
        await client.call(REQUEST, idempotency_key="k", latency_s=1, timeout_s=0.01)
    assert client.calls == {"k": 1}
