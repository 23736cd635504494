"""What a policy's memory keeps, what it drops, and when its actor leaves."""

import threading

from support.steps import FIRST, golden_batch, order_of
from trialog.trainer.actor import PolicyActor, actor_name
from trialog.trainer.policy import KEPT_STEPS, KEPT_WEIGHTS, Applied, PolicyMemory, UnknownPrior

BATCH = golden_batch("clean", 0)


def test_memory_is_bounded_and_old_steps_are_worked_out_again() -> None:
    memory, weights, priors = PolicyMemory("a", 1), FIRST, list[bytes]()
    for step in range(KEPT_STEPS + 2):
        priors.append(weights)
        outcome = memory.apply(order_of(step, weights, BATCH), weights)
        assert isinstance(outcome, Applied)
        weights = outcome.weights
    assert memory.applied == KEPT_STEPS + 2
    old = order_of(0, FIRST, BATCH)
    assert memory.apply(old) == UnknownPrior(old.prior_digest)
    again = memory.apply(old, FIRST)
    assert isinstance(again, Applied)
    assert again.weights == priors[1]


def test_the_latest_weights_are_held_by_digest() -> None:
    memory, weights, priors = PolicyMemory("a", 1), FIRST, list[bytes]()
    for step in range(KEPT_WEIGHTS + 1):
        outcome = memory.apply(order_of(step, weights, BATCH), weights)
        assert isinstance(outcome, Applied)
        weights = outcome.weights
        priors.append(weights)
    assert isinstance(memory.apply(order_of(90, priors[-1], BATCH)), Applied)
    assert isinstance(memory.apply(order_of(91, priors[0], BATCH)), UnknownPrior)


def test_an_idle_actor_leaves_and_a_working_one_does_not() -> None:
    left = threading.Event()
    actor = PolicyActor(0.05, "a", left.set)
    with actor._lock:  # as if a long step were under way
        assert not left.wait(0.3)
    assert left.wait(10)


def test_an_actor_in_use_counts_from_its_last_step() -> None:
    left = threading.Event()
    actor = PolicyActor(600, "a", left.set)
    outcome = actor.apply(order_of(0, FIRST, BATCH), FIRST)
    assert isinstance(outcome, Applied)
    assert (outcome.actor, actor.applied()) == ("a", 1)
    actor.forget()
    assert isinstance(actor.apply(order_of(0, FIRST, BATCH)), UnknownPrior)
    assert not left.is_set()


def test_a_run_has_one_name() -> None:
    assert actor_name("r-abcdefghijklmnop") == "policy-r-abcdefghijklmnop"
