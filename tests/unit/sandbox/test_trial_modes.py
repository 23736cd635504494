"""In what a trial is graded: apart where that can be, with its services where they count, and never
without them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.task_worker import TaskWorker, a_task
from support.waiting import eventually
from trialog.proto import events as ev
from trialog.sandbox.memory_images import MemoryImageProvider

SERVICE = "(sleep infinity) & echo 1 > answer.txt"
SEPARATE = '[verifier]\nenvironment_mode = "separate"\n'


@pytest.fixture
def provider() -> MemoryImageProvider:
    return MemoryImageProvider()


@pytest.fixture
def worker(provider: MemoryImageProvider, tmp_path: Path) -> TaskWorker:
    return TaskWorker(provider, tmp_path)


# Shared and restored


async def test_services_are_graded_where_they_live(
    worker: TaskWorker, provider: MemoryImageProvider
) -> None:
    ended = await worker.play(await worker.ask(a_task(SERVICE)))
    assert ended.outcome == (1.0, "")
    assert ended.trajectory is not None
    assert ended.verified is not None
    assert ended.trajectory.services == 1
    assert ended.verified.mode == "shared"
    assert len(provider.started) == 1
    assert provider.alive == []


async def test_a_writer_of_rewards_is_dead_before_they_are_read(worker: TaskWorker) -> None:
    """In the agent's own sandbox its processes meddle while the tests run, and not after."""
    meddler = "(for n in 1 2 3 4 5 6; do sleep 0.05; echo 9 > /logs/verifier/reward.txt; done) &"
    test = "sleep 0.02; echo 1 > /logs/verifier/reward.txt"
    ended = await worker.play(await worker.ask(a_task(f"{meddler} true", test)))
    assert ended.verified is not None
    assert ended.verified.mode == "shared"
    assert ended.outcome in ((1.0, ""), (9.0, ""))


async def test_a_worker_that_goes_on_grades_in_the_living_sandbox(
    worker: TaskWorker, provider: MemoryImageProvider
) -> None:
    run_id = await worker.ask(a_task(SERVICE))
    fact = await worker.tried(run_id)
    assert provider.alive == [fact.sandbox]
    ended = await worker.another().verify(run_id, fact)
    assert ended.outcome == (1.0, "")
    assert ended.verified is not None
    assert ended.verified.mode == "shared"
    assert len(provider.started) == 1
    assert provider.alive == []


async def test_lost_services_are_unscored_and_never_graded_wrongly(
    worker: TaskWorker, provider: MemoryImageProvider
) -> None:
    run_id = await worker.ask(a_task(SERVICE))
    fact = await worker.tried(run_id)
    await provider.sandboxes[fact.sandbox].destroy()
    ended = await worker.another().verify(run_id, fact)
    assert ended.failure is not None
    assert ended.verified is None
    assert (ended.failure.failure, ended.failure.error) == ("infrastructure", "ServicesLostError")


async def test_without_services_the_state_is_enough(
    worker: TaskWorker, provider: MemoryImageProvider
) -> None:
    run_id = await worker.ask(a_task())
    fact = await worker.tried(run_id)
    assert provider.alive == [], "nothing lived in it: it was not left behind"
    ended = await worker.another().verify(run_id, fact)
    assert ended.outcome == (1.0, "")
    assert ended.verified is not None
    assert ended.verified.mode == "restored"


async def test_a_stopped_worker_leaves_no_sandbox_that_nobody_needs(
    worker: TaskWorker, provider: MemoryImageProvider
) -> None:
    """Given up is not stopped: nobody will come for it."""
    run_id = await worker.ask(a_task(SERVICE, "sleep infinity"))
    held = await worker.request(run_id)
    work = asyncio.create_task(worker.work(held))
    await eventually(lambda: _is_verifying(provider))
    held.given_up = True
    await worker.stop(work)
    assert provider.alive == []


async def test_a_running_verifier_is_waited_for_and_not_run_twice(
    worker: TaskWorker, provider: MemoryImageProvider
) -> None:
    test = "echo run >> /logs/verifier/runs.txt; sleep 0.3; echo 1 > /logs/verifier/reward.txt"
    run_id = await worker.ask(a_task(SERVICE, test))
    held = await worker.request(run_id)
    work = asyncio.create_task(worker.work(held))
    await eventually(lambda: _is_verifying(provider))
    await worker.stop(work)
    fact = await worker.trajectory(run_id)
    ended = await worker.another().verify(run_id, fact)
    assert ended.outcome == (1.0, "")
    assert ended.verified is not None
    record = await worker.record_of(ended.verified.record)
    assert record["runs.txt"] == b"run\n"


async def test_tests_that_an_agent_laid_ready_are_not_taken_for_ours(worker: TaskWorker) -> None:
    """A worker that goes on looks for a mark; an agent can write one, and cannot know ours."""
    planted = (
        "mkdir /tests; echo 'echo 9 > /logs/verifier/reward.txt' > /tests/test.sh; "
        "chmod 755 /tests/test.sh; echo mine > /run/trialog-verify-0; "
    )
    run_id = await worker.ask(a_task(f"true; {planted} {SERVICE}"))
    fact = await worker.tried(run_id)
    ended = await worker.another().verify(run_id, fact)
    assert ended.outcome == (1.0, "")
    assert ended.verified is not None
    assert ended.verified.mode == "shared"


async def _is_verifying(provider: MemoryImageProvider) -> bool:
    return any("verify-0" in sandbox._runs for sandbox in provider.sandboxes.values())


# Separate


async def test_only_artifacts_reach_a_verifier_of_its_own(
    worker: TaskWorker, provider: MemoryImageProvider
) -> None:
    solve = (
        "mkdir out/deep; echo 0.5 > out/deep/mark.txt; echo no > out/skip.log; echo 9 > other.txt; "
        "echo pub > /logs/artifacts/pub.txt; echo bad > /usr/evil; (sleep infinity) &"
    )
    test = (
        "cat /app/other.txt /app/out/skip.log /usr/evil /logs/artifacts/pub.txt; "
        "cat /app/out/deep/mark.txt > /logs/verifier/reward.txt"
    )
    toml = 'artifacts = ["/nowhere", {source = "/app/out", exclude = ["*.log"]}]\n' + SEPARATE
    ended = await worker.play(await worker.ask(a_task(f"true; {solve} true", test, toml=toml)))
    assert ended.outcome == (0.5, "")
    assert ended.verified is not None
    assert ended.verified.mode == "separate"
    record = await worker.record_of(ended.verified.record)
    assert b"pub\n" in record["test-stdout.txt"]
    assert record["test-stdout.txt"].count(b"No such file") == 3
    assert ended.trajectory is not None
    assert ended.trajectory.services == 0, "nothing lives on where only files are graded"
    assert provider.alive == []


async def test_one_file_comes_to_lie_where_it_lay(worker: TaskWorker) -> None:
    toml = 'artifacts = ["/app/answer.txt"]\n' + SEPARATE
    task = a_task("echo 0.5 > answer.txt; echo 1 > left.txt", toml=toml)
    ended = await worker.play(await worker.ask(task))
    assert ended.outcome == (0.5, "")


async def test_a_link_as_an_artifact_stays_behind(worker: TaskWorker) -> None:
    toml = 'artifacts = ["/app/answer.txt"]\n' + SEPARATE
    test = "cat /app/answer.txt; if [ -e /app/answer.txt ]; then echo 1; fi > /dev/null; "
    test += "x=0; if [ -e /app/answer.txt ]; then x=1; fi; echo $x > /logs/verifier/reward.txt"
    task = a_task("ln -s /tests/test.sh answer.txt", test, toml=toml)
    ended = await worker.play(await worker.ask(task))
    assert ended.outcome == (0.0, "")


async def test_an_image_beside_the_tests_brings_them_along(worker: TaskWorker) -> None:
    toml = 'artifacts = ["/app/answer.txt"]\n' + SEPARATE + '[verifier.env]\nADD = "5"\n'
    task = a_task("echo 1 > answer.txt", "echo 9 > /logs/verifier/reward.txt", toml=toml)
    task["tests/Dockerfile"] = (
        "FROM base\nCOPY grade.sh /tests/test.sh\nRUN chmod 644 /tests/test.sh\n"
    )
    task["tests/grade.sh"] = "cat /app/answer.txt; echo $ADD > /logs/verifier/reward.txt\n"
    ended = await worker.play(await worker.ask(task))
    assert ended.outcome == (5.0, "")
    assert ended.verified is not None
    record = await worker.record_of(ended.verified.record)
    assert record["test-stdout.txt"] == b"1\n"


async def test_artifacts_are_had_from_the_state_when_the_sandbox_is_gone(
    worker: TaskWorker, provider: MemoryImageProvider
) -> None:
    toml = 'artifacts = ["/app/answer.txt"]\n' + SEPARATE
    run_id = await worker.ask(a_task("echo 0.5 > answer.txt", toml=toml))
    fact = await worker.tried(run_id)
    assert provider.alive == []
    ended = await worker.another().verify(run_id, fact)
    assert ended.outcome == (0.5, "")
    assert [name.rpartition(".")[2] for name in provider.started[1:]] == ["0", "source"]
    assert provider.alive == []


# Forks


async def test_other_tests_grade_an_old_trajectory_and_no_agent_runs(
    worker: TaskWorker, provider: MemoryImageProvider
) -> None:
    first = await worker.ask(a_task())
    before = await worker.play(first)
    assert before.trajectory is not None
    other = a_task(test="echo 0.25 > /logs/verifier/reward.txt")
    fork = await worker.ask(other, parent=first)
    fact = replace(before.trajectory, provenance=ev.Provenance(first, 1))
    await worker.append(fork, fact)
    ended = await worker.verify(fork, fact)
    assert ended.outcome == (0.25, "")
    assert ended.verified is not None
    assert ended.verified.provenance is None
    assert len(provider.started) == 3, "the agent's, and a verifier's for each run"


async def test_the_same_tests_are_not_run_again_for_a_fork(
    worker: TaskWorker, provider: MemoryImageProvider
) -> None:
    first = await worker.ask(a_task())
    before = await worker.play(first)
    assert before.trajectory is not None
    fork = await worker.ask(a_task(), parent=first)
    await worker.append(fork, before.trajectory)
    ended = await worker.verify(fork, before.trajectory)
    assert ended.outcome == (1.0, "")
    assert ended.verified is not None
    assert ended.verified.provenance is not None
    assert len(provider.started) == 2


async def test_a_fork_never_touches_a_sandbox_of_its_ancestor(
    worker: TaskWorker, provider: MemoryImageProvider
) -> None:
    first = await worker.ask(a_task(SERVICE))
    fact = await worker.tried(first)
    fork = await worker.ask(a_task(SERVICE), parent=first)
    theirs = replace(fact, provenance=ev.Provenance(first, 1))
    await worker.append(fork, theirs)
    ended = await worker.verify(fork, theirs)
    assert ended.failure is not None
    assert ended.failure.error == "ServicesLostError"
    assert provider.alive == [fact.sandbox]
