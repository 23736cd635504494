"""A run's keys at their edges: what is one input though it is written in two ways, what is two
though it looks like one, and what is no input at all."""

from __future__ import annotations

import json
import random
import unicodedata
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace
from pydantic import ValidationError
from support.asked_runs import CODE, Json, specs
from support.strategies import facts_of
from trialog.proto import events as ev
from trialog.proto.canonical import digest
from trialog.proto.keys import Keys
from trialog.proto.runspec import RunSpec, load

TRIAL, TWIN = "s1-p0-n0", "s1-p0-n1"
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=6)


def verified(trial_id: str = TRIAL, trajectory: str = "t") -> ev.TrialVerified:
    return ev.TrialVerified(trial_id, 1, "k", True, 3, trajectory, "b", 2)


def keys_of(spec: RunSpec, code: dict[str, str] | None = None) -> dict[str, Any]:
    """Return every key that a run makes of one trial and its step."""
    keys = Keys(spec, code or {})
    return {
        "world": keys.world("w0"),
        "generate": keys.generate(TRIAL, "w", "p"),
        "verify": keys.verify("w0", "t"),
        "calls": sorted(key for _, key in keys.calls(verified())),
        "judge": keys.judge(verified()),
        "step": keys.step(1, "p", ["j"]),
        "whole": keys.step_inputs(1, "p", ["w0", "w1"]),
    }


def as_one_may_write_it(value: Any, order: random.Random) -> str:
    """Return a document's JSON text with its keys in any order and its numbers in any form."""
    match value:
        case dict():
            items = [
                f"{json.dumps(key)}: {as_one_may_write_it(item, order)}"
                for key, item in order.sample(sorted(value.items()), len(value))
            ]
            return "{" + ", ".join(items) + "}"
        case list():
            return "[" + ", ".join(as_one_may_write_it(item, order) for item in value) + "]"
        case bool() | None | str():
            return json.dumps(value)
        case _:
            return order.choice([f"{float(value)!r}", f"{value}", f"{value * 10}e-1"])


@given(specs(), CODE, st.randoms(use_true_random=False))
def test_the_order_of_keys_and_the_form_of_numbers_change_no_key(
    spec: Json, code: dict[str, str], order: random.Random
) -> None:
    plain = RunSpec.model_validate(spec)
    written = RunSpec.model_validate_json(as_one_may_write_it(spec, order))
    assert written == plain
    assert keys_of(written, code) == keys_of(plain, code)


@given(specs(), CODE, st.randoms(use_true_random=False))
def test_the_keys_of_what_was_recorded_are_those_of_what_was_asked(
    spec: Json, code: dict[str, str], order: random.Random
) -> None:
    """Defaults that were left out, a rubric by its name, and the log's own form of it."""
    asked = RunSpec.model_validate(spec)
    fact = ev.RunRequested(asked.recorded(), "r", "w", code=code)
    read = ev.decode("RunRequested", 1, ev.encode(fact))
    assert isinstance(read, ev.RunRequested)
    assert keys_of(load(read.spec), read.code) == keys_of(asked, code)
    again = load(json.loads(as_one_may_write_it(read.spec, order)))
    assert keys_of(again, code) == keys_of(asked, code)


def asking(prompt: str, scoring: str = "per_criterion") -> RunSpec:
    rows = [{"name": "a", "prompt": prompt}]
    text = json.dumps({"rubric": {"name": "r", "scoring": scoring, "criteria": rows}})
    return RunSpec.model_validate_json(text)


def call_of(prompt: str, scoring: str = "per_criterion") -> str:
    (call,) = keys_of(asking(prompt, scoring))["calls"]
    return call


PROMPTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)


@pytest.mark.parametrize("scoring", ["holistic", "per_criterion"])
@given(one=PROMPTS, other=PROMPTS)
def test_two_prompts_are_two_calls(scoring: str, one: str, other: str) -> None:
    assert (call_of(one, scoring) == call_of(other, scoring)) == (one == other)
    judgments = [keys_of(asking(prompt, scoring))["judge"] for prompt in (one, other)]
    assert (judgments[0] == judgments[1]) == (one == other)


@given(PROMPTS)
def test_two_unicode_forms_are_two_prompts(prompt: str) -> None:
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        normal = unicodedata.normalize(form, prompt)
        assert asking(normal).resolved_rubric.criteria[0].prompt == normal, "kept as it is"
        assert (call_of(normal) == call_of(prompt)) == (normal == prompt)


@pytest.mark.parametrize(
    ("one", "other"),
    [("caf\xe9", "cafe\u0301"), ("\u212b", "\xc5"), ("a", "a "), ("a\r\n", "a\n"), ("", "\ufeff")],
)
def test_what_looks_the_same_is_not(one: str, other: str) -> None:
    assert call_of(one) != call_of(other)


@pytest.mark.parametrize("bad", ["\0", "a\0b", "\ud800", "\udfff", "a\ud83d"])
def test_a_prompt_that_cannot_be_stored_is_refused_by_its_name(bad: str) -> None:
    document = {"rubric": {"name": "r", "criteria": [{"name": "a", "prompt": bad}]}}
    with pytest.raises(ValidationError, match=r"criteria\.0\.prompt\n"):
        RunSpec.model_validate(document)
    with pytest.raises(ValidationError):
        RunSpec.model_validate_json(json.dumps(document))


@given(ANY_TEXT, ANY_TEXT)
def test_texts_of_any_kind_in_a_trajectory_neither_crash_nor_meet(one: str, other: str) -> None:
    """An agent may write what it likes: NUL bytes, and what is no Unicode at all."""
    keys = Keys(RunSpec(), {})

    def trajectory(text: str) -> str:
        return digest({"turns": [{"said": text}], "answer": text, "files": [text], "state": "s"})

    made = [keys.verify("w0", trajectory(text)) for text in (one, other)]
    assert (made[0] == made[1]) == (one == other)
    calls = [keys.calls(verified(trajectory=trajectory(text)))[0][1] for text in (one, other)]
    assert (calls[0] == calls[1]) == (one == other)


@given(ANY_TEXT, ANY_TEXT)
def test_texts_of_any_kind_in_a_message_are_recorded(message: str, worker: str) -> None:
    fact = ev.TrialAttemptFailed(TRIAL, "generate", 0, "agent", False, message, worker)
    read = ev.decode("TrialAttemptFailed", 1, ev.encode(fact))
    assert isinstance(read, ev.TrialAttemptFailed)
    if message == message.encode("utf-8", "ignore").decode():
        assert read.message == message


EMPTY: list[Any] = [
    {},
    {"a": None},
    {"a": []},
    {"a": {}},
    {"a": ""},
    {"a": 0},
    {"a": False},
    {"a": [None]},
    {"a": [[]]},
    {"a": [""]},
    {"b": []},
]


def test_an_empty_list_a_null_and_nothing_are_three_things() -> None:
    assert len({digest(value) for value in EMPTY}) == len(EMPTY)


def test_no_prompt_and_an_empty_one_are_two_calls() -> None:
    for scoring in ("holistic", "per_criterion"):
        rows: list[Json] = [
            {"name": "a"},
            {"name": "a", "prompt": None},
            {"name": "a", "prompt": ""},
        ]
        made = [
            keys_of(
                RunSpec.model_validate(
                    {"rubric": {"name": "r", "scoring": scoring, "criteria": [row]}}
                )
            )
            for row in rows
        ]
        assert made[0] == made[1], "null is what leaving it out means"
        assert made[0]["calls"] != made[2]["calls"] and made[0]["judge"] != made[2]["judge"]


@pytest.mark.parametrize("empty", [[], None, {}, ""])
def test_a_rubric_of_nothing_is_refused(empty: Any) -> None:
    with pytest.raises(ValidationError, match="criteria"):
        RunSpec.model_validate({"rubric": {"name": "r", "criteria": empty}})


@pytest.mark.parametrize("name", ["hang", "always_fail", "straggler"])
def test_an_empty_list_of_faults_is_no_fault(name: str) -> None:
    given_one = RunSpec.model_validate({"faults": {name: {} if name == "straggler" else []}})
    assert keys_of(given_one) == keys_of(RunSpec())
    with pytest.raises(ValidationError, match=f"faults.{name}"):
        RunSpec.model_validate({"faults": {name: None}})


# What is no input ---------------------------------------------------------------------------------

VERIFIED = facts_of(ev.TrialVerified, found_doc=st.none() | st.integers(0, 7))
OF_A_VERIFICATION = {
    "trial_id",
    "action_key",
    "verified",
    "found_doc",
    "trajectory",
    "reward",
    "rewards",
}


@given(VERIFIED, VERIFIED)
def test_of_a_verification_only_its_meaning_enters(one: Any, other: Any) -> None:
    """Not where its bytes are, whether it was recovered, nor from where."""
    keys = Keys(RunSpec(), {})
    kept = {name: getattr(one, name) for name in OF_A_VERIFICATION}
    assert keys.judge(replace(other, **kept)) == keys.judge(one)
    assert keys.calls(replace(other, **kept))[0][1] == keys.calls(one)[0][1]


@given(
    VERIFIED,
    VERIFIED,
    st.sampled_from(sorted(OF_A_VERIFICATION)),
)
def test_of_a_verification_all_of_its_meaning_enters(one: Any, other: Any, name: str) -> None:
    keys = Keys(RunSpec(), {})
    changed = replace(one, **{name: getattr(other, name)})
    same = getattr(one, name) == getattr(other, name)
    assert (keys.judge(changed) == keys.judge(one)) == same


NO_INPUT = {
    "n_steps",
    "tool_latency_s",
    "judge_latency_s",
    "retries",
    "timeouts",
    "labels",
    "budget",
    "group_policy",
}


@given(specs(), specs(), CODE)
def test_what_only_says_how_a_run_is_done_enters_no_key(one: Json, other: Json, code: Any) -> None:
    """Not how long anything takes or may take, nor who asks and what may be spent."""
    kept = {name: value for name, value in one.items() if name not in NO_INPUT}
    rest = {name: value for name, value in other.items() if name in NO_INPUT}
    mixed = kept | rest
    try:
        spec = RunSpec.model_validate(mixed)
    except ValidationError:
        assume(False)  # a fault may name a trial of a run of another size
        return
    assert keys_of(spec, code) == keys_of(RunSpec.model_validate(one), code)


@given(specs(), st.text(max_size=6))
def test_twins_have_a_judgment_each(spec: Json, trajectory: str) -> None:
    """Two trials of one run that went the same way are two trials."""
    keys = Keys(RunSpec.model_validate(spec), {})
    assert keys.judge(verified(TRIAL, trajectory)) != keys.judge(verified(TWIN, trajectory))
    assert keys.generate(TRIAL, "w", "p") != keys.generate(TWIN, "w", "p")
    assert keys.verify("w0", trajectory) == keys.verify("w0", trajectory), (
        "what is verified is no trial"
    )
