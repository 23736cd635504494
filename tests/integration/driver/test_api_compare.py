"""Runs side by side over HTTP: comparing two, and the lineage of one."""

from __future__ import annotations

import json
import time
from typing import Any

import httpx
import pytest
from msgspec.structs import replace
from support import facts as f
from support.api import append, own, project_all
from trialog.driver import queries
from trialog.driver.api import compare_schemas as schemas
from trialog.driver.projector import Projector
from trialog.driver.views import Doc, evolve_trial
from trialog.proto import events as ev
from trialog.proto.ids import run_id_from
from trialog.spine.postgres.log import PostgresLog


def fork_of(
    run_id: str, parent_id: str, parent: ev.RunRequested, position: int, **settings: Any
) -> ev.RunRequested:
    """Return the request of a fork of a run that is seen up to a position."""
    return replace(
        f.run_requested(run_id, **settings),
        root=parent.root,
        parent=parent_id,
        lineage=[ev.Provenance(parent_id, position), *parent.lineage],
    )


async def pages(api: httpx.AsyncClient, path: str, key: str, **params: Any) -> list[dict[str, Any]]:
    """Return what is on all pages."""
    found: list[dict[str, Any]] = []
    while True:
        answer = await api.get(path, params=params)
        assert answer.status_code == 200, answer.text
        page = answer.json()
        found += page[key]
        if page["next_cursor"] is None:
            return found
        params["cursor"] = page["next_cursor"]


async def a_run_and_its_fork(log: PostgresLog, run_id: str) -> str:
    """Put a run on the log, and a fork that recovers step 0's trajectories and judges them anew."""
    fork_id = run_id_from(run_id.encode())
    request = f.run_requested(run_id)
    await append(
        log,
        run_id,
        request,
        *f.judged_trial("s0-p0-n0"),
        *f.judged_trial("s0-p1-n0"),
        f.step_requested(),
        f.step_applied(0, mean_reward=2.0),
        *f.judged_trial("s1-p0-n0", 1),
        f.trial_requested("s1-p1-n0", 1),
        ev.TrialSkipped("s1-p1-n0", 1, "straggler"),
    )
    end = await log.end(0)
    source = ev.Provenance(run_id, end - 17)
    forked = [f.trajectory("s0-p0-n0", provenance=source), f.verified("s0-p0-n0")]
    await append(
        log,
        fork_id,
        fork_of(fork_id, run_id, request, end, rubric="v2-efficiency"),
        f.trial_requested("s0-p0-n0"),
        *forked,
        f.judge_call("s0-p0-n0"),
        f.judged("s0-p0-n0", reward=3.5, scores={"correct": 0.5, "style": 1.0}),
        *f.judged_trial("s0-p1-n0"),
        f.step_requested(),
        f.step_applied(0, mean_reward=2.75),
        f.trial_requested("s1-p0-n0", 1),
    )
    return fork_id


async def test_two_runs_are_compared_trial_by_trial(
    api: httpx.AsyncClient, log: PostgresLog, run_id: str
) -> None:
    fork_id = await a_run_and_its_fork(log, run_id)
    for _ in ("behind", "projected"):
        answer = await api.get(f"/runs/{run_id}/compare/{fork_id}")
        found = answer.json()
        schemas.Comparison.model_validate(found)
        assert (found["a"]["run_id"], found["b"]["run_id"]) == (run_id, fork_id)
        assert (found["a"]["rubric"], found["b"]["rubric"]) == ("v1", "v2-efficiency")
        assert (found["same_tree"], found["next_cursor"]) == (True, None)
        assert found["totals"] == {
            "n": 2,
            "mean_reward": {"a": 2.0, "b": 2.75},
            "delta": 0.75,
            "n_trials": {"a": 4, "b": 3},
            "n_scored": {"a": 3, "b": 2},
        }
        first, second = found["steps"]
        assert (first["n"], first["delta"]) == (2, 0.75)
        assert (first["a"]["mean_reward"], first["b"]["mean_reward"]) == (2.0, 2.75)
        assert first["b"]["provenance"]["state"] == "executed"
        assert (second["n"], second["delta"], second["n_scored"]) == (0, None, {"a": 1, "b": 0})
        trials = {trial["trial_id"]: trial for trial in found["trials"]}
        judged = trials["s0-p0-n0"]
        assert judged["delta"] == {
            "reward": 1.5,
            "scores": {"correct": -0.5, "efficiency": None, "tidiness": None, "style": None},
        }
        assert judged["b"]["provenance"]["generate"]["state"] == "recovered"
        assert judged["b"]["provenance"]["generate"]["run_id"] == run_id
        assert judged["b"]["provenance"]["judge"]["run_id"] == fork_id
        assert (trials["s0-p1-n0"]["delta"]["reward"], judged["same_trajectory"]) == (0.0, True)
        open_ = trials["s1-p0-n0"]
        assert (open_["b"]["state"], open_["b"]["reward"], open_["delta"]) == (
            "requested",
            None,
            None,
        )
        alone = trials["s1-p1-n0"]
        assert (alone["a"]["state"], alone["b"], alone["delta"]) == ("skipped", None, None)
        await project_all(log)


async def test_a_comparison_the_other_way_round_has_the_other_sign(
    api: httpx.AsyncClient, log: PostgresLog, run_id: str
) -> None:
    fork_id = await a_run_and_its_fork(log, run_id)
    found = (await api.get(f"/runs/{fork_id}/compare/{run_id}")).json()
    assert (found["totals"]["delta"], found["trials"][0]["delta"]["reward"]) == (-0.75, -1.5)
    itself = (await api.get(f"/runs/{run_id}/compare/{run_id}")).json()
    assert (itself["totals"]["delta"], itself["totals"]["n"]) == (0.0, 3)


async def test_the_trials_of_a_step_that_was_recovered_whole_are_compared_too(
    api: httpx.AsyncClient, log: PostgresLog, run_id: str
) -> None:
    fork_id, request = run_id_from(run_id.encode()), f.run_requested(run_id)
    trials = [*f.judged_trial("s0-p0-n0"), *f.judged_trial("s0-p1-n0")]
    await append(log, run_id, request, *trials, f.step_requested(), f.step_applied())
    end = await log.end(0)
    whole = f.step_applied(whole=True, provenance=ev.Provenance(run_id, end))
    await append(log, fork_id, fork_of(fork_id, run_id, request, end), whole)
    for _ in ("behind", "projected"):
        found = (await api.get(f"/runs/{run_id}/compare/{fork_id}")).json()
        schemas.Comparison.model_validate(found)
        assert found["totals"]["n_scored"] == {"a": 2, "b": 2}
        assert (found["totals"]["n"], found["totals"]["delta"]) == (2, 0.0)
        (step,) = found["steps"]
        assert [step[side]["provenance"]["state"] for side in "ab"] == ["executed", "recovered"]
        for trial in found["trials"]:
            sources = trial["b"]["provenance"].values()
            assert {(each["state"], each["run_id"]) for each in sources} == {("recovered", run_id)}
            assert trial["a"]["provenance"]["judge"]["state"] == "executed"
        await project_all(log)


@pytest.mark.parametrize("limit", [1, 3, 100])
async def test_pages_hold_the_trials_of_either_run_once(
    api: httpx.AsyncClient, log: PostgresLog, run_id: str, limit: int
) -> None:
    """Whatever part of them the read models hold."""
    other = run_id_from(run_id.encode())
    names = sorted(f"s{step}-p{n}-n0" for step in (0, 1, 10) for n in (0, 1, 2, 10))
    mine, theirs = names[:8], names[4:]
    for each, trials in ((run_id, mine), (other, theirs)):
        request = f.run_requested(each, prompts_per_step=11, n_steps=11)
        await append(log, each, request, *(f.trial_requested(t, _step(t)) for t in trials[::2]))
    await project_all(log)
    for each, trials in ((run_id, mine), (other, theirs)):
        await append(log, each, *(f.trial_requested(t, _step(t)) for t in trials[1::2]))
    path = f"/runs/{run_id}/compare/{other}"
    for _ in ("behind", "projected"):
        found = await pages(api, path, "trials", limit=limit)
        assert [trial["trial_id"] for trial in found] == names
        sides = [(t["a"] is not None, t["b"] is not None) for t in found]
        assert sides == [(name in mine, name in theirs) for name in names]
        for step in (1, 10):
            found = await pages(api, path, "trials", limit=limit, step=step)
            assert [t["trial_id"] for t in found] == [n for n in names if _step(n) == step]
        await project_all(log)


def _step(trial_id: str) -> int:
    return int(trial_id[1 : trial_id.index("-")])


async def test_a_step_alone_has_its_own_totals_and_later_pages_have_none(
    api: httpx.AsyncClient, log: PostgresLog, run_id: str
) -> None:
    fork_id = await a_run_and_its_fork(log, run_id)
    path = f"/runs/{run_id}/compare/{fork_id}"
    found = (await api.get(path, params={"step": 1})).json()
    assert [step["step"] for step in found["steps"]] == [1]
    assert found["totals"]["n_trials"] == {"a": 2, "b": 1}
    first = (await api.get(path, params={"limit": 3})).json()
    assert first["totals"]["n_trials"] == {"a": 4, "b": 3}
    params = {"limit": 3, "cursor": first["next_cursor"]}
    later = (await api.get(path, params=params)).json()
    schemas.Comparison.model_validate(later)
    assert (later["totals"], later["steps"], len(later["trials"])) == (None, [], 1)
    none = (await api.get(path, params={"step": 7})).json()
    assert (none["trials"], none["steps"], none["totals"]["n"]) == ([], [], 0)


async def test_runs_of_a_hundred_steps_of_two_hundred_trials_page_at_once(
    api: httpx.AsyncClient, log: PostgresLog, run_id: str
) -> None:
    other = run_id_from(run_id.encode())
    for each in (run_id, other):
        await append(log, each, f.run_requested(each, n_steps=100, prompts_per_step=200))
    await project_all(log)
    for each in (run_id, other):
        await put_trials(log, each, [f"s{step}-p{n}-n0" for step in range(100) for n in range(200)])
    path = f"/runs/{run_id}/compare/{other}"
    took_s: list[float] = []
    cursor: dict[str, str] = {}
    for _ in range(5):
        begin = time.monotonic()
        found = (await api.get(path, params=cursor)).json()
        took_s.append(time.monotonic() - begin)
        assert len(found["trials"]) == 100
        if not cursor:
            assert (found["totals"]["n"], len(found["steps"])) == (20_000, 100)
        cursor = {"cursor": found["next_cursor"]}
    print(f"first page {took_s[0]:.3f} s, the next at most {max(took_s[1:]):.3f} s")
    assert max(took_s) < 1, took_s


async def put_trials(log: PostgresLog, run_id: str, names: list[str]) -> None:
    """Put judged trials into the read models, without the events that they would be folded of."""
    doc: Doc | None = None
    facts = [f.run_requested(run_id), *f.judged_trial("s0-p0-n0")]
    for event in f.recorded(run_id, facts):
        doc = evolve_trial(doc, event, event.fact())
    assert doc is not None
    steps = [int(name[1 : name.index("-")]) for name in names]
    pairs = zip(names, steps, strict=True)
    docs = [json.dumps(doc | {"trial_id": name, "step": step}) for name, step in pairs]
    n, fence, at = len(names), await own(log), await Projector(log, 0).cursor()
    nothing: list[list[Any]] = [[] for _ in range(9)]
    columns = [[run_id] * n, names, steps, ["judged"] * n, [doc["reward"]] * n, docs]
    async with log.database.connection() as connection:
        assert await connection.fetchval(
            queries.PROJECT, 0, at, log.incarnation, fence, *nothing, *columns
        )


async def test_runs_of_different_trees_are_compared_and_said_to_be(
    api: httpx.AsyncClient, log: PostgresLog, run_id: str
) -> None:
    other = run_id_from(run_id.encode())
    for each in (run_id, other):
        await append(log, each, f.run_requested(each), *f.judged_trial("s0-p0-n0"))
    found = (await api.get(f"/runs/{run_id}/compare/{other}")).json()
    assert (found["same_tree"], found["totals"]["delta"]) == (False, 0.0)


async def test_a_run_that_is_no_fork_has_no_ancestors(
    api: httpx.AsyncClient, log: PostgresLog, run_id: str
) -> None:
    await append(log, run_id, f.run_requested(run_id))
    found = (await api.get(f"/runs/{run_id}/lineage")).json()
    schemas.Lineage.model_validate(found)
    assert (found["run_id"], found["root"], found["ancestors"]) == (run_id, run_id, [])
    assert [run["run_id"] for run in found["runs"]] == [run_id]


async def test_a_lineage_tells_who_changed_what(
    api: httpx.AsyncClient, log: PostgresLog, run_id: str
) -> None:
    """A root, a fork with another rubric, and a fork of that with another learning rate."""
    fork_id = await a_run_and_its_fork(log, run_id)
    third = run_id_from(fork_id.encode())
    before = await log.at_slot(fork_id, "run")
    assert before is not None
    request = before.fact()
    assert isinstance(request, ev.RunRequested)
    last = fork_of(third, fork_id, request, 40, rubric="v2-efficiency", lr=1.0)
    await append(log, third, replace(last, mode="rescore"))
    for _ in ("behind", "projected"):
        found = (await api.get(f"/runs/{third}/lineage")).json()
        schemas.Lineage.model_validate(found)
        parent, root = found["ancestors"]
        assert (parent["run_id"], parent["position"], parent["rubric"]) == (
            fork_id,
            40,
            "v2-efficiency",
        )
        assert parent["changes"] == [{"field": "lr", "from": 2.0, "to": 1.0, "rubric": None}]
        assert (root["run_id"], root["mode"], root["state"]) == (run_id, "recompute", "running")
        assert [change["field"] for change in root["changes"]] == ["rubric"]
        assert [(run["run_id"], run["parent"], run["mode"]) for run in found["runs"]] == [
            (run_id, None, "recompute"),
            (fork_id, run_id, "recompute"),
            (third, fork_id, "rescore"),
        ]
        fork = found["runs"][1]
        assert (fork["recovered"]["generate"], fork["executed"]["judge"]) == (1, 2)
        assert fork["mean_reward"] == 2.75
        await project_all(log)
    everybody = await pages(api, f"/runs/{third}/lineage", "runs", limit=1)
    assert [run["run_id"] for run in everybody] == [run_id, fork_id, third]


async def test_what_is_not_there_and_what_is_no_cursor_are_refused(
    api: httpx.AsyncClient, log: PostgresLog, run_id: str
) -> None:
    await append(log, run_id, f.run_requested(run_id))
    nobody = run_id_from(b"nobody")
    end = await log.end(0)
    for path in (
        f"/runs/{run_id}/compare/{nobody}",
        f"/runs/{nobody}/compare/{run_id}",
        f"/runs/{run_id}/compare/x",
        f"/runs/{nobody}/lineage",
        "/runs/x/lineage",
    ):
        answer = await api.get(path)
        assert (answer.status_code, answer.json()["title"]) == (404, "No such run"), path
        assert answer.headers["content-type"] == "application/problem+json"
    compare, lineage = f"/runs/{run_id}/compare/{run_id}", f"/runs/{run_id}/lineage"
    for path, name, value in (
        (compare, "cursor", "x"),
        (compare, "cursor", "WyIuLi8uLiJd"),
        (compare, "cursor", "WyJzMC1wMC1uMCIsInMiXQ"),
        (compare, "step", "-1"),
        (compare, "limit", "0"),
        (lineage, "cursor", "WyJ4Il0"),
        (lineage, "cursor", "WyLCsiJd"),
        (lineage, "limit", "1001"),
    ):
        answer = await api.get(path, params={name: value})
        assert answer.status_code == 422, (path, value)
        assert [error["field"] for error in answer.json()["errors"]] == [name]
    assert await log.end(0) == end
