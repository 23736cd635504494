"""Names of work, seeds and weights: small functions that much hangs on."""

from __future__ import annotations

import hashlib
import json

import pytest
from trialog.proto import seeds, work
from trialog.proto.ids import TrialName
from trialog.proto.policy import initial_weights
from trialog.proto.runspec import RunSpec, world_of
from trialog.proto.work import WorkName


def test_a_key_is_read_back_as_its_parts() -> None:
    name = WorkName("r-abcdefghijklmnop", "s0-p0-n0", work.GENERATE)
    assert name.key == "r-abcdefghijklmnop/s0-p0-n0/generate"
    assert work.parse_key(name.key) == name
    assert name.kind == "trial"


@pytest.mark.parametrize("key", ["", "a", "a/b", "a/b/c/d"])
def test_no_other_text_is_a_key(key: str) -> None:
    with pytest.raises(ValueError, match="unpack"):
        work.parse_key(key)


def test_every_stage_has_a_queue_and_every_queue_a_stage() -> None:
    assert set(work.KIND_OF_STAGE.values()) == set(work.KINDS)
    # Verifying stays with the sandbox that generated.
    assert work.KIND_OF_STAGE[work.VERIFY] == work.KIND_OF_STAGE[work.GENERATE]


def test_a_trials_keys_are_all_of_its_stages() -> None:
    keys = work.keys_of_trial("r", "s0-p0-n0")
    assert keys == ("r/s0-p0-n0/generate", "r/s0-p0-n0/verify", "r/s0-p0-n0/judge")


def test_a_call_is_claimed_in_its_tree() -> None:
    assert work.call_work_key("root", "key") == "call/root/key"


def test_a_seed_is_the_first_eight_digits_of_the_sha256_of_the_joined_parts() -> None:
    expected = int(hashlib.sha256(b"trial|s0-p0-n0").hexdigest()[:8], 16)
    assert seeds.seed("trial", "s0-p0-n0") == expected
    assert seeds.seed("trial", "s0-p0-n0", run_seed=None) == expected
    assert seeds.seed("trial", "s0-p0-n0", run_seed=7) == seeds.seed("trial", "s0-p0-n0", "7")


def test_a_generator_draws_the_same_on_any_machine() -> None:
    drawn = [seeds.generator("trial", "s0-p0-n0").random() for _ in range(2)]
    assert drawn[0] == drawn[1] == seeds.generator("trial", "s0-p0-n0").random()


def test_worlds_take_turns_and_begin_even() -> None:
    names = [TrialName(0, prompt, 0) for prompt in range(4)]
    assert [world_of(RunSpec(), name) for name in names] == ["w0", "w1", "w2", "w0"]
    weights = json.loads(initial_weights(2))
    assert weights == {"doc_prior": {"w0": [1.0] * 8, "w1": [1.0] * 8}}
