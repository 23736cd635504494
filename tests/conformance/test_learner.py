"""One suite for every learner, and one for every policy host: in memory, and a Ray actor."""

from collections.abc import AsyncIterator, Iterator

import msgspec
import pytest
from support.ray_head import RayHead
from support.steps import FIRST, RUN, Checkpoints, golden_batch, order_of
from trialog.proto.canonical import bytes_digest
from trialog.proto.runspec import RunSpec
from trialog.trainer.errors import BatchError, CheckpointError, StepConflictError
from trialog.trainer.host import PolicyHost, RayHost
from trialog.trainer.learner import Learner, learner_config, learner_of
from trialog.trainer.memory import MemoryHost

BATCH = golden_batch("clean", 0)
LIMIT_S = 60.0

# Learners ---------------------------------------------------------------------------------------


@pytest.fixture(params=["bandit"])
def spec(request: pytest.FixtureRequest) -> RunSpec:
    return RunSpec(learner=request.param)


@pytest.fixture
def learner(spec: RunSpec) -> Learner:
    return learner_of(learner_config(spec))


def test_learning_is_pure(learner: Learner, spec: RunSpec) -> None:
    first = learner.initial(spec)
    once, again = learner.apply(first, BATCH), learner.apply(first, BATCH)
    assert once == again != first
    assert learner.initial(spec) == first


def test_weights_read_back_go_on_as_they_were(learner: Learner, spec: RunSpec) -> None:
    weights = learner.apply(learner.initial(spec), BATCH)
    assert learner.apply(weights, []) == weights


def test_a_batch_out_of_order_is_refused(learner: Learner, spec: RunSpec) -> None:
    first = learner.initial(spec)
    for batch in (BATCH[::-1], [BATCH[0], BATCH[0]]):
        with pytest.raises(BatchError, match="order by trial id"):
            learner.apply(first, batch)


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), float("-inf")])
def test_a_reward_that_is_no_number_is_refused(
    learner: Learner, spec: RunSpec, reward: float
) -> None:
    with pytest.raises(BatchError, match=BATCH[0].trial_id):
        learner.apply(learner.initial(spec), [msgspec.structs.replace(BATCH[0], reward=reward)])


@pytest.mark.parametrize("weights", [b"", b"{}", b"[]", b'{"doc_prior": [1]}', b"\xff"])
def test_weights_that_are_none_are_refused(learner: Learner, weights: bytes) -> None:
    with pytest.raises(CheckpointError):
        learner.apply(weights, BATCH)


# Hosts ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayHead]:
    with RayHead() as head:
        yield head


@pytest.fixture(params=["memory", pytest.param("ray", marks=pytest.mark.stack)])
async def host(request: pytest.FixtureRequest) -> AsyncIterator[MemoryHost | RayHost]:
    if request.param == "memory":
        host = MemoryHost()
    else:
        head: RayHead = request.getfixturevalue("head")
        host = RayHost(head.address)
    yield host
    await host.retire(RUN, timeout_s=LIMIT_S)
    await host.close()


async def test_a_warm_policy_needs_no_checkpoint(host: PolicyHost) -> None:
    kept = Checkpoints(FIRST)
    weights, makers = FIRST, set[tuple[str, int]]()
    for step in range(3):
        order = order_of(step, weights, golden_batch("clean", step))
        applied = await host.apply(RUN, order, kept.load, timeout_s=LIMIT_S)
        assert applied.digest == bytes_digest(applied.weights)
        makers.add((applied.actor, applied.pid))
        weights = applied.weights
    assert kept.loaded == [bytes_digest(FIRST)]
    assert len(makers) == 1


async def test_a_repeated_order_is_answered_from_memory(host: MemoryHost | RayHost) -> None:
    kept, order = Checkpoints(FIRST), order_of(0, FIRST, BATCH)
    once = await host.apply(RUN, order, kept.load, timeout_s=LIMIT_S)
    again = await host.apply(RUN, order, kept.load, timeout_s=LIMIT_S)
    assert once == again
    assert await host.applied(RUN, timeout_s=LIMIT_S) == 1


async def test_a_step_with_other_inputs_is_refused(host: PolicyHost) -> None:
    kept, order = Checkpoints(FIRST), order_of(0, FIRST, BATCH)
    await host.apply(RUN, order, kept.load, timeout_s=LIMIT_S)
    same_key = msgspec.structs.replace(order, batch=BATCH[:-1])
    for other in (order_of(0, FIRST, BATCH[:-1]), same_key):
        with pytest.raises(StepConflictError, match=order.step_key):
            await host.apply(RUN, other, kept.load, timeout_s=LIMIT_S)


async def test_what_a_learner_refuses_comes_back_as_it_is(host: PolicyHost) -> None:
    kept = Checkpoints(FIRST)
    with pytest.raises(BatchError, match="order by trial id"):
        order = order_of(0, FIRST, BATCH[::-1])
        await host.apply(RUN, order, kept.load, timeout_s=LIMIT_S)
    applied = await host.apply(RUN, order_of(0, FIRST, BATCH), kept.load, timeout_s=LIMIT_S)
    assert applied.weights != FIRST


async def test_a_checkpoint_with_other_bytes_is_refused(host: PolicyHost) -> None:
    async def other(_: str) -> bytes:
        return FIRST + b" "

    with pytest.raises(CheckpointError):
        await host.apply(RUN, order_of(0, FIRST, BATCH), other, timeout_s=LIMIT_S)


async def test_a_policy_that_forgot_is_restored(host: PolicyHost) -> None:
    kept, order = Checkpoints(FIRST), order_of(0, FIRST, BATCH)
    once = await host.apply(RUN, order, kept.load, timeout_s=LIMIT_S)
    await host.forget(RUN, timeout_s=LIMIT_S)
    assert await host.apply(RUN, order, kept.load, timeout_s=LIMIT_S) == once
    assert kept.loaded == [order.prior_digest] * 2


async def test_a_retired_policy_is_gone_and_retiring_twice_is_no_error(host: PolicyHost) -> None:
    kept, order = Checkpoints(FIRST), order_of(0, FIRST, BATCH)
    before = await host.apply(RUN, order, kept.load, timeout_s=LIMIT_S)
    await host.retire(RUN, timeout_s=LIMIT_S)
    await host.retire(RUN, timeout_s=LIMIT_S)
    after = await host.apply(RUN, order, kept.load, timeout_s=LIMIT_S)
    assert after.digest == before.digest
    assert after.actor != before.actor
