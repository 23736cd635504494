"""The docs say what there is: links lead somewhere, invariants are held, decisions are listed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from architecture.sources import MEMBERS, ROOT, SERVICES

DOCS = sorted(
    path for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("services/*/*.md"))
)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_PATH = re.compile(r"`([\w*.-]+(?:/[\w*.-]+)*(?:/|\.(?:py|sql|md)))`")
# Docs name files as people do: below the repository, a member, a service or the tests.
_BASES = (
    ROOT,
    ROOT / "tests",
    *(ROOT / member / "trialog" for member in MEMBERS),
    *(folder for member in MEMBERS for folder in (ROOT / member / "trialog").iterdir()),
)
_FILES = {
    path.name
    for folder in (*MEMBERS, "tests", "benchmarks", "docs")
    for path in (ROOT / folder).rglob("*.*")
}
INVARIANTS = [f"I{n}" for n in range(1, 14)]


@pytest.mark.parametrize("path", DOCS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_and_paths_lead_somewhere(path: Path) -> None:
    text = path.read_text()
    for link in _LINK.findall(text):
        if re.match(r"[a-z]+:", link) or link.startswith("#"):
            continue
        assert (path.parent / link.partition("#")[0]).exists(), f"{link} leads nowhere"
    for named in _PATH.findall(text):
        assert _exists(named, path.parent), f"{named} is not there"


def _exists(named: str, beside: Path) -> bool:
    if named == "trialog/__init__.py" or re.search(r"\b(NNNN|DATA)", named):
        return True  # named to say that it must not be there, or with a word to be filled in
    if named.count("/") == 1 and named.endswith("/"):
        return True  # a folder of the user's data, as often as one of ours
    found = (base.glob(named.rstrip("/")) for base in (beside, *_BASES) if base.is_dir())
    # A file's bare name is enough where the text is about its folder.
    return named in _FILES or any(True for paths in found for _ in paths)


@pytest.mark.parametrize("invariant", INVARIANTS)
def test_every_invariant_names_the_tests_that_hold_it(invariant: str) -> None:
    text = (ROOT / "docs" / "invariants.md").read_text()
    section = re.search(rf"^## {invariant} .*?(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert section, f"docs/invariants.md has no {invariant}"
    _, _, held_by = section[0].partition("**Tests**")
    assert re.search(r"test_\w+\.py", held_by), f"no test is said to hold {invariant}"


def test_every_decision_is_listed() -> None:
    folder = ROOT / "docs" / "decisions"
    listed = (folder / "README.md").read_text()
    for path in folder.glob("[0-9]*.md"):
        assert path.name in listed, f"{path.name} is not in docs/decisions/README.md"


def test_the_readme_names_every_service() -> None:
    text = (ROOT / "README.md").read_text()
    for service in SERVICES:
        assert service in text
