"""Tasks of several steps: each on the state of its own, as far as the gates let the agent go."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.task_worker import ANSWER, TaskWorker, a_step, a_task
from trialog.sandbox.memory_images import MemoryImageProvider
from trialog.sandbox.trials.kept import Result, result_of

STEPS = '{strategy}\n[[steps]]\nname = "one"\n{one}\n[[steps]]\nname = "two"\n{two}\n'


def steps(
    first: dict[str, str],
    second: dict[str, str],
    *,
    strategy: str = "",
    one: str = "",
    two: str = "",
) -> dict[str, str]:
    """Return a task of two steps."""
    task = a_task(toml=STEPS.format(strategy=strategy, one=one, two=two))
    for path in ("instruction.md", "solution/solve.sh", "tests/test.sh"):
        del task[path]
    return {**task, **first, **second}


@pytest.fixture
def provider() -> MemoryImageProvider:
    return MemoryImageProvider()


@pytest.fixture
def worker(provider: MemoryImageProvider, tmp_path: Path) -> TaskWorker:
    return TaskWorker(provider, tmp_path)


async def results(worker: TaskWorker, run_id: str) -> list[Result]:
    kept = await worker.kept(await worker.trajectory(run_id))
    return [result_of(step) for step in kept.steps]


async def test_each_step_is_graded_on_its_own_state(
    worker: TaskWorker, provider: MemoryImageProvider
) -> None:
    task = steps(
        a_step("one", "echo 1 > answer.txt"),
        a_step("two", "cat answer.txt > before.txt; echo 0.5 > answer.txt"),
    )
    run_id = await worker.ask(task)
    ended = await worker.play(run_id)
    assert ended.outcome == (0.75, "")
    assert ended.verified is not None
    assert ended.verified.mode == "restored"
    record = await worker.record_of(ended.verified.record)
    assert record["steps/one/reward.txt"] == b"1\n"
    assert record["steps/two/reward.txt"] == b"0.5\n"
    first, second = await results(worker, run_id)
    assert first.state != second.state
    assert ended.trajectory is not None
    assert ended.trajectory.state == second.state
    assert first.graded is None, "nothing decided on it: the verifier is a stage of its own"
    assert provider.alive == []


@pytest.mark.parametrize(("strategy", "reward"), [("mean", 0.75), ("final", 0.5)])
async def test_the_strategy_says_what_the_steps_come_to(
    worker: TaskWorker, strategy: str, reward: float
) -> None:
    task = steps(
        a_step("one", "echo 1 > answer.txt"),
        a_step("two", "echo 0.5 > answer.txt"),
        strategy=f'multi_step_reward_strategy = "{strategy}"',
    )
    assert (await worker.play(await worker.ask(task))).outcome == (reward, "")


async def test_a_closed_gate_ends_the_trial_and_what_was_played_counts(
    worker: TaskWorker, provider: MemoryImageProvider
) -> None:
    task = steps(
        a_step("one", "echo 0.5 > answer.txt"),
        a_step("two", "echo 1 > answer.txt"),
        one="min_reward = 0.75",
    )
    run_id = await worker.ask(task)
    ended = await worker.play(run_id)
    assert ended.outcome == (0.5, "")
    (first,) = await results(worker, run_id)
    assert first.graded is not None
    assert first.graded.rewards == {"reward": 0.5}
    assert len(provider.started) == 2, "its grades are not given again"
    assert ended.verified is not None
    assert (await worker.record_of(ended.verified.record))["steps/one/reward.txt"] == b"0.5\n"


async def test_grades_by_another_version_of_the_verifier_are_given_anew(
    worker: TaskWorker, provider: MemoryImageProvider
) -> None:
    task = steps(
        a_step("one", "echo 0.5 > answer.txt"),
        a_step("two", "echo 1 > answer.txt"),
        one="min_reward = 0.75",
    )
    run_id = await worker.ask(task)
    fact = await worker.tried(run_id)
    assert len(provider.started) == 2
    other = worker.another()
    other.versions["verifier:harbor"] = "2"
    assert (await other.verify(run_id, fact)).outcome == (0.5, "")
    assert len(provider.started) == 3


async def test_an_open_gate_lets_on_and_the_agent_sees_nothing_of_the_grading(
    worker: TaskWorker, provider: MemoryImageProvider
) -> None:
    looks = "if [ -e /tests ]; then echo 9 > answer.txt; else echo 1 > answer.txt; fi"
    task = steps(
        a_step("one", "echo 1 > answer.txt", f"{ANSWER}; touch /app/graded"),
        a_step("two", f"{looks}; if [ -e /app/graded ]; then echo 9 > answer.txt; fi"),
        one="min_reward = 0.75",
    )
    ended = await worker.play(await worker.ask(task))
    assert ended.outcome == (1.0, "")
    assert provider.alive == []


async def test_folders_of_logs_begin_empty_and_are_in_the_state_of_their_step(
    worker: TaskWorker,
) -> None:
    look = "x=1; if [ -e /logs/artifacts/one.txt ]; then x=0; fi; "
    task = steps(
        a_step("one", "echo 1 > answer.txt; echo a > /logs/artifacts/one.txt"),
        a_step("two", f"{look} echo $x > answer.txt"),
    )
    run_id = await worker.ask(task)
    assert (await worker.play(run_id)).outcome == (1.0, "")
    first, second = await results(worker, run_id)
    assert b"/logs/artifacts/one.txt" in await worker.blobs.get(first.state)
    assert b"/logs/artifacts/one.txt" not in await worker.blobs.get(second.state)


async def test_files_and_setup_of_a_step_are_there_when_it_begins(worker: TaskWorker) -> None:
    task = steps(
        a_step("one", "echo 1 > answer.txt"),
        a_step("two", "cat /app/given.txt /app/made.txt > answer.txt"),
    )
    task["steps/two/workdir/given.txt"] = "0.2"
    task["steps/two/workdir/setup.sh"] = "echo 5 > made.txt\n"
    assert (await worker.play(await worker.ask(task))).outcome == (0.625, "")


async def test_a_setup_that_fails_is_no_reward(
    worker: TaskWorker, provider: MemoryImageProvider
) -> None:
    task = steps(a_step("one", "echo 1 > answer.txt"), a_step("two", "true"))
    task["steps/two/workdir/setup.sh"] = "echo broken >&2; exit 3\n"
    ended = await worker.play(await worker.ask(task))
    assert ended.failure is not None
    assert (ended.failure.failure, ended.failure.error) == ("task", "RuntimeError")
    assert "broken" in str(ended.failure)
    assert provider.alive == []


async def test_services_of_a_step_are_graded_before_the_next_begins(
    worker: TaskWorker, provider: MemoryImageProvider
) -> None:
    task = steps(
        a_step("one", "(sleep infinity) & echo 1 > answer.txt"),
        a_step("two", "if [ -e /tests ]; then echo 9 > answer.txt; else echo 0.5 > answer.txt; fi"),
    )
    run_id = await worker.ask(task)
    ended = await worker.play(run_id)
    assert ended.outcome == (0.75, "")
    first, second = await results(worker, run_id)
    assert first.graded is not None
    assert (first.graded.mode, first.services, second.services) == ("shared", 1, 1)
    assert ended.verified is not None
    assert ended.verified.mode == "shared"
    assert len(provider.started) == 1


async def test_a_step_that_cannot_be_graded_leaves_the_trial_unscored(worker: TaskWorker) -> None:
    """The mean of the others would pay an agent for breaking a verifier."""
    task = steps(a_step("one", "echo 1 > answer.txt"), a_step("two", "true", "true"))
    ended = await worker.play(await worker.ask(task))
    assert ended.outcome == (None, "RewardFileNotFoundError")
    assert ended.failure is not None
    assert (await worker.record_of(ended.failure.record))["steps/one/reward.txt"] == b"1\n"


@pytest.mark.parametrize("solve", ["true", "(sleep infinity) &"])
async def test_a_gate_that_cannot_be_graded_ends_the_try_and_its_work_is_kept(
    worker: TaskWorker, provider: MemoryImageProvider, solve: str
) -> None:
    task = steps(
        a_step("one", solve, "echo odd; echo odd > /logs/verifier/reward.txt"),
        a_step("two", "echo 1 > answer.txt"),
        one="min_reward = 0.5",
    )
    run_id = await worker.ask(task)
    ended = await worker.play(run_id)
    assert ended.outcome == (None, "VerifierOutputParseError")
    assert ended.failure is not None
    record = await worker.record_of(ended.failure.record)
    assert record["steps/one/test-stdout.txt"] == b"odd\n"
    (first,) = await results(worker, run_id)
    assert first.graded is None
    assert provider.alive == []


async def test_an_agent_out_of_time_at_a_step_goes_on_with_the_next(worker: TaskWorker) -> None:
    task = steps(
        a_step("one", "echo 1 > answer.txt; sleep infinity"),
        a_step("two", "echo 0.5 > answer.txt"),
        one="[steps.agent]\ntimeout_sec = 0.2",
    )
    ended = await worker.play(await worker.ask(task))
    assert ended.outcome == (0.75, "AgentTimeoutError")


async def test_an_unhealthy_step_is_not_graded(worker: TaskWorker) -> None:
    check = 'healthcheck = {command = "test -e /up", interval_sec = 0.01, retries = 2}'
    task = steps(a_step("one", "echo 1 > answer.txt"), a_step("two", "true"), two=check)
    ended = await worker.play(await worker.ask(task))
    assert ended.outcome == (None, "HealthcheckError")
    assert ended.trajectory is None


async def test_shared_tests_and_those_of_a_step_lie_together(worker: TaskWorker) -> None:
    task = steps(
        a_step("one", "true", "cat /tests/shared.txt > /logs/verifier/reward.txt"),
        a_step("two", "true", "cat /tests/own.txt > /logs/verifier/reward.txt"),
    )
    task |= {"tests/shared.txt": "0.5", "tests/own.txt": "9", "steps/two/tests/own.txt": "1"}
    assert (await worker.play(await worker.ask(task))).outcome == (0.75, "")


async def test_a_gated_step_in_a_sandbox_of_its_own(
    worker: TaskWorker, provider: MemoryImageProvider
) -> None:
    separate = 'min_reward = 0.5\nartifacts = ["/app/answer.txt"]\n'
    separate += '[steps.verifier]\nenvironment_mode = "separate"\n'
    task = steps(
        a_step("one", "echo 1 > answer.txt; (sleep infinity) &"),
        a_step("two", "echo 0.5 > answer.txt"),
        one=separate,
    )
    run_id = await worker.ask(task)
    ended = await worker.play(run_id)
    assert ended.outcome == (0.75, "")
    first, _ = await results(worker, run_id)
    assert first.graded is not None
    assert first.graded.mode == "separate"
    assert ended.verified is not None
    assert ended.verified.mode == "shared", "the least apart of its stages"
    assert provider.alive == []
