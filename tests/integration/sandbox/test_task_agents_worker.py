"""Agents in a real worker and real sandboxes: what they did is graded, and kept for training."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.harbor_here import worker
from support.task_worker import IMAGE, TaskWorker, a_step, a_task
from trialog.sandbox.record import KeptTrajectory

OWN = "import:support.own_agents"


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[TaskWorker]:
    async with worker("bubblewrap", tmp_path) as made:
        made.images = {IMAGE: "host"}
        yield made


async def asked(place: TaskWorker, agent: str, options: dict[str, Any], **task: str) -> str:
    versions = {"agent": "1"} if agent.startswith("import:") else {}
    return await place.ask(a_task(**task), agent=agent, agent_options=options, versions=versions)


async def kept(place: TaskWorker, run_id: str) -> tuple[KeptTrajectory, dict[str, Any]]:
    back = await place.kept(await place.trajectory(run_id))
    return back, json.loads(await place.blobs.get(back.steps[0].atif))


async def test_an_agent_of_ones_own_answers_and_all_of_it_is_kept(place: TaskWorker) -> None:
    run_id = await asked(place, f"{OWN}:Writes", {"answer": "0.5"})
    ended = await place.play(run_id)
    assert ended.outcome == (0.5, "")
    back, document = await kept(place, run_id)
    assert document["agent"] == {"name": "writes", "version": "7"}
    assert document["session_id"] == f"{run_id}/s0-p0-n0"
    assert [step["message"] for step in document["steps"]] == [
        "Write 1 into answer.txt.\n",
        "I write the answer.",
        "I look at it.",
    ]
    first, last = document["steps"][1:]
    assert first["tool_calls"][0]["arguments"] == {"command": "cat > answer.txt", "stdin": "0.5"}
    assert first["metrics"]["completion_token_ids"] == [4, 5]
    assert last["observation"]["results"][0]["content"] == "/app\nroot\n0.5"
    assert document["final_metrics"] == {
        "total_prompt_tokens": 3,
        "total_completion_tokens": 2,
        "total_steps": 3,
    }
    assert "app/answer.txt" in back.files
    assert back.turns[-1]["calls"][0]["result"] == "/app\nroot\n0.5"
    assert ended.trajectory is not None
    assert ended.trajectory.n_turns == 2
    assert "s3cr3t" not in json.dumps([document, back.turns])


async def test_two_runs_that_did_the_same_mean_the_same(place: TaskWorker) -> None:
    found = [
        await place.tried(await asked(place, f"{OWN}:Writes", {"answer": answer}))
        for answer in ("0.5", "0.5", "0.25")
    ]
    assert found[0].digest == found[1].digest != found[2].digest
    assert found[0].blob != found[1].blob, "times and the session are each one's own"


async def test_an_agent_that_waits_is_graded_by_what_it_left(place: TaskWorker) -> None:
    """Its processes are dead by then: none is there for the verifier to meet."""
    run_id = await asked(place, f"{OWN}:Waits", {}, toml="[agent]\ntimeout_sec = 0.5")
    ended = await place.play(run_id)
    assert ended.outcome == (1.0, "AgentTimeoutError")
    assert ended.trajectory is not None
    assert ended.trajectory.services == 0


async def test_an_agent_that_gives_up_is_graded_and_one_that_breaks_is_not(
    place: TaskWorker,
) -> None:
    gave_up = await place.play(await asked(place, f"{OWN}:Breaks", {"gives_up": True}))
    assert gave_up.outcome == (1.0, "NonZeroAgentExitCodeError")
    broke = await place.play(await asked(place, f"{OWN}:Breaks", {}))
    assert broke.outcome == (None, "LookupError")
    assert broke.failure is not None
    assert (broke.failure.failure, str(broke.failure)) == ("agent", "no such tool")
    assert (broke.trajectory, broke.verified) == (None, None)


@pytest.mark.parametrize(
    ("agent", "reason"),
    [
        (f"{OWN}:Writes", "answer is to be a text"),
        (f"{OWN}:Nobody", "has no class Nobody"),
        ("import:json:JSONDecoder", "may not import json"),
    ],
)
async def test_an_agent_that_cannot_be_made_says_why(
    place: TaskWorker, agent: str, reason: str
) -> None:
    ended = await place.play(await asked(place, agent, {}))
    assert ended.outcome == (None, "AgentUnavailableError")
    assert reason in str(ended.failure)


async def test_a_command_works_as_the_tasks_own_user(place: TaskWorker) -> None:
    command = 'id -un > /tmp/who; grep -q Write && printf 1 > "$HOME/one" || exit 1'
    run_id = await asked(
        place,
        "command",
        {"command": command, "env": {"HOME": "/tmp"}},
        toml='[agent]\nuser = "nobody"',
        test="test $(cat /tmp/who) = nobody && cat /tmp/one > /logs/verifier/reward.txt",
    )
    ended = await place.play(run_id)
    assert ended.outcome == (1.0, "")


async def test_steps_of_one_task_may_be_of_different_users(place: TaskWorker) -> None:
    """What the first left in /logs/agent is no hindrance to the second."""
    names = ("root", "nobody")
    steps = "".join(
        f'[[steps]]\nname = "{name}"\n[steps.agent]\nuser = "{name}"\n' for name in names
    )
    task = a_task(toml='multi_step_reward_strategy = "final"', environment=steps)
    for name in names:
        task |= a_step(name, "id -un | tee /tmp/$(id -un)", "echo 1 > /logs/verifier/reward.txt")
    run_id = await place.ask(task)
    ended = await place.play(run_id)
    assert ended.outcome == (1.0, "")
    back = await place.kept(await place.trajectory(run_id))
    said = [turn["calls"][-1]["result"] for turn in back.turns if turn["source"] == "agent"]
    assert [step.step for step in back.steps] == ["root", "nobody"]
    assert said == ["root", "nobody"]
    assert ended.trajectory is not None
    assert ended.trajectory.n_turns == 2, "a step's agent has one turn, with all its calls"
