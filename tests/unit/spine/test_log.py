"""The log's port: verdicts, and batches in the shape that the database takes."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from support import facts as f
from trialog.proto import events as ev
from trialog.spine.log import (
    Append,
    Claim,
    ClaimLostError,
    Fail,
    FencedError,
    Finish,
    InvalidMemberError,
    LogError,
    Member,
    NewWork,
    Release,
    Renew,
    SlotTakenError,
    Verdict,
    checked,
    new_event,
)
from trialog.spine.postgres import log as postgres_log
from trialog.spine.postgres import queries
from trialog.spine.postgres.batch import batch_arguments

EVENT = new_event(f.RUN, f.trajectory("s0-p0-n0"))
MEMBERS: list[Member] = [
    Append([EVENT], 3, ["a/b/judge"]),
    Claim("a/b/generate", 1000, 2, [EVENT], NewWork("call", f.RUN)),
    Finish("a/b/generate", 1, [EVENT], [b"bytes"]),
    Fail("a/b/generate", 1, [EVENT], injected=True),
    Release("a/b/generate", 1),
    Release("a/b/generate", 1, [EVENT], dead=True),
    Renew("a/b/generate", 1, 1000),
]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ("fenced", FencedError),
        ("different", SlotTakenError),
        ("lost", ClaimLostError),
        ("held", ClaimLostError),
        ("done", ClaimLostError),
        ("refused", ClaimLostError),
    ],
)
def test_a_verdict_that_is_not_ok_is_raised_as_what_it_means(
    answer: str, error: type[LogError]
) -> None:
    verdict = Verdict(answer)
    assert not verdict.ok
    with pytest.raises(error):
        verdict.check()


@pytest.mark.parametrize("answer", ["ok", "closed"])
def test_a_verdict_that_is_ok_is_itself(answer: str) -> None:
    verdict = Verdict(answer)
    assert verdict.check() is verdict


def test_a_batch_has_one_column_for_each_parameter_of_the_function() -> None:
    numbers = [int(n) for n in re.findall(r"\$(\d+)", queries.COMMIT_BATCH)]
    for members in ([], MEMBERS[:1], MEMBERS):
        arguments = batch_arguments(7, members)
        assert numbers == list(range(1, len(arguments) + 1))
    assert len({len(column) for column in arguments[1:9]}) == 1
    assert len({len(column) for column in arguments[9:24]}) == 1
    assert arguments[9] == [1, 2, 3, 4, 6]
    assert b"".join(arguments[1]) == b"acfxbdr"
    assert arguments[postgres_log._EVENT_PARTITIONS] == [0] * 5


def test_an_append_names_its_partition_only_for_its_owner() -> None:
    (partitions,) = (batch_arguments(7, [Append([EVENT]), Append([EVENT], 1)])[4],)
    assert partitions == [None, 0]
    elsewhere = Append([], 1, ["a/b/judge"], partition=4)
    assert batch_arguments(7, [elsewhere])[4] == [4]


@pytest.mark.parametrize("member", MEMBERS, ids=lambda member: type(member).__name__)
def test_a_sound_member_is_left_as_it_is(member: Member) -> None:
    assert checked(member) is member


def test_an_event_said_twice_is_said_once() -> None:
    again = new_event(f.RUN, f.trajectory("s0-p0-n0"))
    assert checked(Append([EVENT, again])) == Append((EVENT,))
    other = new_event(f.RUN, f.trajectory("s0-p0-n0", n_turns=9))
    with pytest.raises(SlotTakenError):
        checked(Append([EVENT, other]))


@pytest.mark.parametrize(
    "member",
    [
        replace(MEMBERS[6], key="a\0"),
        replace(MEMBERS[6], key="a\ud800"),
        replace(MEMBERS[6], key="a\nb"),
        replace(MEMBERS[6], lease_ms=0),
        replace(MEMBERS[6], fence=-1),
        replace(MEMBERS[2], blobs=[bytes(32_769)]),
    ],
)
def test_a_member_that_no_log_can_keep_is_refused(member: Member) -> None:
    with pytest.raises(InvalidMemberError):
        checked(member)


def test_work_is_held_or_late_as_its_event_says() -> None:
    held = new_event(f.RUN, f.trajectory("s0-p0-n0"), held_ms=500)
    assert held.offer and held.offer.held_ms == 500
    retry = new_event(f.RUN, ev.TrialRetryScheduled("s0-p0-n0", "judge", 0, 1234, 0))
    assert retry.offer and retry.offer.not_before_ms == 1234
    assert new_event(f.RUN, f.judged("s0-p0-n0")).offer is None
    request = new_event(f.RUN, f.run_requested())
    assert (request.root, request.offer) == (f.RUN, None)
