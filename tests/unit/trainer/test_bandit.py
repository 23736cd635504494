"""The bandit against the golden weights, and against the plain loop, bit by bit."""

import json
import random

import msgspec
import pytest
from support import golden
from support.steps import golden_batch
from trialog.proto.policy import initial_weights
from trialog.trainer.batch import BatchItem
from trialog.trainer.errors import BatchError, UnknownLearnerError
from trialog.trainer.learner import learner_of
from trialog.trainer.learners.bandit import Bandit, read


@pytest.mark.parametrize("run", golden.RUBRICS)
def test_gives_the_golden_weights_of_every_step(run: str) -> None:
    weights = initial_weights(3)
    for step, expected in enumerate(golden.RUNS[run]["steps"]):
        weights = Bandit(2.0).apply(weights, golden_batch(run, step))
        prior = {world: [round(v, 3) for v in docs] for world, docs in read(weights).items()}
        assert prior == expected["prior"]


def made_up(n_trials: int) -> list[BatchItem]:
    draw = random.Random(102)
    items = [
        BatchItem(
            trial_id=f"s0-p{n // 2}-n{n % 2}",
            world_id=f"w{n // 2 % 3}",
            found_doc=draw.choice([None, *range(8)]),
            reward=round(draw.uniform(-0.5, 2.5), 3),
            digest="",
        )
        for n in range(n_trials)
    ]
    return sorted(items, key=lambda item: item.trial_id)


def plain_loop(batch: list[BatchItem], steps: int) -> dict[str, list[float]]:
    prior = {f"w{w}": [1.0] * 8 for w in range(3)}
    for _ in range(steps):
        for item in batch:
            if item.found_doc is not None and item.reward > 0:
                prior[item.world_id][item.found_doc] += 2.0 * item.reward
    return prior


@pytest.mark.parametrize("n_trials", [102, 1000])
def test_equals_the_plain_loop_bitwise_over_checkpoints(n_trials: int) -> None:
    batch, weights = made_up(n_trials), initial_weights(3)
    for _ in range(3):
        weights = Bandit(2.0).apply(weights, batch)
    assert read(weights) == plain_loop(batch, 3)


def test_the_order_of_completion_would_change_the_last_bits() -> None:
    batch = made_up(102)
    shuffled = random.Random(1).sample(batch, len(batch))
    canonical, completed = plain_loop(batch, 3), plain_loop(shuffled, 3)
    assert canonical != completed
    for world, docs in canonical.items():
        assert docs == pytest.approx(completed[world])


def test_numeric_order_of_trials_is_refused() -> None:
    numeric = [BatchItem(f"s0-p{p}-n0", "w0", 0, 1.0, "") for p in (2, 10)]
    with pytest.raises(BatchError):
        Bandit(2.0).apply(initial_weights(1), numeric)
    assert Bandit(2.0).apply(initial_weights(1), numeric[::-1])


def test_takes_nothing_from_a_reward_of_zero_or_less_nor_without_the_secret() -> None:
    items = [
        BatchItem("s0-p0-n0", "w0", 1, 0.0, ""),
        BatchItem("s0-p0-n1", "w0", 1, -1.0, ""),
        BatchItem("s0-p0-n2", "w0", None, 1.0, ""),
    ]
    first = initial_weights(1)
    assert Bandit(2.0).apply(first, items) == first


@pytest.mark.parametrize(("world", "doc"), [("w9", 0), ("w0", 8), ("w0", -1)])
def test_refuses_a_document_that_has_no_weight(world: str, doc: int) -> None:
    with pytest.raises(BatchError, match="s0-p0-n0"):
        Bandit(2.0).apply(initial_weights(1), [BatchItem("s0-p0-n0", world, doc, 1.0, "")])


def test_refuses_to_outgrow_a_float() -> None:
    item = BatchItem("s0-p0-n0", "w0", 0, 1e308, "")
    with pytest.raises(BatchError, match="out of range"):
        Bandit(1e6).apply(initial_weights(1), [item])


def test_weights_are_canonical_json() -> None:
    weights = Bandit(2.0).apply(initial_weights(1), [BatchItem("s0-p0-n0", "w0", 1, 0.1, "")])
    assert weights == b'{"doc_prior":{"w0":[1,1.2,1,1,1,1,1,1]}}'
    assert json.loads(weights)


@pytest.mark.parametrize("config", [{}, {"name": "sage"}, {"name": "bandit", "lr": 1.0, "x": 1}])
def test_an_unknown_learner_is_refused(config: dict[str, object]) -> None:
    with pytest.raises(UnknownLearnerError):
        learner_of(config)


def test_items_travel_as_json() -> None:
    item = made_up(1)[0]
    assert msgspec.json.decode(msgspec.json.encode(item), type=BatchItem) == item
