"""Removing what an adversary left on the disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from trialog.sandbox.trees import remove_tree


def test_a_missing_folder_is_no_error(tmp_path: Path) -> None:
    remove_tree(tmp_path / "none")


def test_unreadable_folders_and_taken_names(tmp_path: Path) -> None:
    top = tmp_path / "top"
    (top / "work/work/below").mkdir(parents=True)
    (top / ".removed-1").write_text("a file under the name that is used for moving")
    (top / ".removed-2/full").mkdir(parents=True)
    (top / "x/.removed-3").mkdir(parents=True)
    os.mkfifo(top / "x/pipe")
    (top / "work/work").chmod(0)
    remove_tree(top)
    assert list(tmp_path.iterdir()) == []


def test_symlinks_are_removed_not_followed(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("kept")
    (tmp_path / "top").mkdir()
    (tmp_path / "top/link").symlink_to(kept)
    (tmp_path / "link").symlink_to(kept)
    remove_tree(tmp_path / "top")
    remove_tree(tmp_path / "link")
    assert [p.name for p in tmp_path.iterdir()] == ["kept"]
    assert (kept / "file").read_text() == "kept"


def test_depth_beyond_any_path_or_stack(tmp_path: Path) -> None:
    """5,000 levels: longer than a path may be and deeper than Python recurses."""
    folder = os.open(tmp_path, os.O_RDONLY)
    os.mkdir("top", dir_fd=folder)
    for name in ["top"] + ["d"] * 5000:
        below = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=folder)
        os.close(folder)
        folder = below
        os.mkdir("d", dir_fd=folder)
    os.close(folder)
    remove_tree(tmp_path / "top")
    assert list(tmp_path.iterdir()) == []


def test_the_folder_itself_may_be_shut(tmp_path: Path) -> None:
    (tmp_path / "top/a").mkdir(parents=True)
    (tmp_path / "top").chmod(0)
    remove_tree(tmp_path / "top")
    with pytest.raises(FileNotFoundError):
        (tmp_path / "top").lstat()
