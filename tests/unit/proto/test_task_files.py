"""A task's files: paths, links, and what must be there."""

from __future__ import annotations

import pytest
from support.task_folders import STEPS, TOML, entries, link, task
from trialog.proto.tasks import files as limits
from trialog.proto.tasks.files import Entry, TaskProblem, check_path, part_of, resolve, settled
from trialog.proto.tasks.task import instruction, read_task

CHANGES = dict[str, "str | bytes | Entry | None"]


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/etc/passwd", "leads out"),
        ("../a", "leads out"),
        ("a/../../b", "leads out"),
        ("a//b", "leads out"),
        ("./a", "leads out"),
        ("", "leads out"),
        ("a\x00b", "control character"),
        ("a\nb", "control character"),
        ("a\x7f", "control character"),
        ("caf\udce9", "not UTF-8"),
        ("a" * 256, "too long"),
        ("ab/" * 400 + "c", "too long"),
        ("a/" * 40 + "c", "folders deep"),
    ],
)
def test_a_path_that_can_be_none_is_refused(path: str, said: str) -> None:
    with pytest.raises(TaskProblem, match=said) as caught:
        check_path(path)
    assert len(caught.value.file) < 600
    caught.value.file.encode()  # can be shown


def test_a_name_that_is_no_utf8_is_shown_by_its_bytes() -> None:
    with pytest.raises(TaskProblem) as caught:
        check_path("tests/caf\udce9.txt")
    assert caught.value.file == "tests/caf\\xe9.txt"


def test_ordinary_paths_are_taken() -> None:
    for path in ("a", "tests/é.txt", "tests/.hidden", "a b/c'd", "x" * 255):
        assert check_path(path) == path


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("environment/Dockerfile", "environment"),
        ("environment", "environment"),
        ("tests/a/b", "tests"),
        ("steps/one/tests/a", "steps/one/tests"),
        ("steps/one/instruction.md", "steps/one/instruction.md"),
        ("instruction.md", "instruction.md"),
        ("README.md", "README.md"),
    ],
)
def test_parts(path: str, part: str) -> None:
    assert part_of(path) == part


def test_a_link_within_its_part_stays_a_link() -> None:
    files = entries({"tests/data/a": "1", "tests/data/b": link("a"), "tests/c": link("./data/b")})
    assert settled(files)["tests/data/b"] == link("a")
    assert settled(files)["tests/c"] == link("./data/b")
    folder = entries({"environment/x/a": "1", "environment/y": link("x")})
    assert settled(folder)["environment/y"] == link("x")


def test_a_link_that_leads_nowhere_within_its_part_is_the_tasks_affair() -> None:
    files = entries({"environment/later": link("made/by/the/build")})
    assert settled(files)["environment/later"] == link("made/by/the/build")


def test_a_link_to_another_part_becomes_the_file() -> None:
    files = entries({"tests/expected": link("../environment/data"), "environment/data": "42"})
    assert settled(files)["tests/expected"] == Entry("file", b"42")
    around = entries(
        {
            "tests/a": link("../environment/b"),
            "environment/b": link("../tests/c"),
            "tests/c": "through another part and back",
        }
    )
    assert settled(around)["tests/a"].data == b"through another part and back"
    assert settled(around)["environment/b"].data == b"through another part and back"


def test_an_instruction_may_be_a_link() -> None:
    changes: CHANGES = {"instruction.md": link("docs/say.md"), "docs/say.md": "Do it."}
    assert task(changes).files["instruction.md"].data == b"Do it."


@pytest.mark.parametrize(
    ("changes", "file", "said"),
    [
        ({"tests/l": link("/etc/passwd")}, "tests/l", "leads out of the task's folder"),
        ({"tests/l": link("../../other")}, "tests/l", "leads out of the task's folder"),
        ({"tests/l": link("")}, "tests/l", "leads out of the task's folder"),
        ({"tests/l": link("m"), "tests/m": link("../../x")}, "tests/l", "leads out"),
        ({"tests/l": link("l")}, "tests/l", "in a circle"),
        ({"tests/l": link("m"), "tests/m": link("l")}, "tests/l", "in a circle"),
        ({"tests/l": link("../environment/no")}, "tests/l", "leads nowhere"),
        ({"tests/l": link("../environment")}, "tests/l", "not handed over together"),
        ({"tests": link("environment"), "tests/test.sh": None}, "tests", "not handed over"),
        ({"tests/l": link("../tests/../../x")}, "tests/l", "leads out"),
        ({"tests/d": link(".."), "tests/l": link("d/../../x")}, "tests/d", "not handed over"),
    ],
)
def test_a_link_out_of_the_folder_is_refused(changes: CHANGES, file: str, said: str) -> None:
    with pytest.raises(TaskProblem, match=said) as caught:
        settled(entries(changes))
    assert caught.value.file == file


def test_a_chain_of_links_has_an_end() -> None:
    chain = {f"tests/l{n}": link(f"l{n + 1}") for n in range(60)}
    with pytest.raises(TaskProblem, match="in a circle"):
        settled(entries(chain))
    assert resolve(entries({"tests/a": link("b")}), "tests/a") == "tests/b"


def test_nothing_lies_below_a_file_or_a_link() -> None:
    for top in (Entry("file", b""), link("environment")):
        with pytest.raises(TaskProblem, match="lies below tests/x, which is no folder"):
            settled(entries() | {"tests/x": top, "tests/x/y": Entry("file", b"")})


@pytest.mark.parametrize(
    ("changes", "file", "said"),
    [
        ({"task.toml": None}, "task.toml", "is missing"),
        ({"task.toml": Entry("dir")}, "task.toml", "is missing"),
        ({"task.toml": "["}, "task.toml", "is no TOML"),
        ({"instruction.md": None}, "instruction.md", "is missing"),
        ({"instruction.md": " \n\t\n"}, "instruction.md", "is empty"),
        ({"instruction.md": "# canary 1234\n\n"}, "instruction.md", "is empty"),
        ({"instruction.md": b"caf\xe9"}, "instruction.md", "is not UTF-8 at byte 3"),
        ({"tests/test.sh": None}, "tests/test.sh", "is missing"),
        ({"environment/Dockerfile": None}, "environment/Dockerfile", "is missing"),
        (STEPS | {"steps/two/instruction.md": None}, "steps/two/instruction.md", "is missing"),
        (
            STEPS | {"tests/test.sh": None},
            "steps/one/tests/test.sh",
            "is missing",
        ),
    ],
)
def test_what_must_be_there_is_named(changes: CHANGES, file: str, said: str) -> None:
    with pytest.raises(TaskProblem, match=said) as caught:
        task(changes)
    assert caught.value.file == file


def test_what_need_not_be_there() -> None:
    image = TOML + 'docker_image = "debian:bookworm-slim"\n'
    assert task({"solution/solve.sh": None}).layout.solution(None) is None
    assert task({"task.toml": image, "environment/Dockerfile": None}).warnings == ()
    own = TOML + "[verifier.environment]\n"
    baked = task({"task.toml": own, "tests/test.sh": None, "tests/Dockerfile": "FROM x\n"})
    image_ = baked.layout.verifier_image(None)
    assert image_ is not None and (image_.context, image_.bundled) == ("tests", True)


def test_warnings_of_files_that_are_not_read() -> None:
    found = task(
        STEPS
        | {
            "instruction.md": "of no step",
            "steps/one/trajectory.json": "{}",
            "steps/three/instruction.md": "not in task.toml",
            "tests/.harborignore": "*.pyc",
            "task.toml": STEPS["task.toml"].replace(  # type: ignore[union-attr]
                "[environment]", '[environment]\ndocker_image = "x"'
            ),
        }
    )
    assert sorted(warning.partition(" is ignored")[0] for warning in found.warnings) == [
        "environment/Dockerfile",
        "instruction.md",
        "steps/one/trajectory.json",
        "steps/three",
        "tests/.harborignore",
    ]


def test_canary_lines_are_not_the_agents() -> None:
    text = b"<!-- benchmark canary GUID 1 -->\n# CANARY 2\n\n\n# Title\nDo it. # canary\n"
    assert instruction("instruction.md", text) == "# Title\nDo it. # canary\n"


def test_where_a_step_has_what() -> None:
    changes = STEPS | {"steps/one/solution/solve.sh": "1", "steps/one/tests/more.txt": "2"}
    found = task(changes)
    one, two = found.config.steps
    layout = found.layout
    assert layout.tests(one) == ("tests", "steps/one/tests")
    assert layout.tests(two) == ("tests", "steps/two/tests")
    assert (layout.solution(one), layout.solution(two)) == ("steps/one/solution", "solution")
    assert (layout.workdir(one), layout.workdir(two)) == (None, "steps/two/workdir")
    # A step's own folder counts even where it has no script: then there is nothing to run.
    partly = task(changes | {"steps/two/solution/notes": "x"})
    assert partly.layout.solution(partly.config.steps[1]) is None


def test_a_verifiers_image_is_the_steps_before_the_tasks() -> None:
    text = STEPS["task.toml"]
    assert isinstance(text, str)
    toml = text.replace(
        '[[steps]]\nname = "one"',
        '[verifier.environment]\nmemory_mb = 7\n[[steps]]\nname = "one"\n'
        '[steps.verifier.environment]\ndocker_image = "judge:1"',
    )
    found = task(STEPS | {"task.toml": toml, "steps/two/tests/Dockerfile": "FROM x\n"})
    one, two = found.config.steps
    first, second = found.layout.verifier_image(one), found.layout.verifier_image(two)
    assert first is not None and second is not None
    assert (first.docker_image, first.bundled) == ("judge:1", True)
    assert (second.context, second.docker_image) == ("steps/two/tests", None)
    assert second.environment.memory_mb == 7
    anew = task({"task.toml": TOML + '[verifier]\nenvironment_mode = "separate"\n'})
    image = anew.layout.verifier_image(None)
    assert image is not None and (image.context, image.bundled) == ("environment", False)
    assert task().layout.verifier_image(None) is None


def test_a_tasks_limits_hold_for_what_they_say() -> None:
    assert str(limits.too_large("a/b", 5 << 30)) == (
        "a/b: has 5368709120 bytes; the limit of a file is 64 MiB"
    )
    assert "128 MiB" in str(limits.too_much()) and "20000" in str(limits.too_many())


def test_reading_depends_on_no_order() -> None:
    files = entries()
    backwards = dict(reversed(files.items()))
    assert read_task("a", files) == read_task("a", backwards)
