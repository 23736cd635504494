"""What a trial of a task comes to, over the in-memory twin: rewards, errors, what is kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from support.task_worker import ANSWER, TaskWorker, a_task
from trialog.sandbox.agent import Try
from trialog.sandbox.errors import AgentError
from trialog.sandbox.memory_images import MemoryImageProvider
from trialog.sandbox.trials import left
from trialog.spine.consumer import AttemptFailedError

SCRIPT = "import:support.task_agents:Script"
IMPORTED: dict[str, Any] = {"agent": SCRIPT, "versions": {"agent": "1"}}


@pytest.fixture
def provider() -> MemoryImageProvider:
    return MemoryImageProvider()


@pytest.fixture
def worker(provider: MemoryImageProvider, tmp_path: Path) -> TaskWorker:
    return TaskWorker(provider, tmp_path)


async def test_a_solved_task_is_graded_apart_and_leaves_nothing_alive(
    worker: TaskWorker, provider: MemoryImageProvider
) -> None:
    ended = await worker.play(await worker.ask(a_task(test=f"echo said; {ANSWER}; exit 7")))
    tried, verified = ended.trajectory, ended.verified
    assert tried and verified
    assert (verified.reward, verified.rewards, verified.verified) == (1.0, {"reward": 1.0}, True)
    assert (verified.mode, verified.error, verified.trajectory) == ("restored", "", tried.digest)
    assert await worker.record_of(verified.record) == {
        "reward.txt": b"1\n",
        "test-stdout.txt": b"said\n",
    }
    assert provider.alive == []
    assert len(provider.started) == 2, "the agent's and the verifier's"
    assert b"answer.txt" in await worker.blobs.get(tried.state)
    kept = await worker.kept(tried)
    assert [step.step for step in kept.steps] == [None]
    assert "app/answer.txt" in kept.files


async def test_an_unsolved_task_has_no_reward_and_says_why(worker: TaskWorker) -> None:
    ended = await worker.play(await worker.ask(a_task(), agent="nop"))
    assert ended.failure is not None
    assert (ended.failure.failure, ended.failure.error) == ("task", "RewardFileEmptyError")
    record = await worker.record_of(ended.failure.record)
    assert b"answer.txt" in record["test-stdout.txt"]
    assert ended.trajectory is not None, "the agent's work is kept"


@pytest.mark.parametrize(
    ("test", "outcome"),
    [
        ("echo 0.5 > /logs/verifier/reward.txt; exit 3", (0.5, "")),
        ('echo "{\\"reward\\": true}" > /logs/verifier/reward.json', (1.0, "")),
        ("true", (None, "RewardFileNotFoundError")),
        ("echo > /logs/verifier/reward.txt", (None, "VerifierOutputParseError")),
        ("echo 3 > /logs/verifier/reward.json", (None, "ValidationError")),
        ('echo "{}" > /logs/verifier/reward.json', (None, "")),
        ("echo 1 > /logs/verifier/reward.txt; sleep infinity", (None, "VerifierTimeoutError")),
        ("mkdir /logs/verifier/reward.txt", (None, "VerifierOutputParseError")),
        ("ln -s /app/x /logs/verifier/reward.txt", (None, "VerifierOutputParseError")),
    ],
)
async def test_rows_of_the_outcome_table(
    worker: TaskWorker,
    provider: MemoryImageProvider,
    test: str,
    outcome: tuple[float | None, str],
) -> None:
    task = a_task(test=test, toml="[verifier]\ntimeout_sec = 0.2")
    ended = await worker.play(await worker.ask(task))
    assert ended.outcome == outcome
    if ended.failure:
        assert ended.failure.failure == "task"
        assert ended.failure.record, "what was left is kept"
    assert provider.alive == []


async def test_where_an_agents_own_code_broke_is_kept(worker: TaskWorker) -> None:
    broken: dict[str, Any] = {
        "agent": "import:support.own_agents:Breaks",
        "versions": {"agent": "1"},
    }
    ended = await worker.play(await worker.ask(a_task(), **broken))
    assert ended.failure is not None
    assert (ended.failure.error, str(ended.failure)) == ("LookupError", "no such tool")
    record = await worker.record_of(ended.failure.record)
    trace = record["exception.txt"].decode()
    assert trace.startswith("Traceback (most recent call last):\n")
    assert 'own_agents.py", line' in trace
    assert 'raise LookupError("no such tool")' in trace
    assert trace.endswith("LookupError: no such tool\n")


async def test_a_solution_that_fails_is_graded_all_the_same(worker: TaskWorker) -> None:
    ended = await worker.play(await worker.ask(a_task("echo 1 > answer.txt; exit 9")))
    assert ended.outcome == (1.0, "NonZeroAgentExitCodeError")


async def test_an_agent_out_of_time_is_graded_without_its_processes(
    worker: TaskWorker, provider: MemoryImageProvider
) -> None:
    late = "echo 1 > answer.txt; (sleep 0.6; echo 7 > answer.txt) & sleep infinity"
    task = a_task(late, toml="[agent]\ntimeout_sec = 0.2")
    ended = await worker.play(await worker.ask(task))
    assert ended.outcome == (1.0, "AgentTimeoutError")
    assert ended.trajectory is not None
    assert (ended.trajectory.services, ended.trajectory.error) == (0, "AgentTimeoutError")
    assert ended.verified is not None
    assert ended.verified.mode == "restored"


async def test_the_runs_limit_holds_where_it_is_lower(worker: TaskWorker) -> None:
    task = a_task("echo 1 > answer.txt; sleep infinity", toml="[agent]\ntimeout_sec = 3000")
    ended = await worker.play(await worker.ask(task, timeouts={"trial_s": 0.2}))
    assert ended.outcome == (1.0, "AgentTimeoutError")


async def test_an_unhealthy_environment_is_never_graded(
    worker: TaskWorker, provider: MemoryImageProvider
) -> None:
    check = 'healthcheck = {command = "test -e /up", interval_sec = 0.01, retries = 2}'
    ended = await worker.play(await worker.ask(a_task(environment=check)))
    assert ended.failure is not None
    assert (ended.failure.failure, ended.failure.error) == ("infrastructure", "HealthcheckError")
    assert "test -e /up" in str(ended.failure)
    assert ended.trajectory is None
    assert provider.alive == []


async def test_an_agent_begins_once_its_environment_is_healthy(worker: TaskWorker) -> None:
    check = (
        'healthcheck = {command = "test -e /up || (touch /up; exit 1)", interval_sec = 0.01, '
        "retries = 2}"
    )
    ended = await worker.play(
        await worker.ask(a_task("cat /up && echo 1 > answer.txt", environment=check))
    )
    assert ended.outcome == (1.0, "")


async def test_the_environment_user_and_verifier_have_their_variables(worker: TaskWorker) -> None:
    toml = '[verifier]\nenv = {MARKS = "${UNSET:-0.75}"}\n[solution.env]\nWORD = "solved"'
    task = a_task(
        'echo "$WORD $PLACE" > answer.txt',
        "cat /app/answer.txt; echo $WORD; echo $MARKS > /logs/verifier/reward.txt",
        toml=toml,
        environment='env = {PLACE = "here"}',
    )
    ended = await worker.play(await worker.ask(task))
    assert ended.outcome == (0.75, "")
    assert ended.verified is not None
    record = await worker.record_of(ended.verified.record)
    assert record["test-stdout.txt"] == b"solved here\n\n"


async def test_a_verifiers_user_that_is_none_is_named(worker: TaskWorker) -> None:
    task = a_task(toml='[verifier]\nuser = "grader"')
    ended = await worker.play(await worker.ask(task))
    assert ended.outcome == (None, "RewardFileNotFoundError")
    assert "no user grader" in str(ended.failure)


async def test_collect_hooks_run_before_the_state_is_kept_and_may_fail(worker: TaskWorker) -> None:
    toml = """
[[verifier.collect]]
command = "exit 4"
[[verifier.collect]]
command = "sleep infinity"
timeout_sec = 0.05
[[verifier.collect]]
command = "echo 0.5 > answer.txt"
"""
    ended = await worker.play(await worker.ask(a_task(toml=toml)))
    assert ended.outcome == (0.5, "")


async def test_what_the_agent_put_where_the_tests_go_is_gone(worker: TaskWorker) -> None:
    planted = "mkdir /tests; echo echo 5 > /tests/helper.sh; echo 9 > /logs/verifier/reward.json"
    test = "x=1; if [ -e /tests/helper.sh ]; then x=5; fi; echo $x > /logs/verifier/reward.txt"
    ended = await worker.play(await worker.ask(a_task(planted, test)))
    assert ended.outcome == (1.0, "")


async def test_a_link_for_the_verifiers_folder_leads_nowhere(worker: TaskWorker) -> None:
    planted = "mkdir /mine; rm -rf /logs/verifier; ln -s /mine /logs/verifier; ln -s /mine /tests"
    ended = await worker.play(
        await worker.ask(a_task(planted, "echo 1 > /logs/verifier/reward.txt"))
    )
    assert ended.outcome == (1.0, "")


async def test_tests_of_the_image_stay_beside_those_of_the_task(
    worker: TaskWorker, tmp_path: Path
) -> None:
    task = a_task(test="cat /tests/key.txt > /logs/verifier/reward.txt")
    task["task.toml"] = 'schema_version = "1.4"\n'
    task["environment/Dockerfile"] = "FROM base\nRUN mkdir /tests; echo 0.25 > /tests/key.txt\n"
    ended = await worker.play(await worker.ask(task))
    assert ended.outcome == (0.25, "")


@pytest.mark.parametrize(
    ("raised", "failure", "error"),
    [
        (AgentError("the model is gone"), "agent", "AgentError"),
        (KeyError("x"), "agent", "KeyError"),
    ],
)
async def test_an_agent_that_breaks_is_not_graded(
    worker: TaskWorker,
    provider: MemoryImageProvider,
    raised: Exception,
    failure: str,
    error: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def broken(self: Any, trial: Try) -> None:
        raise raised

    monkeypatch.setattr("support.task_agents.Script.run", broken)
    ended = await worker.play(await worker.ask(a_task(), **IMPORTED))
    assert ended.failure is not None
    assert (ended.failure.failure, ended.failure.error) == (failure, error)
    assert ended.trajectory is None
    assert provider.alive == []


async def test_a_failed_attempt_is_followed_by_one_in_a_pristine_sandbox(
    worker: TaskWorker, provider: MemoryImageProvider
) -> None:
    run_id = await worker.ask(a_task(), faults={"flaky_trial_rate": 1.0})
    held = await worker.request(run_id)
    ended = await worker.work(held)
    assert ended.failure is not None
    assert ended.failure.failure == "injected"
    assert provider.started == []


async def test_a_build_that_fails_says_its_last_lines(worker: TaskWorker) -> None:
    task = a_task()
    task["task.toml"] = 'schema_version = "1.4"\n'
    task["environment/Dockerfile"] = f"FROM base\nRUN echo {'x' * 900} >&2; cat nowhere.txt\n"
    run_id = await worker.ask(task)
    with pytest.raises(AttemptFailedError) as caught:
        await worker.build(run_id)
    assert (caught.value.failure, caught.value.error) == ("task", "SandboxBuildFailedError")
    assert str(caught.value).endswith("cat: nowhere.txt: No such file or directory\n")
    assert len(str(caught.value)) <= 500


async def test_an_image_is_taken_only_from_folders_that_the_operator_named(
    worker: TaskWorker, tmp_path: Path
) -> None:
    allowed = tmp_path / "images"
    allowed.mkdir()
    (allowed / "out").symlink_to("/etc")
    worker.host.image_roots = [allowed]
    for path in ("/etc/passwd", f"{allowed}/../x.tar", f"{allowed}/out/passwd"):
        run_id = await worker.ask(a_task(), images={"base": f"tar:{path}"})
        with pytest.raises(AttemptFailedError, match="TRIALOG_IMAGE_ROOTS"):
            await worker.build(run_id)
    fine = await worker.ask(a_task(), images={"base": f"tar:{allowed}/x.tar"})
    assert await worker.build(fine)


async def test_another_image_than_the_runs_is_not_played_in(worker: TaskWorker) -> None:
    run_id = await worker.ask(a_task())
    held = await worker.request(run_id)
    held.origin = replace(held.origin, world_digest="0" * 64)
    ended = await worker.work(held)
    assert ended.failure is not None
    assert ended.failure.failure == "infrastructure"
    assert "0" * 64 in str(ended.failure)


async def test_a_worker_without_the_provider_says_so(worker: TaskWorker) -> None:
    run_id = await worker.ask(a_task(), provider="docker", images={})
    with pytest.raises(AttemptFailedError, match="TRIALOG_DOCKER_HOST=unix://") as caught:
        await worker.build(run_id)
    assert caught.value.failure == "infrastructure"


def test_the_record_is_the_same_for_the_same_files(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name / "deep").mkdir(parents=True)
        (tmp_path / name / "deep/b.txt").write_text("b")
        (tmp_path / name / "a.json").write_text(json.dumps({"reward": 1}))
        (tmp_path / name / "link").symlink_to("/etc/passwd")
    packed = left.pack(tmp_path / "one")
    assert packed == left.pack(tmp_path / "two")
    left.unpack(packed, tmp_path / "back")
    found = sorted(str(p.relative_to(tmp_path / "back")) for p in (tmp_path / "back").rglob("*"))
    assert found == ["a.json", "deep", "deep/b.txt"]
