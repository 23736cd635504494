"""Rows for training: what is in one, whose tokens are trained, and what is never made up."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import exports as x
from support import facts as f
from trialog.driver.export import atif
from trialog.driver.export.kept import Kept, Part, kept_of
from trialog.driver.export.rows import Tried, is_valid, row
from trialog.driver.export.run import ExportedRun
from trialog.driver.export.tokens import Sampled, sampled, sequences
from trialog.driver.views import Doc
from trialog.proto import events as ev
from trialog.proto.runspec import RunSpec

IDS = st.lists(st.integers(0, 9), min_size=1, max_size=4)


def doc_of(*facts: ev.Fact, trial_id: str = x.TRIAL) -> Doc:
    return x.document_of(trial_id, [f.trial_requested(trial_id), *facts])


def judged_doc(**more: Any) -> Doc:
    return doc_of(f.trajectory(x.TRIAL), x.graded(rewards={"a": 1.0, "b": 0.5}, **more), x.judged())


def agent_step(prompt: Any, completion: Any, **more: Any) -> dict[str, Any]:
    metrics = {"prompt_token_ids": prompt, "completion_token_ids": completion}
    logprobs = more.pop("logprobs", None)
    return {"source": "agent", "message": "", "metrics": metrics | {"logprobs": logprobs}, **more}


def row_of(*documents: dict[str, Any], doc: Doc | None = None, **more: Any) -> dict[str, Any]:
    parts = tuple(Part(None) for _ in documents)
    tried = Tried(doc or judged_doc(), Kept(parts=parts), documents, ["Say hello."])
    return row(x.run(), tried, **more)


def test_a_row_says_what_was_given_said_and_seen() -> None:
    found = row_of(x.SAID)
    assert found["prompt"] == [{"role": "user", "content": "Say hello."}]
    assert found["turns"][1] == {
        "source": "agent",
        "task_step": None,
        "text": "I write it.",
        "reasoning": None,
        "tool_calls": [{"id": "c1", "name": "exec", "arguments": '{"command":"echo hello"}'}],
        "observations": [{"call_id": "c1", "text": "hello"}],
        "weights_version": 0,
    }
    assert (found["prompt_token_ids"], found["completion_token_ids"]) == ([1, 2, 3], [4, 5])
    assert (found["loss_mask"], found["logprobs"]) == ([1, 1], [-0.5, -0.25])
    assert (found["reward"], found["reward_valid"]) == (1.0, True)
    assert (found["rewards"], found["task"]) == ({"a": 1.0, "b": 0.5}, "hello")
    assert found["group_id"] == f"{f.RUN}/s0-p0"


def test_scores_of_checks_without_weight_are_none() -> None:
    doc = judged_doc() | {"scores": {"completed": 1.0}}
    assert row_of(x.SAID, doc=doc)["scores"] is None
    weighty = row(x.run(rubric="instant"), Tried(doc, Kept(), []))
    assert weighty["scores"] == {"completed": 1.0}


def said_by(source: str, text: str) -> dict[str, Any]:
    return {"source": source, "message": text}


def test_a_system_message_stands_before_the_instruction_as_the_model_saw_it() -> None:
    later = said_by("system", "Time is short.")
    said = [said_by("user", "Do it."), said_by("system", "You are."), agent_step([1], [2]), later]
    found = row_of(x.document(*said))
    assert found["prompt"] == [
        {"role": "system", "content": "You are."},
        {"role": "user", "content": "Do it."},
    ]
    assert [turn["text"] for turn in found["turns"]] == ["You are.", "Do it.", "", later["message"]]


@pytest.mark.parametrize(("played", "said"), [(0, "one"), (1, "one"), (2, "one\n\ntwo")])
def test_steps_that_were_not_played_are_in_no_instruction(played: int, said: str) -> None:
    parts = tuple(Part(f"step-{n}") for n in range(played))
    documents = [x.document()] * played
    found = row(x.run(), Tried(judged_doc(), Kept(parts=parts), documents, ["one", "two"]))
    assert (found["instruction"], found["prompt"][0]["content"]) == (said, "one")


def test_what_others_said_between_two_turns_is_masked() -> None:
    said = x.document(
        agent_step([1, 2], [3], logprobs=[-1.0]),
        {"source": "user", "message": "go on"},
        agent_step([1, 2, 3, 8, 9], [4, 5], logprobs=[-2.0, -3.0]),
    )
    found = row_of(said)
    assert found["prompt_token_ids"] == [1, 2]
    assert found["completion_token_ids"] == [3, 8, 9, 4, 5]
    assert found["loss_mask"] == [1, 0, 0, 1, 1]
    assert found["logprobs"] == [-1.0, None, None, -2.0, -3.0]
    assert found["segments"] is None


def test_a_conversation_that_begins_anew_is_no_one_sequence() -> None:
    """Nothing is put together that the model did not see so."""
    found = row_of(x.document(agent_step([1, 2], [3]), agent_step([1, 2, 7], [4])))
    assert found["completion_token_ids"] is None
    assert [one["completion_token_ids"] for one in found["segments"]] == [[3], [4]]
    assert found["segments"][0]["logprobs"] is None


def test_a_turn_that_was_copied_is_not_trained() -> None:
    copied = agent_step([1], [2], logprobs=[-1.0], is_copied_context=True)
    found = row_of(x.document(copied, agent_step([1, 2], [3], logprobs=[-2.0])))
    assert (found["loss_mask"], found["logprobs"]) == ([0, 1], [None, -2.0])


@pytest.mark.parametrize(
    ("prompt", "completion"),
    [
        (None, [1]),
        ([1], None),
        ([1], []),
        ([1], ["a"]),
        ([1], [1.5]),
        ([True], [1]),
        ([-1], [1]),
        ([2**31], [1]),
    ],
)
def test_ids_that_are_none_are_null(prompt: Any, completion: Any) -> None:
    found = row_of(x.document(agent_step(prompt, completion)))
    assert found["prompt_token_ids"] is found["loss_mask"] is found["segments"] is None


@pytest.mark.parametrize("logprobs", [[-1.0], ["a", "b"], {}, [None, None]])
def test_log_probabilities_that_do_not_fit_the_tokens_are_null(logprobs: Any) -> None:
    found = row_of(x.document(agent_step([1], [2, 3], logprobs=logprobs)))
    assert (found["completion_token_ids"], found["logprobs"]) == ([2, 3], None)


def test_a_turn_may_tell_its_own_weights() -> None:
    said = x.document(agent_step([1], [2], extra={"weights_version": 4}), agent_step([1], [2]))
    assert [turn["weights_version"] for turn in row_of(said)["turns"]] == [4, 0]


@pytest.mark.parametrize(
    "end",
    [
        ev.TrialSkipped(x.TRIAL, 0, "retries_exhausted", error="RewardFileEmptyError"),
        ev.TrialCancelled(x.TRIAL, 0),
        f.trajectory(x.TRIAL),
    ],
)
def test_without_a_verdict_there_is_no_reward(end: ev.Fact) -> None:
    """I11: unscored is not 0."""
    doc = doc_of(end)
    found = row_of(x.SAID, doc=doc)
    assert (found["reward"], found["reward_valid"], is_valid(doc)) == (None, False, False)
    assert found["error"] == ("RewardFileEmptyError" if doc["state"] == "skipped" else None)


def test_an_agent_that_ran_out_of_time_is_valid_and_says_so() -> None:
    found = row_of(x.SAID, doc=judged_doc(error="AgentTimeoutError", mode="shared"))
    assert (found["reward_valid"], found["error"]) == (True, "AgentTimeoutError")
    assert found["mode"] == "shared"


def test_a_row_of_the_reference_world_has_its_turns_and_no_tokens() -> None:
    kept = kept_of(
        b'{"turns": [{"doc": 3, "found": true}], "answer": "ab", "files": ["answer.txt"]}'
    )
    said = atif.reference(kept, "s", "policy", "1")
    run = ExportedRun(f.RUN, RunSpec(), {})
    found = row(run, Tried(doc_of(*f.judged_trial(x.TRIAL)[1:]), kept, [said]))
    assert (found["task"], found["reward"], found["completion_token_ids"]) == ("w0", 2.0, None)
    assert found["turns"][1]["tool_calls"][0]["arguments"] == '{"path":"docs/doc-3.txt"}'
    assert found["prompt"] == [{"role": "user", "content": found["instruction"]}]


@pytest.mark.parametrize(
    "blob", [b"", b"[]", b"null", b"\xff", b'{"steps": 3}', b'{"steps": [1, {"step": "../x"}]}']
)
def test_a_trajectory_that_cannot_be_read_costs_its_turns(blob: bytes) -> None:
    kept = kept_of(blob)
    assert (kept.turns, kept.answer) == ((), None)
    assert all(part.step in (None, "step") for part in kept.parts)


@given(st.lists(st.tuples(IDS, IDS, st.booleans()), min_size=1, max_size=5))
def test_a_sequence_is_what_each_turn_saw_and_masks_all_but_what_was_sampled(
    drawn: list[tuple[list[int], list[int], bool]],
) -> None:
    """Each turn's prompt and completion stand in some sequence as they were, and the ones of the
    masks are as many as the tokens that were sampled."""
    turns: list[Sampled] = []
    for extra, completion, goes_on in drawn:
        before = turns[-1].prompt + turns[-1].completion if turns and goes_on else []
        turns.append(Sampled(before + extra, completion, None))
    found = sequences(turns)
    wholes = [one.prompt + one.completion for one in found]
    for turn in turns:
        seen = turn.prompt + turn.completion
        assert any(whole[: len(seen)] == seen for whole in wholes)
    assert sum(sum(one.mask) for one in found) == sum(len(turn.completion) for turn in turns)
    for one in found:
        assert len(one.mask) == len(one.completion) == len(one.logprobs)


def test_only_an_agent_samples() -> None:
    assert sampled({"source": "user", "metrics": {"prompt_token_ids": [1]}}) is None
    assert sampled({"source": "agent", "metrics": 3}) is None
