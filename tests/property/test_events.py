"""Facts of every type: kept and read back whole, each in a slot of its own."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.strategies import SURROGATES, facts, facts_of
from trialog.proto import events as ev
from trialog.proto.slots import slot_of
from trialog.proto.work import origin_slot, parse_key, work_of
from trialog.spine.log import EventTooLargeError, new_event

RUN = "r-abcdefghijklmnop"
# What a fact is about: facts of one group and one subject share a slot, and no others do.
SUBJECT: dict[str, tuple[str, tuple[str, ...]]] = {
    "RunRequested": ("run", ()),
    "WorldRequested": ("world requested", ("world_id",)),
    "WorldBuilt": ("world", ("world_id",)),
    "TrialRequested": ("trial", ("trial_id",)),
    "TrialAttemptFailed": ("failed", ("subject", "stage", "n")),
    "TrialRetryScheduled": ("retry", ("subject", "stage", "n")),
    "TrajectoryRecorded": ("trajectory", ("trial_id",)),
    "TrialVerified": ("verified", ("trial_id",)),
    "JudgeCallStarted": ("call started", ("call_key", "fence")),
    "JudgeCallRecorded": ("call", ("call_key", "ordinal")),
    "Judged": ("end", ("trial_id",)),
    "TrialSkipped": ("end", ("trial_id",)),
    "TrialCancelled": ("end", ("trial_id",)),
    "StepRequested": ("step requested", ("step",)),
    "StepApplied": ("step applied", ("step",)),
    "RunPaused": ("paused", ("n",)),
    "RunResumed": ("resumed", ("n",)),
    "RunCancelled": ("run end", ()),
    "RunFailed": ("run end", ()),
    "RunCompleted": ("run end", ()),
    "FaultInjected": ("fault", ("kind", "step")),
    "DeliveryDeadLettered": ("dead", ("key", "n")),
}
TRIALS = st.sampled_from(["s0-p0-n0", "s0-p0-n1", "s1-p0-n0", "s0-p1-n0"])
WORDS = st.sampled_from(["a", "b", "generate", "judge"])
SMALL = st.integers(0, 2)
_DOMAINS: dict[str, st.SearchStrategy[Any]] = {
    "trial_id": TRIALS,
    "subject": TRIALS | st.sampled_from(["w0", "step-0"]),
    "world_id": st.sampled_from(["w0", "w1"]),
    "stage": WORDS,
    "kind": WORDS,
    "call_key": WORDS,
    "key": WORDS,
    "failure": st.sampled_from(["lost", "agent"]),
    "n": SMALL,
    "fence": SMALL,
    "ordinal": SMALL,
    "step": SMALL,
}


def near(cls: type[ev.Fact]) -> st.SearchStrategy[ev.Fact]:
    """Facts of a type whose subjects are few, so that two are often about the same."""
    names = cls.__struct_fields__
    return facts_of(cls, **{name: s for name, s in _DOMAINS.items() if name in names})


NEAR = st.one_of(*(near(cls) for cls in ev.TYPES.values()))


def subject(fact: ev.Fact) -> tuple[object, ...]:
    group, names = SUBJECT[type(fact).__name__]
    if isinstance(fact, ev.TrialAttemptFailed) and fact.failure == "lost":
        group = "lost"
    return (group, *(getattr(fact, name) for name in names))


@pytest.mark.parametrize("name", ev.TYPES)
@given(data=st.data())
def test_a_fact_of_every_type_is_read_back_whole(name: str, data: st.DataObject) -> None:
    fact = data.draw(facts_of(ev.TYPES[name]))
    text = ev.encode(fact)
    assert ev.decode(name, ev.SCHEMA_VERSION[name], text) == fact
    assert ev.decode(name, ev.SCHEMA_VERSION[name], text.decode()) == fact
    assert ev.encode(ev.decode(name, 1, text)) == text


@given(facts())
def test_the_text_has_its_keys_in_order_and_no_defaults(fact: ev.Fact) -> None:
    value = json.loads(ev.encode(fact))
    assert list(value) == sorted(value)
    for name, default in (("provenance", None), ("message", ""), ("scores", {})):
        if getattr(fact, name, ...) == default:
            assert name not in value


@given(facts(SURROGATES))
def test_text_that_utf8_cannot_hold_never_stops_a_fact(fact: ev.Fact) -> None:
    text = ev.encode(fact)
    again = ev.decode(type(fact).__name__, 1, text)
    assert ev.encode(again) == text


@given(NEAR, NEAR)
def test_two_facts_share_a_slot_only_when_they_are_about_the_same(
    one: ev.Fact, other: ev.Fact
) -> None:
    assert (slot_of(one) == slot_of(other)) == (subject(one) == subject(other))


@given(NEAR, NEAR)
def test_the_same_fact_is_the_same_event_and_another_is_not(one: ev.Fact, other: ev.Fact) -> None:
    first, second, third = (new_event(RUN, fact) for fact in (one, one, other))
    assert (first.event_id, first.body_hash) == (second.event_id, second.body_hash)
    assert (first.event_id == third.event_id) == (subject(one) == subject(other))
    same_text = (type(one), ev.encode(one)) == (type(other), ev.encode(other))
    assert (first.body_hash == third.body_hash) == same_text
    assert new_event("r-zzzzzzzzzzzzzzzz", one).event_id != first.event_id


@given(NEAR)
def test_work_leads_back_to_the_event_that_offered_it(fact: ev.Fact) -> None:
    work = work_of(RUN, fact)
    event = new_event(RUN, fact)
    assert (event.offer.work if event.offer else None) == work
    assert new_event(RUN, fact, offered=False).offer is None
    if work is None or work.stage in ("a", "b"):
        return
    assert parse_key(work.key) == work
    if not isinstance(fact, ev.TrialRetryScheduled):
        assert origin_slot(work) == slot_of(fact)


@given(st.integers(0, 6000))
def test_a_fact_is_kept_up_to_its_limit(size: int) -> None:
    fact = ev.RunFailed("x" * size)
    if len(ev.encode(fact)) <= 4096:
        assert new_event(RUN, fact).data == ev.encode(fact).decode()
    else:
        with pytest.raises(EventTooLargeError):
            new_event(RUN, fact)


def test_every_type_has_a_subject() -> None:
    assert set(SUBJECT) == set(ev.TYPES)


@pytest.mark.parametrize(("name", "version"), [("TrialDreamt", 1), ("Judged", 2), ("", 1)])
def test_an_event_from_the_future_is_named(name: str, version: int) -> None:
    with pytest.raises(ev.UnknownEventError, match="update this service"):
        ev.decode(name, version, b"{}")


def test_no_slot_for_what_is_no_event() -> None:
    with pytest.raises(TypeError, match="no event"):
        slot_of(ev.Fact())
