"""Events that were recorded once are read for ever: golden fixtures of every type and version."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from trialog.proto import events as ev
from trialog.proto.slots import slot_of
from trialog.spine.log import new_event

_GOLDEN = Path(__file__).parents[2] / "golden" / "events.json"
FIXTURES: list[dict[str, Any]] = json.loads(_GOLDEN.read_text())


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda f: f"{f['type']}-{f['schema_version']}")
def test_what_was_recorded_is_still_read(fixture: dict[str, Any]) -> None:
    fact = ev.decode(fixture["type"], fixture["schema_version"], fixture["data"])
    assert type(fact).__name__ == fixture["type"]
    assert slot_of(fact) == fixture["slot"]


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda f: f"{f['type']}-{f['schema_version']}")
def test_todays_version_is_written_as_it_was(fixture: dict[str, Any]) -> None:
    """A fact that is decided again after an update must be the same event."""
    name, version = fixture["type"], fixture["schema_version"]
    if version != ev.SCHEMA_VERSION[name]:
        pytest.skip("an older version is read, not written")
    fact = ev.decode(name, version, fixture["data"])
    assert ev.encode(fact).decode() == fixture["data"]
    event = new_event("r-abcdefghijklmnop", fact)
    assert str(event.event_id) == fixture["event_id"]
    assert event.body_hash.hex() == fixture["body_hash"]
    text = f"r-abcdefghijklmnop\n{name}\n{version}\n{fixture['data']}"
    assert event.body_hash == hashlib.sha256(event.event_id.bytes + text.encode()).digest()


def test_every_type_and_version_has_a_fixture() -> None:
    wanted = {(n, v) for n, last in ev.SCHEMA_VERSION.items() for v in range(1, last + 1)}
    assert {(f["type"], f["schema_version"]) for f in FIXTURES} == wanted
