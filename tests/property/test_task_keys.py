"""Keys of runs of tasks: each action has what it depends on, and a change has its reason."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from pydantic import ValidationError
from trialog.proto import events as ev
from trialog.proto import runspec
from trialog.proto.changes import changes
from trialog.proto.keys import Keys
from trialog.proto.runspec import RunSpec, load, names_of, world_of, worlds_of
from trialog.proto.tasks import manifest
from trialog.proto.tasks.manifest import Manifest, TaskRef

KINDS = ("build_world", "generate", "verify", "judge_call", "judge", "train_step")
PARTS = ("environment", "agent", "solution", "verifier")
TRIAL = "s0-p0-n0"
BASE: dict[str, Any] = {
    "tasks": {"manifest": "0" * 64, "count": 2},
    "agent": "oracle",
    "learner": "none",
    "rubric": "task",
}
COMMAND = BASE | {"agent": "command"}
CHANGES = {
    "agent": {"agent": "nop"},
    "agent_options": {"agent": "command", "agent_options": {"command": "true"}},
    "trial_s": {"timeouts": {"trial_s": 7.0}},
    "network": {"network": "public"},
    "images": {"images": {"debian": "tar:/debian.tar"}},
    "provider": {"provider": "docker"},
    "seed": {"seed": 3},
    "code": {"versions": {"agent": "1", "verifier": "1"}},
    "scored": {"rubric": "instant"},
    "turns": {"max_turns": 2, "lr": 0.5, "n_samples": 2},
}
WORDS = st.sampled_from(["a", "b"])
REFS = st.builds(TaskRef, **dict.fromkeys(("name", "blob", *PARTS), WORDS))
MANIFESTS = st.tuples(REFS, REFS)
SETTINGS = st.sets(st.sampled_from(sorted(CHANGES)), max_size=3)


def spec_of(*changed: str) -> RunSpec:
    whole = dict(BASE)
    for name in sorted(changed):
        whole |= CHANGES[name]
    return RunSpec.model_validate(whole)


def request_of(spec: RunSpec) -> ev.RunRequested:
    return ev.RunRequested(spec.recorded(), "r", "w")


def keys_of(spec: RunSpec, tasks: Manifest) -> dict[str, str]:
    keys = Keys(spec, {}, tasks)
    verified = ev.TrialVerified(TRIAL, 0, "k", True, None, "t", "b", 2, reward=1.0)
    return {
        "build_world": keys.world("w0"),
        "generate": keys.generate(TRIAL, "w", "p"),
        "verify": keys.verify("w0", "t"),
        "judge_call": "",
        "judge": keys.judge(verified),
        "train_step": keys.step(1, "p", ["j"]),
    }


@given(SETTINGS, SETTINGS, MANIFESTS, MANIFESTS)
def test_a_kind_has_a_reason_if_its_key_differs(
    before: set[str], after: set[str], was: Manifest, now: Manifest
) -> None:
    """Of the first task; a reason may concern the second alone, and then it names that."""
    one, other = spec_of(*before), spec_of(*after)
    was, now = (was[0], now[1]), (now[0], now[1])
    found = changes(request_of(one), request_of(other), (was, now))
    keys = keys_of(one, was), keys_of(other, now)
    for kind in KINDS:
        assert bool(found[kind]) == (keys[0][kind] != keys[1][kind]), kind


@given(REFS, st.sampled_from(PARTS), WORDS)
def test_a_part_of_a_task_changes_the_keys_of_its_readers_alone(
    ref: TaskRef, part: str, value: str
) -> None:
    readers = {
        "environment": {"build_world", "verify"},
        "agent": {"generate"},
        "solution": {"generate"},
        "verifier": {"verify"},
    }
    changed = replace(ref, **{part: value})
    one, other = keys_of(spec_of(), (ref,)), keys_of(spec_of(), (changed,))
    differing = {kind for kind in KINDS if one[kind] != other[kind]}
    assert differing == (readers[part] if changed != ref else set())


@given(REFS, WORDS)
def test_only_the_oracle_reads_the_solution(ref: TaskRef, value: str) -> None:
    changed = replace(ref, solution=value)
    spec = spec_of("agent")
    assert keys_of(spec, (ref,)) == keys_of(spec, (changed,))


@given(REFS, WORDS, WORDS)
def test_neither_names_nor_bytes_enter_a_key(ref: TaskRef, name: str, blob: str) -> None:
    """A digest of the whole folder would repeat all of a task for a comment in its tests."""
    assert keys_of(spec_of(), (ref,)) == keys_of(spec_of(), (replace(ref, name=name, blob=blob),))


@given(MANIFESTS, MANIFESTS)
def test_a_batch_is_the_same_if_its_tasks_are(was: Manifest, now: Manifest) -> None:
    """So it can be recovered whole."""
    keys = [Keys(spec_of(), {}, tasks) for tasks in (was, now)]
    read = [[[getattr(ref, part) for part in PARTS] for ref in tasks] for tasks in (was, now)]
    inputs = [each.step_inputs(0, "p", ["w0", "w1"]) for each in keys]
    assert (inputs[0] == inputs[1]) == (read[0] == read[1])


@given(MANIFESTS)
def test_a_manifest_is_read_back(tasks: Manifest) -> None:
    assert manifest.decode(manifest.encode(tasks)) == tasks


@given(st.integers(1, 30), st.integers(1, 10), st.integers(1, 3))
def test_batches_hold_each_task_once(count: int, size: int, samples: int) -> None:
    steps = -(-count // size)
    whole = BASE | {
        "tasks": {"manifest": "0" * 64, "count": count},
        "prompts_per_step": size,
        "n_samples": samples,
        "n_steps": steps,
    }
    spec = RunSpec.model_validate(whole)
    names = [name for step in range(steps) for name in names_of(spec, step)]
    assert len(names) == len({str(name) for name in names}) == count * samples
    worlds = [world for step in range(steps) for world in worlds_of(spec, step)]
    assert worlds == [f"w{place}" for place in range(count)]
    assert {world_of(spec, name) for name in names} == set(worlds)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"agent": "oracle"}, "agent oracle works on tasks"),
        ({"network": "public"}, "network public is for tasks"),
        ({"provider": "docker"}, "provider docker is for tasks"),
        ({"images": {"a": "host"}}, "images has no meaning without tasks"),
        ({"agent_options": {"a": 1}}, "agent_options has no meaning without tasks"),
        (BASE | {"agent": "policy"}, "agent policy knows the reference world only"),
        (BASE | {"learner": "bandit"}, "learner must be none with tasks"),
        (BASE | {"provider": "null"}, "provider null runs no commands"),
        (BASE | {"agent": "import:a.b:C"}, "versions.agent must be declared"),
        (BASE | {"agent": "command"}, "agent_options.command says which program"),
        (BASE | {"agent": "import:a b:C"}, "'import:a b:C' is no agent; .*import:MODULE:CLASS"),
        (BASE | {"agent": "oracl"}, r"'oracl' is no agent \(did you mean oracle\?\); .*nop"),
        (BASE | {"agent_options": {"a": 1}}, "agent_options.a is no option of oracle; it has none"),
        (COMMAND | {"agent_options": {"comand": "x"}}, r"comand .*\(did you mean command\?\)"),
        (COMMAND | {"agent_options": {"command": " "}}, "agent_options.command is to be a text"),
        (COMMAND | {"agent_options": {"command": True}}, "program, words: quote it"),
        (COMMAND | {"agent_options": {"command": []}}, "agent_options.command is to be a text"),
        (COMMAND | {"agent_options": {"command": "a", "env": 3}}, "agent_options.env is to be"),
        (BASE | {"tasks": {}}, "give the path of a folder of tasks"),
        (BASE | {"images": {"a": "https://x"}}, "images.a\n.*tar:PATH .*oci:PATH .* or host"),
        (BASE | {"images": {"a": "tar:x.tar"}}, "images.a is tar:x.tar, whose path is relative"),
        (BASE | {"images": {"a": "oci:x:1"}}, "images.a is oci:x:1, whose path is relative"),
        (BASE | {"images": {"a": "host"}, "provider": "docker"}, "images.a is host, which is for"),
    ],
)
def test_what_cannot_be_meant_is_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        RunSpec.model_validate(settings)


def test_what_was_recorded_is_let_in() -> None:
    spec = spec_of()
    assert runspec.load(spec.recorded()).recorded() == spec.recorded()


def test_what_is_on_the_log_is_read_though_it_is_refused_by_now() -> None:
    spec = BASE | {"provider": "docker", "images": {"a": "host", "b": "tar:x"}}
    assert load(spec | {"agent_options": {"a": 1}}).agent_options == {"a": 1}


def ref(name: str, **parts: str) -> TaskRef:
    """Return a task whose parts are its own, but for what is given."""
    return TaskRef(name, **{part: f"{part} of {name}" for part in ("blob", *PARTS)} | parts)


def said(was: str, now: str, *changed: TaskRef, kind: str = "generate") -> list[str]:
    """Return what is said of tasks by their letters, of which some are changed."""
    by_name = {one.name: one for one in changed}
    before, after = (tuple(ref(name) for name in names) for names in (was, now))
    after = tuple(by_name.get(one.name, one) for one in after)
    asked = request_of(spec_of())
    return changes(asked, asked, (before, after))[kind]


def test_a_task_that_only_moved_is_not_called_changed() -> None:
    assert said("abc", "bc") == ["another task stands at its place: b, c (a is gone)"]
    assert said("abcd", "cd") == ["another task stands at its place: c, d (a, b are gone)"]
    assert said("ab", "ba", kind="verify") == ["another task stands at its place: b, a"]
    assert said("abc", "bc", ref("b", agent="x"))[0].startswith("another task stands at its place")


def test_a_task_that_changed_at_its_place_is_called_by_its_parts() -> None:
    assert said("ab", "ab", ref("b", agent="x")) == ["task changed: b"]
    both = ref("a", agent="x", solution="y")
    assert said("ab", "ab", both) == ["task changed: a", "solution changed: a"]
    other = ref("b", environment="x", verifier="y")
    assert said("ab", "ab", other, kind="verify") == ["environment changed: b", "tests changed: b"]
    assert said("ab", "ab", other) == []
    assert said("ab", "ab") == []


def test_a_task_that_is_new_is_called_so() -> None:
    assert said("a", "abcde") == ["task added: b, c, d and 1 more"]
    assert said("ab", "acd", ref("a", agent="x")) == [
        "task changed: a",
        "another task stands at its place: c (b is gone)",
        "task added: d",
    ]
