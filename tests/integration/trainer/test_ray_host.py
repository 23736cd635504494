"""The Ray host on a real head: actors and clusters are killed, and the weights stay golden."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator

import psutil
import pytest
from support import golden
from support.ray_head import RayHead
from support.steps import FIRST, RUN, Checkpoints, golden_batch, order_of
from trialog.trainer.errors import HostTimeoutError, HostUnavailableError
from trialog.trainer.host import RayHost
from trialog.trainer.learners.bandit import read
from trialog.trainer.policy import Applied

pytestmark = [
    pytest.mark.stack,
    # Ray's own listener thread ends with a traceback when its cluster is killed.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]
LIMIT_S = 90.0
BATCH = golden_batch("clean", 0)


@pytest.fixture(scope="module")
def head() -> Iterator[RayHead]:
    with RayHead() as head:
        yield head


@pytest.fixture
async def host(head: RayHead) -> AsyncIterator[RayHost]:
    host = RayHost(head.address)
    yield host
    await host.retire(RUN, timeout_s=LIMIT_S)
    await host.close()


async def train(host: RayHost, kept: Checkpoints, step: int, weights: bytes) -> Applied:
    order = order_of(step, weights, golden_batch("injected", step))
    applied = await host.apply(RUN, order, kept.load, timeout_s=LIMIT_S)
    kept.keep(applied.weights)
    return applied


def assert_golden(weights: bytes, step: int) -> None:
    prior = {world: [round(v, 3) for v in docs] for world, docs in read(weights).items()}
    assert prior == golden.RUNS["injected"]["steps"][step]["prior"]


async def test_an_actor_killed_between_steps_is_restored(host: RayHost) -> None:
    kept = Checkpoints(FIRST)
    first = await train(host, kept, 0, FIRST)
    os.kill(first.pid, signal.SIGKILL)
    second = await train(host, kept, 1, first.weights)
    third = await train(host, kept, 2, second.weights)
    assert second.actor != first.actor
    assert (third.actor, third.pid) == (second.actor, second.pid)
    assert kept.loaded == [
        order_of(n, w, ()).prior_digest for n, w in enumerate((FIRST, first.weights))
    ]
    assert_golden(third.weights, 2)


async def test_a_cluster_killed_between_steps_is_replaced(host: RayHost, head: RayHead) -> None:
    kept = Checkpoints(FIRST)
    first = await train(host, kept, 0, FIRST)
    second = await train(host, kept, 1, first.weights)
    head.kill()
    head.launch()
    third = await train(host, kept, 2, second.weights)
    assert (third.actor, third.pid) != (second.actor, second.pid)
    assert_golden(third.weights, 2)


async def test_a_cluster_killed_within_a_step_is_replaced(host: RayHost, head: RayHead) -> None:
    kept = Checkpoints(FIRST)
    first = await train(host, kept, 0, FIRST)
    os.kill(first.pid, signal.SIGSTOP)
    step = asyncio.create_task(train(host, kept, 1, first.weights))
    done, _ = await asyncio.wait([step], timeout=1)
    assert not done
    head.kill()
    head.launch()
    assert_golden((await step).weights, 1)


async def test_an_idle_host_gives_a_dead_cluster_up(head: RayHead) -> None:
    host = RayHost(head.address)
    await host.connect(timeout_s=LIMIT_S)
    session = host._connection._session
    assert session is not None
    head.kill()
    try:
        # Ray would end this process after 60 s without its cluster.
        await asyncio.wait_for(session.lost.wait(), 20)
        with pytest.raises(HostUnavailableError):
            await host.connect(timeout_s=1)
    finally:
        head.launch()
    await host.connect(timeout_s=LIMIT_S)
    await host.close()


async def test_waiting_for_a_cluster_leaves_the_loop_free() -> None:
    host, ticks = RayHost("127.0.0.1:9"), 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.05)
            ticks += 1

    ticking = asyncio.create_task(tick())
    with pytest.raises(HostUnavailableError, match="no Ray cluster"):
        await host.apply(RUN, order_of(0, FIRST, BATCH), Checkpoints().load, timeout_s=1.5)
    ticking.cancel()
    assert ticks >= 10
    await host.close()


async def test_an_actor_that_hangs_costs_the_time_allowed_and_no_more(host: RayHost) -> None:
    kept, order = Checkpoints(FIRST), order_of(1, FIRST, BATCH)
    first = await train(host, kept, 0, FIRST)
    os.kill(first.pid, signal.SIGSTOP)
    with pytest.raises(HostTimeoutError):
        await host.apply(RUN, order, kept.load, timeout_s=1)
    os.kill(first.pid, signal.SIGCONT)
    again = await host.apply(RUN, order, kept.load, timeout_s=LIMIT_S)
    assert again.pid == first.pid
    assert await host.applied(RUN, timeout_s=LIMIT_S) == 2


async def test_an_actor_outlives_its_host_and_serves_the_next(head: RayHead, host: RayHost) -> None:
    """The other host is a process of its own, killed without a word."""
    code = (
        "import asyncio, sys\n"
        "sys.path.insert(0, 'tests')\n"
        "from support.steps import *\n"
        "from trialog.trainer.host import RayHost\n"
        "async def main():\n"
        f"    host = RayHost('{head.address}')\n"
        "    kept = Checkpoints(FIRST)\n"
        "    order = order_of(0, FIRST, golden_batch('injected', 0))\n"
        "    applied = await host.apply(RUN, order, kept.load, timeout_s=60)\n"
        "    print(applied.actor, applied.pid, flush=True)\n"
        "    await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    other = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=subprocess.PIPE)
    assert other.stdout is not None
    line = (await other.stdout.readline()).decode()
    other.kill()
    await other.communicate()
    again = await train(host, Checkpoints(), 0, FIRST)
    assert f"{again.actor} {again.pid}" == line.strip()
    assert await host.applied(RUN, timeout_s=LIMIT_S) == 1


async def test_an_idle_actor_ends_itself_and_is_made_anew(head: RayHead) -> None:
    host = RayHost(head.address, idle_s=0.5)
    kept = Checkpoints(FIRST)
    first = await train(host, kept, 0, FIRST)
    process = psutil.Process(first.pid) if psutil.pid_exists(first.pid) else None
    if process is not None:
        await asyncio.to_thread(process.wait, 30)
    second = await train(host, kept, 1, first.weights)
    assert second.actor != first.actor
    assert_golden(second.weights, 1)
    await host.close()


async def test_runs_have_actors_of_their_own(host: RayHost) -> None:
    other = "r-bbbbbbbbbbbbbbbb"
    kept, order = Checkpoints(FIRST), order_of(0, FIRST, BATCH)
    one, two = await asyncio.gather(
        *(host.apply(run, order, kept.load, timeout_s=LIMIT_S) for run in (RUN, other))
    )
    assert one.digest == two.digest
    assert one.actor != two.actor
    await host.retire(other, timeout_s=LIMIT_S)


async def test_a_wrong_token_is_said_and_waited_out(head: RayHead) -> None:
    code = (
        "import asyncio\n"
        "from trialog.trainer.host import RayHost\n"
        "from trialog.trainer.errors import HostUnavailableError\n"
        "async def main():\n"
        f"    host = RayHost('{head.address}')\n"
        "    try:\n"
        "        await host.connect(timeout_s=8)\n"
        "    except HostUnavailableError:\n"
        "        print('unavailable')\n"
        "    await host.close()\n"
        "asyncio.run(main())\n"
    )
    env = os.environ | {"RAY_AUTH_TOKEN": "0" * 64}
    env.pop("RAY_AUTH_TOKEN_PATH")
    run = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", code],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.stdout.strip() == "unavailable", run.stderr
