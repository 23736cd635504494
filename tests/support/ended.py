"""Runs of a tree that are let go to their end, and what an ended fork is held to."""

from __future__ import annotations

from typing import Any

from support.expected import assert_expected
from support.sources import assert_sources
from support.trees import Tree, counted, executed, needless

SHAPE: dict[str, Any] = {
    "n_steps": 2,
    "prompts_per_step": 2,
    "n_samples": 2,
    "n_worlds": 2,
    "faults": {"flaky_trial_rate": 0.4, "judge_flake_rate": 0.5},
}


def ended_well(tree: Tree, run_id: str) -> dict[str, int]:
    """Let a fork go to its end, hold it to the model, and return what it executed by kind."""
    tree.end(run_id)
    assert_expected(tree, run_id)
    assert_sources(tree, run_id)
    assert needless(tree, run_id) == set()
    return counted(executed(tree, run_id))
