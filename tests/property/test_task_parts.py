"""A task's digests: each is of exactly what its reader sees, whatever else there is."""

from __future__ import annotations

import gzip
import io
from dataclasses import replace
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.task_folders import STEPS, STEPS_TOML, TOML, entries, ref
from trialog.proto.tasks.files import Entry
from trialog.proto.tasks.manifest import TaskRef, decode, encode
from trialog.proto.tasks.parts import ref_of
from trialog.proto.tasks.task import read_task
from trialog.spine.tasks.archives import tasks_in
from trialog.spine.tasks.packing import pack, pack_many, unpack

Part = Literal["environment", "agent", "solution", "verifier"]
PARTS: tuple[Part, ...] = ("environment", "agent", "solution", "verifier")
FULL = STEPS | {"steps/one/solution/solve.sh": "1", "steps/one/tests/test.sh": "2"}
GATED = STEPS_TOML.replace('name = "one"', 'name = "one"\nmin_reward = 0.5')

names = st.text("abcxyz.-_é ", min_size=1, max_size=12).filter(lambda name: name.strip(". ") != "")
contents = st.binary(max_size=40)


def changed(before: TaskRef, after: TaskRef) -> set[str]:
    """Return which parts differ."""
    return {part for part in PARTS if getattr(before, part) != getattr(after, part)}


@given(
    folder=st.sampled_from(
        [
            ("environment", {"environment"}),
            ("environment/deep/er", {"environment"}),
            ("tests", {"verifier"}),
            ("tests/data", {"verifier"}),
            ("solution", {"solution"}),
            ("steps/one/tests", {"verifier"}),
            ("steps/two/solution", {"solution"}),
            ("steps/two/workdir", {"agent"}),
            ("docs", set[str]()),
            (".", set[str]()),
        ]
    ),
    name=names,
    data=contents,
    executable=st.booleans(),
)
def test_a_file_changes_the_part_it_lies_in_and_no_other(
    folder: tuple[str, set[str]], name: str, data: bytes, executable: bool
) -> None:
    home, parts = folder
    path = f"new-{name}" if home == "." else f"{home}/new-{name}"
    before = ref(FULL)
    added = ref(FULL | {path: Entry("file", data, executable)})
    assert changed(before, added) == parts
    other = ref(FULL | {path: Entry("file", data + b"!", executable)})
    assert changed(added, other) == parts
    mode = ref(FULL | {path: Entry("file", data, not executable)})
    assert changed(added, mode) == parts
    moved = ref(FULL | {f"{path}-moved": Entry("file", data, executable)})
    assert changed(added, moved) == parts


@given(text=st.text(min_size=1, max_size=80).filter(lambda text: text.strip() != ""))
def test_an_instruction_is_the_agents_alone(text: str) -> None:
    before = ref()
    after = ref({"instruction.md": "Other. " + text})
    assert changed(before, after) == {"agent"}


@given(order=st.permutations(sorted(entries(FULL))))
def test_the_order_in_which_files_were_read_is_no_part(order: list[str]) -> None:
    files = entries(FULL)
    shuffled = {path: files[path] for path in order}
    assert ref_of(read_task("answer", shuffled), "") == replace_blob(ref(FULL))


def replace_blob(one: TaskRef) -> TaskRef:
    return TaskRef(one.name, "", one.environment, one.agent, one.solution, one.verifier)


@given(
    extra=st.dictionaries(
        st.tuples(st.sampled_from(["environment", "tests", "solution", "docs"]), names).map(
            "/x-".join
        ),
        contents,
        max_size=6,
    )
)
def test_packed_archived_and_unpacked_it_is_the_same_task(extra: dict[str, bytes]) -> None:
    one = read_task("answer", entries(FULL | extra))
    assert unpack(pack(one.files)) == one.files
    out = io.BytesIO()
    pack_many([("answer", one.files)], out)
    ((_, again),) = tasks_in(io.BytesIO(gzip.decompress(out.getvalue())))
    assert again == one
    assert pack(read_task("answer", one.files).files) == pack(one.files)


SETTINGS: list[tuple[str, str, set[str]]] = [
    ("[environment]\nmemory_mb = 64", "[environment]\nmemory_mb = 65", {"environment"}),
    ('[environment]\nworkdir = "/a"', '[environment]\nworkdir = "/b"', {"environment"}),
    ('[environment.env]\nA = "1"', '[environment.env]\nA = "${X:-2}"', {"environment"}),
    ('[environment]\nnetwork_mode = "public"', "[environment]", {"environment"}),
    ("[environment]", '[environment.healthcheck]\ncommand = "true"', {"environment"}),
    ("[agent]\ntimeout_sec = 1", "[agent]\ntimeout_sec = 2", {"agent"}),
    ("[agent]", '[agent]\nuser = "me"', {"agent"}),
    ('[solution.env]\nA = "1"', '[solution.env]\nA = "2"', {"solution"}),
    ("[verifier]\ntimeout_sec = 1", "[verifier]\ntimeout_sec = 2", {"verifier"}),
    ("[verifier]", '[verifier]\nenvironment_mode = "separate"', {"verifier"}),
    ("[verifier]", "[verifier.environment]\nmemory_mb = 9", {"verifier"}),
    ('[verifier.env]\nA = "1"', '[verifier.env]\nA = "2"', {"verifier"}),
    ('artifacts = ["/a"]', 'artifacts = ["/b"]', {"verifier"}),
    # What a hook leaves is part of the state that is graded.
    ("[verifier]", '[[verifier.collect]]\ncommand = "dump"', {"agent"}),
    # Nobody's: described for people, or how long a build may take.
    ('[task]\nname = "a/b"', '[task]\nname = "a/c"', set()),
    ("[metadata]\nlevel = 1", "[metadata]\nlevel = 2", set()),
    ("[environment]\nbuild_timeout_sec = 1", "[environment]\nbuild_timeout_sec = 2", set()),
    ("colour = 1", "colour = 2", set()),
    # Other spellings of the same.
    ("[environment]\nmemory_mb = 2048", '[environment]\nmemory = "2G"', set()),
    ('[environment]\nnetwork_mode = "public"', "[environment]\nallow_internet = true", set()),
    ('[environment.env]\nA = "1"', '[environment.env]\nA = "${X:-1}"', set()),
    ('schema_version = "1.0"', 'version = "1.3"', set()),
    ("[verifier]", "# a comment\n[verifier]\ntimeout_sec = 600", set()),
    ('artifacts = ["/a"]', '[[artifacts]]\nsource = "/a"', set()),
]


@pytest.mark.parametrize(("one", "other", "parts"), SETTINGS)
def test_a_setting_changes_the_parts_of_those_who_read_it(
    one: str, other: str, parts: set[str]
) -> None:
    before, after = ref({"task.toml": one}), ref({"task.toml": other})
    assert changed(before, after) == parts
    assert (before.blob == after.blob) is False


STEP_SETTINGS: list[tuple[str, str, set[str]]] = [
    ("[steps.agent]\ntimeout_sec = 1", "[steps.agent]\ntimeout_sec = 2", {"agent"}),
    ("", '[steps.healthcheck]\ncommand = "true"', {"agent"}),
    ("", 'artifacts = ["/a"]', {"verifier"}),
    ("", "[steps.verifier]\ntimeout_sec = 2", {"verifier"}),
    ("", '[[steps.verifier.collect]]\ncommand = "dump"', {"agent"}),
    ("", "min_reward = 0.5", {"verifier", "agent"}),
]


@pytest.mark.parametrize(("one", "other", "parts"), STEP_SETTINGS)
def test_a_steps_setting_likewise(one: str, other: str, parts: set[str]) -> None:
    before = ref(FULL | {"task.toml": f"{STEPS_TOML}\n{one}"})
    after = ref(FULL | {"task.toml": f"{STEPS_TOML}\n{other}"})
    assert changed(before, after) == parts


def test_the_strategy_is_the_verifiers_and_its_default_the_mean() -> None:
    mean = ref(FULL | {"task.toml": 'multi_step_reward_strategy = "mean"\n' + STEPS_TOML})
    final = ref(FULL | {"task.toml": 'multi_step_reward_strategy = "final"\n' + STEPS_TOML})
    assert changed(ref(FULL), mean) == set()
    assert changed(mean, final) == {"verifier"}


def test_with_a_gate_what_grades_is_part_of_what_is_done() -> None:
    gated = FULL | {"task.toml": GATED}
    tests = {"tests/test.sh": "another"}
    assert changed(ref(FULL), ref(FULL | tests)) == {"verifier"}
    assert changed(ref(gated), ref(gated | tests)) == {"verifier", "agent"}


def test_steps_are_in_their_order() -> None:
    other = TOML + '[[steps]]\nname = "two"\n[[steps]]\nname = "one"\n'
    assert changed(ref(FULL), ref(FULL | {"task.toml": other})) == {"agent", "verifier"}


def test_a_link_is_what_it_says() -> None:
    links: Any = {"tests/l": Entry("symlink", target="test.sh")}
    others: Any = {"tests/l": Entry("symlink", target="./test.sh")}
    copies: Any = {"tests/l": Entry("file", entries()["tests/test.sh"].data, True)}
    assert changed(ref(links), ref(others)) == {"verifier"}
    assert changed(ref(links), ref(copies)) == {"verifier"}


def test_parts_of_one_content_are_no_equals() -> None:
    one = ref()
    assert len({getattr(one, part) for part in PARTS}) == len(PARTS)


def test_the_name_is_no_part_and_a_manifest_comes_back() -> None:
    one, other = ref(name="a"), ref(name="b")
    assert changed(one, other) == set()
    assert decode(encode((one, other))) == (one, other)


def test_an_executable_entry_is_told_from_a_plain_one() -> None:
    files = entries()
    plain = dict(files) | {"tests/test.sh": replace(files["tests/test.sh"], executable=False)}
    after = ref_of(read_task("answer", plain), "")
    assert changed(ref(), after) == {"verifier"}
