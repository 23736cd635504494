"""What tests of forks share: a tree of runs, and a parent in it."""

from __future__ import annotations

import pytest
from support.ended import SHAPE
from support.trees import Tree


@pytest.fixture
def tree() -> Tree:
    return Tree()


@pytest.fixture
def parent(tree: Tree) -> str:
    """A run of two steps of four trials, completed."""
    return tree.ended_run(**SHAPE)
