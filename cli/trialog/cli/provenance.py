"""Whether the actions of trials and steps were executed or recovered, in few words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trialog.client.fork_models import StepSide
    from trialog.client.models import Provenance, Step

ACTIONS = ("generate", "verify", "judge")
LEGEND = "G V J: that run generated, verified, judged; g v j: recovered; a dot: not yet"


def letters(actions: Mapping[str, Provenance | None]) -> str:
    """Return a letter an action: G for one that was executed, g recovered, a dot not done."""
    return "".join(_letter(action, actions[action]) for action in ACTIONS)


def _letter(action: str, source: Provenance | None) -> str:
    if source is None:
        return "."
    return action[0].upper() if source["state"] == "executed" else action[0]


def recovered(actions: Mapping[str, Provenance | None]) -> list[str]:
    """Return the names of the actions that were recovered."""
    return [action for action in ACTIONS if _is_recovered(actions[action])]


def sources(actions: Mapping[str, Provenance | None]) -> list[str]:
    """Return the runs that recovered actions were first recorded by, each once."""
    found = [source["run_id"] for source in actions.values() if source and _is_recovered(source)]
    return list(dict.fromkeys(found))


def step_was(step: Step | StepSide) -> str:
    """Return what was done for a step: trained here, or recovered, or how far it is."""
    source = step["provenance"]
    if source is None:
        return step["state"]
    if source["state"] == "recovered":
        return "recovered"
    return "executed" if step["trained"] else "not trained"


def _is_recovered(source: Provenance | None) -> bool:
    return source is not None and source["state"] == "recovered"
