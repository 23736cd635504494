"""Run files: what is read, and how each mistake is named."""

import io
import sys
from pathlib import Path

import pytest
from trialog.cli.runfile import MAX_BYTES, BadRunFile, load_run_file
from trialog.proto.runspec import RunSpec


def load(tmp_path: Path, text: str | bytes, *settings: str):
    path = tmp_path / "run.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return load_run_file(str(path), settings)


def test_only_what_was_given_is_sent(tmp_path: Path):
    text = "n_steps: 2\nlr: 1\nfaults: {flaky_trial_rate: .25, hang: [s0-p0-n0]}\n"
    assert load(tmp_path, text) == {
        "n_steps": 2,
        "lr": 1.0,
        "faults": {"flaky_trial_rate": 0.25, "hang": ["s0-p0-n0"]},
    }


def test_a_whole_rubric_is_read(tmp_path: Path):
    text = "rubric: {name: mine, criteria: [{name: short, prompt: Is it short}]}"
    body = load(tmp_path, text)
    assert body["rubric"]["criteria"] == [{"name": "short", "prompt": "Is it short"}]
    RunSpec.model_validate(body)


@pytest.mark.parametrize("name", ["v1", "mine", "mine@2"])
def test_which_rubrics_there_are_is_for_the_server_to_say(tmp_path: Path, name: str):
    assert load(tmp_path, f"rubric: {name}\nn_steps: 1") == {"rubric": name, "n_steps": 1}
    assert load(tmp_path, "n_steps: 1", f"rubric={name}")["rubric"] == name


def test_settings_go_over_the_file(tmp_path: Path):
    body = load(
        tmp_path,
        "n_steps: 2\n",
        "n_steps=4",
        "faults.crash_driver_after_step=1",
        "faults.straggler.s0-p0-n0=2.5",
        "labels.team.x/y=blue",
        "seed=null",
        "rubric=v2-efficiency",
    )
    assert body == {
        "n_steps": 4,
        "faults": {"crash_driver_after_step": 1, "straggler": {"s0-p0-n0": 2.5}},
        "labels": {"team.x/y": "blue"},
        "seed": None,
        "rubric": "v2-efficiency",
    }


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"n_steps: 1")))
    assert load_run_file("-") == {"n_steps": 1}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("faults: {flaky_trial_rate: 1.5}", "faults.flaky_trial_rate: should be less than"),
        ("n_steps: '3'", "n_steps: should be a valid integer, not the text '3'"),
        ("n_steps: true", "n_steps: should be a valid integer"),
        ("n_steps: -1", "n_steps: should be greater than or equal to 1"),
        ("n_worlds: 0", "n_worlds: should be greater than or equal to 1"),
        ("lr: 1e-3", "(YAML reads 1e-3 as text: write 0.001)"),
        ("lr: .nan", "lr: should be"),
        ("n_step: 3", "n_step: unknown key; did you mean n_steps?"),
        ("faults: {zzz: 1}", "faults.zzz: unknown key; known are flaky_trial_rate, judge"),
        ("group_policy: {straggler: {grace: 1}}", "straggler.grace: unknown key; did you mean g"),
        ("rubric: {name: x, criteria: [{name: a, weigth: 1}]}", "criteria[0].weigth: unknown key"),
        ("rubric: 4", "rubric: should be a valid string"),
        ("rubric: V9", "rubric: 'V9' names no rubric: expected NAME or NAME@VERSION"),
        ("rubric: v9@0", "rubric: 'v9@0' names no rubric: expected NAME or NAME@VERSION"),
        ("faults: {hang: [s0-p0]}", "faults.hang[0]: String should match"),
        ("faults: {hang: [s9-p0-n0]}", "faults.hang.0 names s9-p0-n0, which is no trial of"),
        ("labels: {A B: x}", "labels.A B: String should match"),
        ("labels: {since: 2026-11-30}", "labels.since: should be a valid string"),
        ("prompts_per_step: 20000", "prompts_per_step x n_samples is 40000; the limit is 20000"),
        ("", "is empty"),
        ("# only a comment", "is empty"),
        ("- n_steps", "found a list"),
        ("n_steps: 1\nn_steps: 2", "line 2, column 1: the key 'n_steps' is given twice"),
        ("faults:\n  hang: [\n", "line 3, column 1: "),
        ("n_steps: 1\n---\nn_steps: 2", "line 2, column 1: but found another document"),
        ("n_steps: !!python/object:os.system 1", "line 1, column 10: could not determine"),
        ("labels: {a: 2026-13-99}", "line 1, column 13: holds a value that YAML cannot read"),
        ("a: 1\nx: !!timestamp foo", "line 2, column 4: holds a value that YAML cannot read as t"),
        ('x: !!float ""', "line 1, column 4: holds a value that YAML cannot read as float"),
        ('x: !!int ""', "line 1, column 4: holds a value that YAML cannot read as int"),
        ("x: !!bool zz", "line 1, column 4: holds a value that YAML cannot read as bool"),
        (f"lr: 1{':00' * 200}.5", "line 1, column 5: holds a value that YAML cannot read as float"),
        ("!!bool zz: 1", "line 1, column 1: holds a value that YAML cannot read as bool"),
        (b"\xff\xfe\x00", "is not a YAML text"),
        (b"labels: {a: '\x07'}", "is not a YAML text"),
        ("[" * 5000, "is nested too deeply"),
        ("? [a, b]\n: 1", "line 1, column 3: found unhashable key"),
    ],
)
def test_each_mistake_is_named(tmp_path: Path, text: str | bytes, expected: str):
    with pytest.raises(BadRunFile) as refused:
        load(tmp_path, text)
    message = str(refused.value)
    assert expected in message
    assert all(line.startswith(str(tmp_path)) for line in message.splitlines())


def test_every_mistake_has_its_line(tmp_path: Path):
    with pytest.raises(BadRunFile) as refused:
        load(tmp_path, "n_steps: 0\nn_worlds: 0\nrubric: {name: x, criteria: []}\n")
    assert [problem.split(":")[0] for problem in refused.value.problems] == [
        "n_steps",
        "n_worlds",
        "rubric.criteria",
    ]


@pytest.mark.parametrize("criterion", ["{name: A}", "{name: a, weight: '1'}", "{name: a, x: 1}"])
def test_a_mistake_in_a_rubric_is_one_line(tmp_path: Path, criterion: str):
    with pytest.raises(BadRunFile) as refused:
        load(tmp_path, f"rubric: {{name: x, criteria: [{criterion}]}}")
    (problem,) = refused.value.problems
    assert problem.startswith("rubric.criteria[0].")


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("n_steps", "--set n_steps: expected KEY=VALUE"),
        ("=3", "expected KEY=VALUE"),
        ("a..b=3", "expected KEY=VALUE"),
        ("n_steps.x=3", "--set n_steps.x: n_steps holds no settings"),
        ("n_steps=[", "--set n_steps: line 1, column 2"),
        ('n_steps=!!int ""', "--set n_steps: line 1, column 1: holds a value that YAML cannot"),
        ("lr=fast", "lr: should be a valid number"),
    ],
)
def test_a_bad_setting_is_named(tmp_path: Path, setting: str, expected: str):
    with pytest.raises(BadRunFile) as refused:
        load(tmp_path, "n_steps: 1", setting)
    assert expected in str(refused.value)


def test_a_file_that_is_missing_a_folder_or_too_large(tmp_path: Path):
    with pytest.raises(BadRunFile, match="cannot be read: No such file"):
        load_run_file(str(tmp_path / "none.yaml"))
    with pytest.raises(BadRunFile, match="cannot be read: Is a directory"):
        load_run_file(str(tmp_path))
    with pytest.raises(BadRunFile, match="is larger than 1000000 bytes"):
        load(tmp_path, b"#" * (MAX_BYTES + 1))


def test_aliases_that_would_explode_do_not(tmp_path: Path):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]
    with pytest.raises(BadRunFile, match="a8: unknown key"):
        load(tmp_path, "\n".join(lines))
