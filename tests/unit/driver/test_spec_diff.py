"""What a fork changed, field by field."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace
from support import facts as f
from trialog.driver.api.spec_diff import changes
from trialog.proto.rubric import BUILT_IN

PARENT = f.run_requested()
RUBRIC: dict[str, Any] = {
    "name": "careful",
    "criteria": [
        {"name": "style", "prompt": "Clear?" * 100},
        {"name": "right", "check": "correct"},
    ],
}


def differing(*, before: dict[str, Any] | None = None, **settings: Any) -> dict[str, Any]:
    """Return what differs, by field."""
    one, other = f.run_requested(**before or {}), f.run_requested(**settings)
    return {each["field"]: (each["from"], each["to"]) for each in changes(one, other)}


def test_a_fork_that_changes_nothing_shows_nothing() -> None:
    assert changes(PARENT, replace(PARENT, parent=f.RUN, mode="rescore", from_step=1)) == []


def test_settings_are_named_by_their_dotted_paths() -> None:
    found = differing(lr=1.0, faults={"flaky_trial_rate": 0.5}, labels={"a.b": "c"})
    assert found == {
        "lr": (2.0, 1.0),
        "faults.flaky_trial_rate": (0.0, 0.5),
        "labels.a.b": (None, "c"),
    }
    straggler = {"after_fraction": 0.5, "grace_s": 1.0}
    found = differing(group_policy={"straggler": straggler})
    assert found == {"group_policy.straggler": (None, straggler)}


def test_a_rubric_is_its_name_and_digest_and_what_differs_in_it() -> None:
    (change,) = changes(PARENT, f.run_requested(rubric="v2-efficiency"))
    v1, v2 = BUILT_IN["v1"], BUILT_IN["v2-efficiency"]
    assert (change["field"], change["from"], change["to"]) == (
        "rubric",
        {"name": "v1", "digest": v1.digest},
        {"name": "v2-efficiency", "digest": v2.digest},
    )
    assert [each["name"] for each in change["rubric"]["changed"]] == ["efficiency", "tidiness"]
    (change,) = changes(f.run_requested(rubric=RUBRIC), PARENT)
    assert {each["name"] for each in change["rubric"]["removed"]} == {"style", "right"}


def test_a_long_list_of_differences_is_told_by_its_length() -> None:
    slowed = {f"s0-p{n}-n0": 1.0 for n in range(30)}
    found = differing(prompts_per_step=30, faults={"straggler": slowed, "hang": list(slowed)})
    assert found["faults.straggler"] == ({}, "30 entries")
    assert found["faults.hang"] == ([], "30 entries")
    few = dict(list(slowed.items())[:29]) | {"s0-p29-n0": 2.0}
    found = differing(
        before={"prompts_per_step": 30, "faults": {"straggler": slowed}},
        prompts_per_step=30,
        faults={"straggler": few},
    )
    assert found == {"faults.straggler.s0-p29-n0": (1.0, 2.0)}


def test_code_that_changed_is_named_and_code_that_nobody_knew_is_not() -> None:
    one = replace(PARENT, code={"agent:policy": "a1", "verifier:reference": "", "learner:x": "l"})
    other = replace(
        PARENT, code={"agent:policy": "a2", "verifier:reference": "v", "learner:x": "l"}
    )
    (change,) = changes(one, other)
    assert (change["field"], change["from"], change["to"]) == ("code.agent:policy", "a1", "a2")
