"""The run files in examples/ are what their comments say."""

from pathlib import Path

import pytest
from trialog.cli.runfile import load_run_file
from trialog.proto.runspec import RunSpec

EXAMPLES = Path(__file__).parents[3] / "examples"
RUN_FILES = sorted([*EXAMPLES.glob("*.yaml"), *EXAMPLES.glob("group-policies/*.yaml")])


@pytest.mark.parametrize("path", RUN_FILES, ids=lambda path: path.stem)
def test_every_example_is_a_valid_run(path: Path):
    load_run_file(str(path))


def test_the_reference_run_states_every_default():
    body = load_run_file(str(EXAMPLES / "reference.yaml"))
    assert body == RunSpec().model_dump(mode="json")


def test_the_faults_example_has_every_fault():
    faults = load_run_file(str(EXAMPLES / "faults.yaml"))["faults"]
    untouched = RunSpec().faults.model_dump(mode="json")
    assert set(faults) == set(untouched)
    assert all(faults[name] != untouched[name] for name in faults)


def test_each_group_policy_has_an_example():
    assert {path.stem for path in EXAMPLES.glob("group-policies/*.yaml")} == {
        "fail_fast",
        "min_group",
        "straggler",
        "step_deadline",
    }
