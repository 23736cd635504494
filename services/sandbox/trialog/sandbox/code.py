"""The code that a sandbox runs for others: each piece's version by its name."""

from __future__ import annotations

from trialog.proto.codes import source_version
from trialog.sandbox.agents import command, commands, noop, nop, oracle, policy
from trialog.sandbox.trials import artifacts, grading, rewards, verifying
from trialog.sandbox.verifiers import reference


def versions() -> dict[str, str]:
    """Return the versions of agents and verifiers. Raises MissingSourceError."""
    return {
        "agent:policy": source_version(policy, commands),
        "agent:noop": source_version(noop),
        "agent:oracle": source_version(oracle),
        "agent:nop": source_version(nop),
        "agent:command": source_version(command),
        "verifier:harbor": source_version(rewards, grading, verifying, artifacts),
        "verifier:reference": source_version(reference),
    }
