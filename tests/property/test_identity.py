"""Action keys: every input that can change the outcome changes the key, and nothing else is in."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trialog.proto import identity
from trialog.proto.canonical import digest

JSON = st.dictionaries(st.text(max_size=4), st.integers(-5, 5) | st.text(max_size=4), max_size=3)
WORD = st.text(max_size=6)
SEED = st.none() | st.integers(-(2**53), 2**53)
INPUTS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "world_key": {"world_id": WORD, "seed": SEED},
    "image_key": {"environment": WORD, "images": JSON, "provider": WORD, "network": WORD},
    "generate_key": {
        "task": st.none() | st.dictionaries(WORD, WORD, max_size=2),
        "code": WORD,
        "agent": JSON,
        "world_digest": WORD,
        "weights_digest": WORD,
        "trial_id": WORD,
        "seed": SEED,
        "limits": JSON,
        "fault_rates": JSON,
    },
    "verify_key": {
        "code": WORD,
        "world_key": WORD,
        "trajectory_digest": WORD,
        "verifier": WORD,
        "task": st.none() | WORD,
    },
    "call_key": {"model": JSON, "request": JSON, "trajectory_digest": WORD},
    "judge_key": {
        "checks": WORD,
        "trial_id": WORD,
        "verification": JSON,
        "rubric_digest": WORD,
        "model": JSON,
        "seed": SEED,
    },
    "step_key": {
        "code": WORD,
        "step": st.integers(0, 10**6),
        "prior_digest": WORD,
        "judgments": st.lists(WORD),
        "learner": JSON,
    },
}


@pytest.mark.parametrize("name", INPUTS)
@given(data=st.data())
def test_a_key_changes_with_each_of_its_inputs_and_only_then(
    name: str, data: st.DataObject
) -> None:
    make, inputs = getattr(identity, name), st.fixed_dictionaries(INPUTS[name])
    one, other = data.draw(inputs), data.draw(inputs)
    assert (make(**one) == make(**other)) == (one == other)
    for changed in INPUTS[name]:
        mixed = one | {changed: other[changed]}
        assert (make(**mixed) == make(**one)) == (other[changed] == one[changed])


@pytest.mark.parametrize("name", INPUTS)
def test_a_key_has_no_other_inputs(name: str) -> None:
    """No host, attempt, timing or sandbox name: two executions of one trial are one action."""
    assert set(inspect.signature(getattr(identity, name)).parameters) == set(INPUTS[name])


@given(st.data())
def test_inputs_do_not_trade_places(data: st.DataObject) -> None:
    one, other = data.draw(WORD), data.draw(WORD)

    def key(trajectory: str, verifier: str) -> str:
        return identity.verify_key(
            code="", world_key="w", trajectory_digest=trajectory, verifier=verifier
        )

    assert (key(one, other) == key(other, one)) == (one == other)


@given(st.lists(WORD, min_size=2), st.data())
def test_the_order_of_judgments_is_an_input(judgments: list[str], data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(judgments))
    keys = [
        identity.step_key(code="", step=0, prior_digest="p", judgments=order, learner={})
        for order in (judgments, shuffled)
    ]
    assert (keys[0] == keys[1]) == (judgments == shuffled)


def test_kinds_and_code_versions_are_inputs() -> None:
    keys = {
        identity.action_key(kind, code, same="inputs")
        for kind in ("generate", "verify", "judge")
        for code in ("", "1", "2")
    }
    assert len(keys) == 9


def test_a_key_is_the_digest_that_its_definition_says() -> None:
    expected = digest(
        {
            "kind": "build_world",
            "code_version": "reference-1",
            "inputs": {"world_id": "w0", "seed": 1},
        }
    )
    assert identity.world_key(world_id="w0", seed=1) == expected
