"""A trajectory in the field's format: what was said and done, bounded, as its own package reads."""

from __future__ import annotations

import itertools
import json
import subprocess
from collections.abc import Sequence
from typing import Any

import pytest
from support.harbor_runner import harbor_python
from trialog.sandbox.agent import Metrics
from trialog.sandbox.trajectory import log as limits
from trialog.sandbox.trajectory.atif import Actor, document
from trialog.sandbox.trajectory.log import Recorder

ACTOR = Actor("mine", "1.2", "gpt-small")
# 2026-01-02 03:04:05 UTC, then a second a reading.
BEGIN = 1767323045.0


def recorder() -> Recorder:
    clock = itertools.count(BEGIN)
    return Recorder(lambda: next(clock))


def whole() -> Recorder:
    """A log with everything in it."""
    log = recorder()
    log.message("system", "You are careful.")
    log.message("user", "Write a file.")
    metrics = Metrics(10, 3, 4, 0.25, [1, 2, 3], [7, 8, 9], [-0.5, -0.25, 0.0])
    log.message("agent", "I write.", reasoning="hm", metrics=metrics, model_name="gpt-large")
    first = log.call("exec", {"command": "echo a"})
    second = log.call("read", {"path": "/app/a"})
    log.end(second, "/app/a does not exist")
    log.end(first, "a", 0)
    log.message("agent", "Done.", metrics=Metrics(prompt_tokens=20, cost_usd=0.5))
    log.call("exec", {"command": "sleep infinity"})
    return log


def test_the_document_of_a_whole_try() -> None:
    assert document("run.s0-p0-n0", ACTOR, whole()) == {
        "schema_version": "ATIF-v1.8",
        "session_id": "run.s0-p0-n0",
        "agent": {"name": "mine", "version": "1.2", "model_name": "gpt-small"},
        "steps": [
            {
                "step_id": 1,
                "timestamp": "2026-01-02T03:04:05.000Z",
                "source": "system",
                "message": "You are careful.",
            },
            {
                "step_id": 2,
                "timestamp": "2026-01-02T03:04:06.000Z",
                "source": "user",
                "message": "Write a file.",
            },
            {
                "step_id": 3,
                "timestamp": "2026-01-02T03:04:07.000Z",
                "source": "agent",
                "message": "I write.",
                "tool_calls": [
                    {
                        "tool_call_id": "call-1",
                        "function_name": "exec",
                        "arguments": {"command": "echo a"},
                    },
                    {
                        "tool_call_id": "call-2",
                        "function_name": "read",
                        "arguments": {"path": "/app/a"},
                    },
                ],
                "observation": {
                    "results": [
                        {"source_call_id": "call-1", "content": "a", "extra": {"exit_code": 0}},
                        {"source_call_id": "call-2", "content": "/app/a does not exist"},
                    ]
                },
                "reasoning_content": "hm",
                "model_name": "gpt-large",
                "metrics": {
                    "prompt_tokens": 10,
                    "completion_tokens": 3,
                    "cached_tokens": 4,
                    "cost_usd": 0.25,
                    "prompt_token_ids": [1, 2, 3],
                    "completion_token_ids": [7, 8, 9],
                    "logprobs": [-0.5, -0.25, 0.0],
                },
                "llm_call_count": 1,
            },
            {
                "step_id": 4,
                "timestamp": "2026-01-02T03:04:08.000Z",
                "source": "agent",
                "message": "Done.",
                "tool_calls": [
                    {
                        "tool_call_id": "call-3",
                        "function_name": "exec",
                        "arguments": {"command": "sleep infinity"},
                    }
                ],
                "observation": {
                    "results": [
                        {
                            "source_call_id": "call-3",
                            "content": "did not end before the try was over",
                        }
                    ]
                },
                "metrics": {"prompt_tokens": 20, "cost_usd": 0.5},
                "llm_call_count": 1,
            },
        ],
        "final_metrics": {
            "total_prompt_tokens": 30,
            "total_completion_tokens": 3,
            "total_cached_tokens": 4,
            "total_cost_usd": 0.75,
            "total_steps": 4,
        },
    }


def test_calls_that_no_message_announced_have_a_step_each() -> None:
    log = recorder()
    log.message("user", "Do it.")
    for command in ("one", "two"):
        log.end(log.call("exec", {"command": command}), command, 0)
    log.message("agent", "Both at once.")
    for command in ("three", "four"):
        log.end(log.call("exec", {"command": command}), command, 0)
    shown = [[call.arguments["command"] for call in step.calls] for step in log.steps]
    assert shown == [[], ["one"], ["two"], ["three", "four"]]
    assert log.n_turns == 3


def test_an_agent_may_go_on_with_its_lists() -> None:
    log, prompt = recorder(), [1, 2]
    log.message("agent", "a", metrics=Metrics(prompt_token_ids=prompt))
    prompt.append(3)
    (step,) = log.steps
    assert step.metrics is not None
    assert step.metrics.prompt_token_ids == [1, 2]


@pytest.mark.parametrize(
    ("source", "text", "more", "reason"),
    [
        ("robot", "a", {}, "source 'robot' is none of"),
        ("user", "a", {"reasoning": "b"}, "reasoning is an agent's"),
        ("system", "a", {"metrics": Metrics()}, "metrics is an agent's"),
        ("user", "a", {"model_name": "m"}, "model_name is an agent's"),
        ("agent", None, {}, "text is to be a text, not NoneType"),
        ("agent", "a", {"reasoning": 3}, "reasoning is to be a text, not int"),
        ("agent", "a", {"model_name": b"m"}, "model_name is to be a text, not bytes"),
        ("agent", "a", {"metrics": Metrics(cost_usd=float("nan"))}, "cost_usd is nan"),
        ("agent", "a", {"metrics": Metrics(logprobs=[0.0, float("-inf")])}, r"logprobs\[1\]"),
        (
            "agent",
            "a",
            {"metrics": Metrics(completion_token_ids=[1, 2], logprobs=[0.0])},
            "1 logprobs of 2 completion_token_ids",
        ),
    ],
)
def test_what_the_format_cannot_hold_is_refused_at_once(
    source: str, text: Any, more: dict[str, Any], reason: str
) -> None:
    log = recorder()
    with pytest.raises(ValueError, match=reason):
        log.message(source, text, **more)
    assert (log.steps, log.n_turns, log.totals.cost_usd) == ([], 0, None)


def test_texts_are_bounded_and_keep_their_ends() -> None:
    log = recorder()
    log.message("agent", "a" + "x" * (1 << 20) + "z", reasoning="b" + "y" * (1 << 20) + "z")
    call = log.call("exec", {"command": "c" + "x" * (1 << 20) + "z"})
    log.end(call, "d" + "x" * (1 << 20) + "z")
    (step,) = log.steps
    texts = [step.text, step.reasoning or "", str(call.arguments["command"]), call.result or ""]
    assert [(text[0], text[-1]) for text in texts] == [(first, "z") for first in "abcd"]
    assert all(len(text) < limits.MAX_TEXT + 100 for text in texts)
    assert all(len(text) < limits.MAX_RESULT + 100 for text in texts[2:])


def test_steps_above_the_limit_are_counted_and_their_tokens_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "MAX_STEPS", 3)
    log = recorder()
    log.message("user", "Do it.")
    for _ in range(4):
        log.message("agent", "a", metrics=Metrics(prompt_tokens=5))
        log.end(log.call("exec", {"command": "x"}), "x", 0)
    found = document("s", ACTOR, log)
    assert len(found["steps"]) == 3
    assert found["final_metrics"] == {"total_prompt_tokens": 20, "total_steps": 5}
    assert found["notes"].startswith("2 of 5 steps and 2 tool calls were left out")
    assert log.n_turns == 4


def test_a_flood_is_bounded_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_BYTES", 1 << 20)
    log = recorder()
    log.message("agent", "All at once.")
    for _ in range(200):
        log.end(log.call("exec", {"command": "x" * 10_000}), "y" * 10_000, 0)
    log.message("agent", "ids", metrics=Metrics(prompt_token_ids=range(1 << 17)))
    found = document("s", ACTOR, log)
    assert 40 <= len(found["steps"][0]["tool_calls"]) <= 52
    assert len(json.dumps(found)) < 1.2 * (1 << 20)
    assert "1 of 2 steps and" in found["notes"]


def test_room_that_is_kept_for_a_result_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_BYTES", 1 << 20)
    log = recorder()
    log.message("agent", "Many small ones.")
    for _ in range(1_000):
        log.end(log.call("exec", {"command": "true"}), "", 0)
    assert (len(log.steps[0].calls), log.calls_left_out) == (1_000, 0)


_VALIDATE = """
import json, sys
from harbor.models.trajectories import Trajectory
for text in json.load(sys.stdin):
    Trajectory.model_validate_json(text)
"""


def harbor(documents: Sequence[dict[str, Any]]) -> subprocess.CompletedProcess[str]:
    """Read documents with the field's own package."""
    python = harbor_python()
    if python is None:
        pytest.skip("no harbor package: `sh .ci/harbor` makes its environment")
    return subprocess.run(
        [python, "-c", _VALIDATE],
        input=json.dumps([json.dumps(each) for each in documents]),
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_harbor_itself_reads_what_we_write(monkeypatch: pytest.MonkeyPatch) -> None:
    bare = recorder()
    bare.message("user", "Do it.")
    monkeypatch.setattr(limits, "MAX_STEPS", 1)
    flood = whole()
    monkeypatch.undo()
    documents = [
        document("s", ACTOR, whole()),
        document("s", Actor("nop", "1"), bare),
        document("s", ACTOR, flood),
    ]
    assert [len(each["steps"]) for each in documents] == [4, 1, 1]
    read = harbor(documents)
    assert read.returncode == 0, read.stderr


def test_harbor_itself_refuses_what_is_not_the_format() -> None:
    """The test above can fail."""
    wrong = document("s", ACTOR, whole())
    wrong["steps"][1]["metrics"] = {"prompt_tokens": 1}
    read = harbor([wrong])
    assert read.returncode != 0
    assert "only applicable when source is 'agent'" in read.stderr
