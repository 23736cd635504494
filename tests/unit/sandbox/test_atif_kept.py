"""What is kept of a trajectory: a digest of what it means, a bounded part for judges and lists."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
from trialog.proto.canonical import bytes_digest, canonical
from trialog.sandbox import record
from trialog.sandbox.agent import Metrics
from trialog.sandbox.record import Tried
from trialog.sandbox.snapshot import Snapshot, SnapshotEntry
from trialog.sandbox.trajectory.atif import Actor
from trialog.sandbox.trajectory.log import Recorder
from trialog.sandbox.trajectory.turns import SHOWN_CHARACTERS, meaning, shown

ACTOR = Actor("mine", "1")
EMPTY = Snapshot(())


def log_of(
    command: str = "echo a", *, begin: float = 0.0, metrics: Metrics | None = None, said: str = "a"
) -> Recorder:
    clock: Iterator[float] = itertools.count(begin)
    log = Recorder(lambda: next(clock))
    log.message("user", "Do it.")
    log.message("agent", "I do.", metrics=metrics)
    log.end(log.call("exec", {"command": command}), said, 0)
    return log


def kept(*tries: Tried, state: Snapshot = EMPTY, session: str = "s") -> record.Kept:
    return record.keep_task(session, ACTOR, tries or (Tried(log_of()),), state)


def test_the_blob_of_a_task() -> None:
    written = Snapshot((SnapshotEntry("app/a", "file", 2), SnapshotEntry("app", "dir")))
    found = kept(Tried(log_of(), result={"state": "ab"}), state=written)
    assert json.loads(found.blob) == {
        "turns": [
            {"source": "user", "message": "Do it."},
            {
                "source": "agent",
                "message": "I do.",
                "calls": [
                    {
                        "name": "exec",
                        "arguments": {"command": "echo a"},
                        "result": "a",
                        "exit_code": 0,
                    }
                ],
            },
        ],
        "answer": None,
        "files": ["app/a"],
        "n_files": 1,
        "error": "",
        "steps": [
            {
                "step": None,
                "atif": bytes_digest(found.documents[0]),
                "error": "",
                "message": "",
                "n_turns": 1,
                "result": {"state": "ab"},
            }
        ],
    }
    assert json.loads(found.documents[0])["schema_version"] == "ATIF-v1.8"
    assert found.n_turns == 1


def test_steps_of_a_task_are_kept_in_their_order() -> None:
    first = Tried(log_of("one"), "plan", "NonZeroAgentExitCodeError", "it ended with 3")
    found = kept(first, Tried(log_of("two"), "do"))
    back = record.read(found.blob)
    assert [step.step for step in back.steps] == ["plan", "do"]
    assert [turn["step"] for turn in back.turns] == ["plan", "plan", "do", "do"]
    assert (back.error, back.steps[0].message) == ("NonZeroAgentExitCodeError", "it ended with 3")
    assert [step.atif for step in back.steps] == [bytes_digest(each) for each in found.documents]
    assert found.n_turns == 2
    assert found.digest != kept(Tried(log_of("two"), "do"), first).digest


def test_times_ids_and_costs_mean_nothing() -> None:
    metrics = Metrics(10, 3, 4, 0.25, [1, 2], [3], [-0.5])
    one, other = log_of(), log_of(begin=5e8, metrics=metrics)
    twins = [kept(Tried(one)), kept(Tried(other, message="so", result={"x": 1}), session="other")]
    assert twins[0].digest == twins[1].digest
    assert twins[0].documents != twins[1].documents


@pytest.mark.parametrize(
    "other",
    [
        kept(Tried(log_of("echo b"))),
        kept(Tried(log_of(said="b"))),
        kept(Tried(log_of(), error="AgentTimeoutError")),
        kept(Tried(log_of(), "plan")),
        kept(Tried(log_of(), state="ab")),
        kept(state=Snapshot((SnapshotEntry("a", "file", 1, digest="ab"),))),
    ],
    ids=["command", "result", "error", "step", "its state", "final state"],
)
def test_what_was_done_and_left_is_the_meaning(other: record.Kept) -> None:
    assert other.digest != kept().digest


def test_a_difference_that_a_judge_is_not_shown_is_one() -> None:
    """Equal digests are equal prompts: a call's key holds the digest alone."""
    texts = ["a" * 10_000 + middle + "a" * 10_000 for middle in "bc"]
    twins = [kept(Tried(log_of(text))) for text in texts]
    assert record.read(twins[0].blob).turns == record.read(twins[1].blob).turns
    assert twins[0].digest != twins[1].digest


def noisy(turns: int, calls: int, size: int) -> Recorder:
    log = Recorder(lambda: 0.0)
    for turn in range(turns):
        log.message("agent", f"{turn} " + "m" * size, reasoning="r" * size)
        for _ in range(calls):
            call = log.call("exec", {"command": "c" * size, "stdin": "i" * size, "cwd": "w" * size})
            log.end(call, "o" * size, 0)
    return log


@pytest.mark.parametrize(
    ("turns", "calls", "size"),
    [(1, 1, 30_000), (3, 400, 100), (5_000, 1, 10), (400, 3, 3_000), (150, 60, 500)],
)
def test_what_a_judge_is_shown_is_bounded(turns: int, calls: int, size: int) -> None:
    log = noisy(turns, calls, size)
    found = shown(meaning(log))
    assert len(canonical(found)) < 1.5 * SHOWN_CHARACTERS
    said = [turn["message"].split()[0] for turn in found if turn["source"] == "agent"]
    assert (said[0], said[-1]) == ("0", str(turns - 1))


def test_a_small_trajectory_is_shown_whole() -> None:
    turns = meaning(noisy(20, 3, 100))
    assert shown(turns) == turns


def test_what_is_left_out_is_said() -> None:
    found = shown(meaning(noisy(1_000, 60, 2)))
    gaps = [turn for turn in found if turn["source"] == "system"]
    agents = [turn for turn in found if turn["source"] == "agent"]
    assert [gap["message"] for gap in gaps] == [f"[{1_000 - len(agents)} turns left out]"]
    assert all(turn["calls_left_out"] + len(turn["calls"]) == 60 for turn in agents)


def test_many_files_are_counted_and_some_are_named() -> None:
    entries = tuple(SnapshotEntry(f"app/{n:06}", "file", 1) for n in range(5_000))
    back = record.read(kept(state=Snapshot(entries)).blob)
    assert (len(back.files), back.n_files) == (record.MAX_FILES, 5_000)
    long = tuple(SnapshotEntry(f"{n:06}" + "x" * 4_000, "file", 1) for n in range(10))
    back = record.read(kept(state=Snapshot(long)).blob)
    assert (len(back.files), back.n_files) == (3, 10)


def test_text_that_is_no_text_is_kept_readable() -> None:
    log = log_of("echo \udce9", said="\ud800")
    log.message("agent", "\udfff")
    found = kept(Tried(log), state=Snapshot((SnapshotEntry("\udce9", "file", 1),)))
    assert record.read(found.blob).files == ["\\udce9"]
    assert json.loads(found.documents[0])["steps"][-1]["message"] == "\\udfff"
    plain = log_of("echo \\udce9", said="\\ud800")
    plain.message("agent", "\\udfff")
    assert found.digest != kept(Tried(plain)).digest


def test_a_reference_trajectory_is_kept_as_ever() -> None:
    """Recorded runs hold these digests: the bytes of a blob are for good."""
    meaning_of: dict[str, Any] = {
        "turns": [{"doc": 3, "found": False}, {"doc": 0, "found": True}],
        "answer": "s3cr3t",
        "files": ["answer.txt", "scratch.tmp"],
    }
    digest = hashlib.sha256(b"s3cr3t").hexdigest()
    state = Snapshot(
        (
            SnapshotEntry("answer.txt", "file", 6, False, digest, b"s3cr3t"),
            SnapshotEntry("gone", "deleted"),
            SnapshotEntry("scratch.tmp", "file", 6, True, "ab" * 32, None),
        )
    )
    odd = Snapshot((SnapshotEntry("\udce9", "file", 1, False, digest, b"x"),))
    found = [record.keep(meaning_of, each) for each in (state, odd)]
    assert [(bytes_digest(blob), meant) for blob, meant in found] == [
        (
            "6e92d6b0cf97039a715bae59fd815d423456c146db0a4c70340bd1fe897dc930",
            "f3a778a3b0b78b25cea681ac475f140ce3bddd51ddc1bea591dd4cdd7fabcd3b",
        ),
        (
            "d410a53f6f95ee6a6fd9d21945b9fa91a90cc86baa7fd02f73a8863a77940a1b",
            "b40f0b3502796a3678af4f7f12d8e4419633bd38cd5a183c4d317a0c71f06a4a",
        ),
    ]
    assert record.final_state(found[0][0]) == state
