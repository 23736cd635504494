"""What `trialog lineage` and `compare` say where short texts would tell nothing."""

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.fake_api import RUN, FakeDriver, Served, make_bill, serve
from support.fake_forks import tree_run
from trialog.cli import main
from trialog.driver.api.compare_schemas import Comparison, Lineage
from trialog.driver.api.examples import EXAMPLES
from trialog.proto.rubric import BUILT_IN, Rubric

OTHER = "r-ponmlkjihgfedcba"
Trialog = Callable[..., list[str]]


@pytest.fixture
def served() -> Iterator[Served]:
    with serve(FakeDriver()) as server:
        server.driver.add_run()
        server.driver.add_run(OTHER)
        yield server


@pytest.fixture
def driver(served: Served) -> FakeDriver:
    return served.driver


@pytest.fixture
def trialog(
    served: Served, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Trialog:
    monkeypatch.setenv("TRIALOG_URL", served.url)

    def call(*arguments: str) -> list[str]:
        monkeypatch.setattr(sys, "argv", ["trialog", *arguments])
        with pytest.raises(SystemExit) as ended:
            main.run()
        said = capsys.readouterr()
        assert ended.value.code == 0, said.err
        return said.out.splitlines()

    return call


def lineage(change: Any, *, mode: str = "recompute") -> dict[str, Any]:
    """Return a rescored root that RUN has forked."""
    (root,) = EXAMPLES[Lineage]["ancestors"]
    return {
        "run_id": RUN,
        "root": OTHER,
        "ancestors": [root | {"run_id": OTHER, "mode": "rescore", "changes": change}],
        "runs": [tree_run(OTHER, None, mode="rescore"), tree_run(RUN, OTHER, mode=mode)],
        "next_cursor": None,
    }


def test_a_long_text_that_differs_is_named_as_changed(driver: FakeDriver, trialog: Trialog) -> None:
    texts = {"from": "Long. " * 20 + "a", "to": "Long. " * 20 + "b"}
    rubric = {"scoring": None, "added": [], "removed": [], "reordered": False} | {
        "changed": [{"name": "search", "fields": [{"field": "prompt"} | texts]}]
    }
    side = {"name": "careful", "digest": "d"}
    change = {"field": "rubric", "from": side, "to": side, "rubric": rubric}
    driver.forks.lineage = lineage([change], mode="rescore")
    told = ["  rubric careful changed", "    criterion search: prompt changed"]
    assert trialog("lineage", RUN)[-2:] == told


def test_a_mode_that_differs_is_a_change(driver: FakeDriver, trialog: Trialog) -> None:
    driver.forks.lineage = lineage([])
    assert trialog("lineage", RUN)[-1] == "  mode: rescore -> recompute"
    driver.forks.lineage = lineage([], mode="rescore")
    assert trialog("lineage", RUN)[-1] == "  nothing changed"


def test_rubrics_of_one_name_are_told_apart_and_costs_add_up(
    driver: FakeDriver, trialog: Trialog
) -> None:
    found = json.loads(json.dumps(EXAMPLES[Comparison]))
    for side, run_id, usd in (("a", OTHER, 0.008553), ("b", RUN, 0.008649)):
        cost = found[side]["cost"] | make_bill() | {"usd": usd}
        found[side] |= {"run_id": run_id, "rubric": "careful", "cost": cost}
    driver.forks.comparison = found

    def words(line: str, *options: str) -> list[str]:
        [found] = [one.split() for one in trialog("compare", OTHER, RUN, *options) if line in one]
        return found

    assert words("rubric") == ["rubric", "careful", "careful", "-"]
    whole = {"name": "careful", "criteria": [{"name": "a"}]}
    driver.runs[RUN]["spec"] = {"rubric": whole}
    a, b = (one.digest[:8] for one in (BUILT_IN["v1"], Rubric.model_validate(whole)))
    assert words("rubric") == ["rubric", "careful", a, "careful", b, "-"]
    usd = ["0.008553", "0.008649", "+0.000096"]
    assert words("USD") == ["USD", *usd]
    assert words("USD", "--step", "0") == ["USD,", "whole", "run", *usd]
    assert words("generate executed, whole run", "--step", "0")
