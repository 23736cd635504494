"""Whatever an agent says and does, its trajectory is the format's, bounded, and means the same at
any time."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from trialog.sandbox import record
from trialog.sandbox.agent import Metrics
from trialog.sandbox.record import Tried
from trialog.sandbox.snapshot import Snapshot
from trialog.sandbox.trajectory.atif import Actor
from trialog.sandbox.trajectory.clip import clip
from trialog.sandbox.trajectory.log import Call, Recorder
from trialog.sandbox.trajectory.turns import SHOWN_CHARACTERS, meaning, shown

TEXTS = st.text(max_size=20) | st.builds(
    lambda head, count: head + "x" * count, st.text(max_size=5), st.integers(0, 60_000)
)
COUNTS = st.none() | st.integers(0, 1_000)
METRICS = st.none() | st.builds(
    Metrics,
    COUNTS,
    COUNTS,
    COUNTS,
    cost_usd=st.none() | st.floats(0, 9),
    prompt_token_ids=st.none() | st.lists(st.integers(0, 99), max_size=3),
)
DEEDS = st.lists(
    st.tuples(st.just("say"), st.sampled_from(["system", "user"]), TEXTS)
    | st.tuples(st.just("reply"), TEXTS, st.none() | TEXTS, METRICS)
    | st.tuples(st.just("call"), st.sampled_from(["exec", "read"]), TEXTS)
    | st.tuples(st.just("end"), st.integers(0, 9), TEXTS, st.none() | st.integers(-9, 255)),
    max_size=30,
)


def log_of(deeds: list[tuple[Any, ...]], at: float, *, counted: bool = True) -> Recorder:
    log, calls = Recorder(lambda: at), list[Call]()
    log.message("user", "Do it.")
    for deed in deeds:
        match deed:
            case ("say", source, text):
                log.message(source, text)
            case ("reply", text, reasoning, metrics):
                log.message(
                    "agent", text, reasoning=reasoning, metrics=metrics if counted else None
                )
            case ("call", name, text):
                calls.append(log.call(name, {"command": text}))
            case ("end", n, text, code):
                if n < len(calls) and calls[n].result is None:
                    log.end(calls[n], text, code)
            case _:
                raise AssertionError(deed)
    return log


def kept(log: Recorder) -> record.Kept:
    return record.keep_task("s", Actor("a", "1"), [Tried(log)], Snapshot(()))


@given(DEEDS)
def test_every_document_keeps_the_formats_rules(deeds: list[tuple[Any, ...]]) -> None:
    log = log_of(deeds, 0.0)
    document = json.loads(kept(log).documents[0])
    steps = document["steps"]
    assert [step["step_id"] for step in steps] == list(range(1, len(steps) + 1))
    assert document["final_metrics"]["total_steps"] == len(steps)
    named = [call["tool_call_id"] for step in steps for call in step.get("tool_calls", [])]
    assert len(set(named)) == len(named) == sum(deed[0] == "call" for deed in deeds)
    for step in steps:
        own = [call["tool_call_id"] for call in step.get("tool_calls", [])]
        results = step.get("observation", {"results": []})["results"]
        assert [result["source_call_id"] for result in results] == own
        if step["source"] != "agent":
            assert not {"tool_calls", "metrics", "reasoning_content", "model_name"} & set(step)
    assert log.n_turns == sum(step["source"] == "agent" for step in steps)


@given(DEEDS, st.floats(0, 4e9))
def test_the_same_deeds_mean_the_same_whenever_and_whatever_they_cost(
    deeds: list[tuple[Any, ...]], at: float
) -> None:
    assert kept(log_of(deeds, at)).digest == kept(log_of(deeds, 0.0, counted=False)).digest


@given(DEEDS)
def test_a_judge_is_shown_no_more_than_it_can_read(deeds: list[tuple[Any, ...]]) -> None:
    turns = meaning(log_of(deeds, 0.0))
    found = shown(turns)
    size = sum(
        len(turn["message"])
        + len(turn.get("reasoning", ""))
        + sum(
            len(call["arguments"]["command"]) + len(call["result"] or "")
            for call in turn.get("calls", [])
        )
        for turn in found
    )
    assert size <= SHOWN_CHARACTERS
    assert (found[0]["message"], found[0]["source"]) == ("Do it.", "user")


@given(st.text(max_size=200), st.integers(0, 100))
def test_a_clipped_text_keeps_its_ends_and_says_how_much_is_missing(text: str, limit: int) -> None:
    found = clip(text, limit)
    if len(text) <= limit:
        assert found == text
        return
    head, tail = text[: limit - limit // 2], text[len(text) - limit // 2 :]
    assert found == f"{head}\n[... {len(text) - limit} characters left out ...]\n{tail}"
