"""The commands about rubrics, in this process, against a server of the API's contract."""

import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.fake_api import FakeDriver, Served, serve
from trialog.cli import main
from trialog.cli.rubricfile import load_rubric_file
from trialog.cli.runfile import BadRunFile
from trialog.proto.rubric import Rubric

EXAMPLES = Path(__file__).parents[3] / "examples" / "rubrics"
Trialog = Callable[..., str]


@pytest.fixture
def served() -> Iterator[Served]:
    with serve(FakeDriver()) as server:
        yield server


@pytest.fixture
def trialog(
    served: Served,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Trialog:
    monkeypatch.setenv("TRIALOG_URL", served.url)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))

    def call(*arguments: str, text: str = "") -> str:
        monkeypatch.setattr(sys, "argv", ["trialog", *arguments])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        with pytest.raises(SystemExit) as ended:
            main.run()
        said = capsys.readouterr()
        assert ended.value.code == 0, said.err
        return said.out

    return call


def rows(table: str) -> list[list[str]]:
    return [line.split() for line in table.splitlines() if line.strip(" ─━╇┿┼")]


def test_a_file_is_put_once_and_again_and_anew(trialog: Trialog, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("name: mine\ncriteria:\n  - {name: a, scale: [1, 5], prompt: Clear}\n")
    assert trialog("rubrics", "put", str(path)) == "mine@1 (new)\n"
    assert trialog("rubrics", "put", str(path)) == "mine@1 (there already)\n"
    assert trialog("rubrics", "put", "-", text='{"name": "mine", "criteria": [{"name": "b"}]}') == (
        "mine@2 (new)\n"
    )
    assert trialog("rubrics", "put", str(path)) == (
        "mine@1 (there already; the latest is mine@2)\n"
    )
    assert trialog("rubrics", "put", str(path), "--name", "yours") == "yours@1 (new)\n"
    kept = json.loads(trialog("rubrics", "put", str(path), "-o", "json"))
    assert list(kept) == ["name", "version", "digest", "added", "latest"]
    assert (kept["version"], kept["added"], kept["latest"]) == (1, False, 2)


def test_rubrics_are_listed(trialog: Trialog, served: Served) -> None:
    trialog("rubrics", "put", str(EXAMPLES / "careful.yaml"))
    served.driver.rubrics.page_size = 2
    first = rows(trialog("rubrics"))
    assert [row[0] for row in first] == ["rubric", "careful", "instant"]
    assert first[2][1:] == ["1", "check", "1", "built", "in"]
    names = [one["name"] for one in json.loads(trialog("rubrics", "--all", "-o", "json"))]
    assert names == ["careful", "instant", "task", "v1", "v2-efficiency"]


def test_a_rubric_is_shown_with_its_versions(trialog: Trialog, served: Served) -> None:
    trialog("rubrics", "put", str(EXAMPLES / "careful.yaml"))
    shown = trialog("rubrics", "show", "careful")
    for words in ("careful@1", "per_criterion", "1 to 5", "check: correct", "The agent reads"):
        assert words in shown
    assert "version" not in shown, "one version is no list of them"
    trialog("rubrics", "put", "-", text="name: careful\ncriteria: [{name: a}]")
    served.driver.rubrics.page_size = 1
    assert [row[0] for row in rows(trialog("rubrics", "show", "careful"))[-2:]] == ["2", "1"]
    found = json.loads(trialog("rubrics", "show", "careful", "-o", "json"))
    assert (found["version"], [one["version"] for one in found["versions"]]) == (2, [2, 1])
    old = json.loads(trialog("rubrics", "show", "careful@1", "-o", "json"))
    assert Rubric.model_validate_json(json.dumps(old["rubric"])).name == "careful"
    assert "versions" not in old


def test_two_are_compared(trialog: Trialog) -> None:
    old = "name: mine\ncriteria: [{name: a, scale: [1, 5]}, {name: b}, {name: c, check: correct}]"
    new = "name: mine\nscoring: holistic\ncriteria: [{name: d}, {name: b}, {name: a, weight: 2}]"
    trialog("rubrics", "put", "-", text=old)
    trialog("rubrics", "put", "-", text=new)
    assert rows(trialog("rubrics", "diff", "mine@1", "mine"))[-6:] == [
        ["-", "scoring", "per_criterion", "holistic"],
        ["a", "weight", "1", "2"],
        ["a", "scale", "1", "to", "5", "0", "to", "1"],
        ["c", "removed", "check:", "correct", "-"],
        ["d", "added", "-", "by", "its", "name"],
        ["-", "order", "-", "another"],
    ]
    found = json.loads(trialog("rubrics", "diff", "mine@1", "mine@2", "-o", "json"))
    assert (found["from"]["version"], found["to"]["version"]) == (1, 2)
    assert trialog("rubrics", "diff", "v1", "v1@1") == "nothing is different\n"


def test_long_texts_are_compared_line_by_line(trialog: Trialog) -> None:
    for last in ("to 5\\x1b[31m", "to 4"):
        text = f'name: a\ncriteria: [{{name: b, prompt: "How?\\nAnswer 1 {last}"}}]'
        trialog("rubrics", "put", "-", text=text)
    shown = trialog("rubrics", "diff", "a@1", "a@2")
    assert rows(shown)[1] == ["b", "prompt", "see", "below", "see", "below"]
    lines = ["b, prompt:", "--- a@1", "+++ a@2", "@@ -1,2 +1,2 @@", " How?"]
    changed = [r"-Answer 1 to 5\x1b[31m", "+Answer 1 to 4"]
    assert shown.splitlines()[-7:] == [*lines, *changed]


def test_what_a_prompt_holds_does_not_reach_the_terminal(trialog: Trialog) -> None:
    evil = json.dumps(
        {"name": "mine", "criteria": [{"name": "a", "prompt": "\x1b[31m[red]\u202e"}]}
    )
    trialog("rubrics", "put", "-", text=evil)
    for shown in (
        trialog("rubrics", "show", "mine"),
        trialog("rubrics", "diff", "instant", "mine"),
    ):
        assert "\x1b" not in shown and "\u202e" not in shown
        assert r"\x1b[31m[red]" in shown


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name: a\ncriteria: []", "criteria: should have at least one criterion"),
        ("criteria: [{name: a}]", "name: Field required"),
        ("name: a\ncriteria: [{name: a, wieght: 1}]", "criteria[0].wieght: unknown key; did you"),
        ("name: a\ncriterias: []", "criterias: unknown key; did you mean criteria?"),
        ("name: a\ncriteria: [{name: a, weight: -1}]", "criteria[0].weight: should be greater"),
        ("name: a\ncriteria: [{name: a, weight: .nan}]", "criteria[0].weight: should be"),
        ("name: a\ncriteria: [{name: a, scale: [5, 1]}]", "criteria[0].scale: should be [low, h"),
        ("name: a\ncriteria: [{name: a, scale: [1, 1e1]}]", "criteria[0].scale[1]: should be"),
        ("name: a\ncriteria: [{name: a}, {name: a}]", "criteria: two criteria have the same name"),
        ("name: a\nname: b", "line 2, column 1: the key 'name' is given twice"),
        ('{"name": "a", "criteria": ', "line 1, column"),
        ("", "is empty: expected a rubric: a name and criteria"),
        ("- a", "expected a rubric: a name and criteria, found a list"),
    ],
)
def test_each_mistake_in_a_file_is_named(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "rubric.yaml"
    path.write_text(text)
    with pytest.raises(BadRunFile) as refused:
        load_rubric_file(str(path))
    assert expected in str(refused.value)
