"""What is recovered says where it was first recorded, and is what stands there."""

from __future__ import annotations

from typing import Any

from msgspec.structs import asdict
from support.site import Site
from trialog.proto import events as ev

# Of a fact that is recovered, what belongs to the run that records it.
_OWN = {"provenance", "settled", "whole", "inputs_key", "bill", "n_skipped"}


def assert_sources(site: Site, run_id: str) -> None:
    """Hold that every recovered fact of a run is another's in all but what is the run's own."""
    request = site.outcomes[run_id].request
    pins = {each.run_id: each.position for each in request.lineage}
    for fact in site.facts(run=run_id):
        source = getattr(fact, "provenance", None)
        if source is None:
            continue
        event = site.store.events[0][source.position - 1].recorded
        there = event.fact()
        assert (event.run_id, event.position) == (source.run_id, source.position)
        assert type(there) is type(fact)
        if isinstance(fact, ev.JudgeCallRecorded):  # found anywhere in the tree, also later
            assert there.call_key == fact.call_key and there.provenance is None
            continue
        assert source.position <= pins[source.run_id], "nobody sees beyond its pin"
        if not getattr(fact, "whole", False):
            assert there.provenance is None, "provenance names who paid"
        assert _content(there) == _content(fact)


def _content(fact: Any) -> dict[str, Any]:
    return {name: value for name, value in asdict(fact).items() if name not in _OWN}
