"""A trajectory is kept whatever its texts and names are, and no two of them meet."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from trialog.proto.canonical import canonical, written_out
from trialog.sandbox.record import final_state, keep
from trialog.sandbox.snapshot import Snapshot, SnapshotEntry

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=6)
# As the filesystem has them: any bytes but NUL and the slash, read with surrogate escapes.
NAMES = (
    st.binary(min_size=1, max_size=6)
    .filter(lambda name: not {0, 47} & set(name))
    .map(lambda name: name.decode("utf-8", "surrogateescape"))
)
TREACHEROUS = [
    "",
    "\0",
    "\\u0000",
    "\ud800",
    "\\ud800",
    "\udcff",
    "\ufffd",
    "\xff",
    "a\ud83d\ude00",
]


def kept(text: str, name: str) -> tuple[bytes, str]:
    meaning: dict[str, Any] = {"turns": [], "answer": text, "files": [name]}
    return keep(meaning, Snapshot((SnapshotEntry(name, "file", 1, digest="d", data=b"\0"),)))


@given(ANY_TEXT, NAMES)
def test_what_is_kept_can_be_read_by_everybody(text: str, name: str) -> None:
    blob, _ = kept(text, name)
    read = msgspec.json.decode(blob)
    assert read["answer"] == written_out(text)
    assert msgspec.json.encode(read).decode(), "it can be sent on"
    (entry,) = final_state(blob).entries
    assert (entry.path, entry.data) == (written_out(name), b"\0")


@given(ANY_TEXT, ANY_TEXT, NAMES, NAMES)
def test_two_trajectories_have_two_digests(one: str, other: str, this: str, that: str) -> None:
    digests = [kept(one, this)[1], kept(other, that)[1]]
    assert (digests[0] == digests[1]) == ((one, this) == (other, that))


def test_the_treacherous_neither_crash_nor_meet() -> None:
    digests = {kept(text, "answer.txt")[1] for text in TREACHEROUS}
    assert len(digests) == len(TREACHEROUS)
    names = {kept("", name)[1] for name in TREACHEROUS}
    assert len(names) == len(TREACHEROUS)


@given(st.text(max_size=6), NAMES)
def test_text_is_kept_as_it_is(text: str, name: str) -> None:
    """Byte for byte what it was: a fork's blob is its parent's."""
    if written_out(name) == name:
        meaning: dict[str, Any] = {"turns": [], "answer": text, "files": [name]}
        assert keep(meaning, Snapshot(()))[0] == canonical({**meaning, "state": []})
