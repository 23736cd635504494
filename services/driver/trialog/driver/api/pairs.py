"""Reads the trials of two runs side by side, from the read models and the log behind them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from trialog.driver import queries
from trialog.driver.api.reader import Facts, Reader
from trialog.driver.comparison import Rewards
from trialog.driver.views import Doc, adopted

_decoder = msgspec.json.Decoder(dict)
# Trial ids are compared as text, byte by byte.
_BEYOND_ALL = "t"

Docs = tuple[Doc | None, Doc | None]


class Between(NamedTuple):
    """Trial ids after ``after`` and before ``before``: all, or those of one step."""

    after: str
    before: str

    @classmethod
    def of_step(cls, step: int | None, after: str = "") -> Between:
        """Return the range of a step's ids, or of all, that come after one."""
        if step is None:
            return cls(after, _BEYOND_ALL)
        return cls(max(after, f"s{step}-"), f"s{step}.")  # a dot comes next to a dash

    def takes(self, trial_id: str) -> bool:
        """Whether an id is in the range."""
        return self.after < trial_id < self.before


@dataclass(frozen=True, slots=True)
class Pairs:
    """The trials of two runs. ``newer`` are those that the log says more of than the read models
    do yet, as they are on the log."""

    reader: Reader
    run_a: str
    run_b: str
    newer: dict[str, Docs]

    @classmethod
    async def begin(cls, reader: Reader, a: tuple[str, Facts], b: tuple[str, Facts]) -> Pairs:
        """Fold what the read models do not hold yet; each run comes with its news."""
        (run_a, news_a), (run_b, news_b) = a, b
        newer_a = await reader.trials_with(run_a, news_a)
        newer_b = await reader.trials_with(run_b, news_b)
        names = {*newer_a, *newer_b}
        docs_a = newer_a | await _docs(reader, run_a, names - newer_a.keys())
        docs_b = newer_b | await _docs(reader, run_b, names - newer_b.keys())
        newer = {name: (docs_a.get(name), docs_b.get(name)) for name in names}
        return cls(reader, run_a, run_b, newer)

    async def page(self, wanted: Between, limit: int) -> list[tuple[str, Docs]]:
        """Return a page of trials that either run has, in order of the text of their ids."""
        rows = await self.reader.fetch(
            queries.TRIAL_PAIRS, self.run_a, self.run_b, *wanted, list(self.newer), limit
        )
        page: list[tuple[str, Docs]] = [(row[0], self._docs_of(row)) for row in rows]
        page += [one for one in self.newer.items() if wanted.takes(one[0])]
        return sorted(page, key=lambda one: one[0])[:limit]

    def _docs_of(self, row: Any) -> Docs:
        return _doc(row[1], self.run_a), _doc(row[2], self.run_b)

    async def rewards(self, wanted: Between) -> dict[int, Rewards]:
        """Return the rewards of all trials that either run has, by step in order."""
        rows = await self.reader.fetch(
            queries.REWARDS_BY_STEP, self.run_a, self.run_b, *wanted, list(self.newer)
        )
        found: dict[int, Rewards] = {}
        for step, n_a, n_b, scored_a, scored_b, rewards_a, rewards_b in rows:
            both = rewards_a or [], rewards_b or []
            found[step] = Rewards(n_a, n_b, scored_a, scored_b, *both)
        for trial_id in sorted(filter(wanted.takes, self.newer)):
            a, b = self.newer[trial_id]
            found.setdefault((a or b or {})["step"], Rewards()).add(a, b)
        return dict(sorted(found.items()))


async def _docs(reader: Reader, run_id: str, names: set[str]) -> dict[str, Doc]:
    if not names:
        return {}
    rows = await reader.fetch(queries.TRIAL_DOCS_SEEN, [run_id] * len(names), sorted(names))
    return {row[1]: adopted(_decoder.decode(row[2]), run_id) for row in rows}


def _doc(text: Any, run_id: str) -> Doc | None:
    return None if text is None else adopted(_decoder.decode(text), run_id)
