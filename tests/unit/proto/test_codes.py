"""The version of code: its source, however it is installed, and never nothing."""

from __future__ import annotations

import compileall
import hashlib
import importlib
import os
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest
from trialog.proto import codes
from trialog.proto.codes import MissingSourceError, source_version

SOURCE = 'def score():\n    """Caf\xe9."""\n    return 1\n'


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that modules are imported from. Each test names its own, as they stay known."""
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def module(place: Path, source: bytes | str) -> ModuleType:
    name = f"m{os.urandom(6).hex()}"
    data = source.encode() if isinstance(source, str) else source
    (place / f"{name}.py").write_bytes(data)
    importlib.invalidate_caches()
    return importlib.import_module(name)


def version(place: Path, source: bytes | str) -> str:
    return source_version(module(place, source))


def test_the_same_source_is_one_version_under_any_name_and_line_end(place: Path) -> None:
    one = version(place, SOURCE)
    assert one == version(place, SOURCE)
    assert one == version(place, SOURCE.replace("\n", "\r\n"))
    assert one == version(place, b"\xef\xbb\xbf" + SOURCE.encode())


@pytest.mark.parametrize(
    "changed",
    [
        SOURCE.replace("1", "2"),
        SOURCE.replace("\xe9", "e\u0301"),
        SOURCE + "# a comment\n",
        SOURCE.replace("    return", "\treturn").replace('    """', '\t"""'),
    ],
)
def test_every_character_of_a_source_counts(place: Path, changed: str) -> None:
    assert version(place, changed) != version(place, SOURCE)


def test_of_several_modules_each_and_their_order_count(place: Path) -> None:
    one, other = module(place, "A = 1\n"), module(place, "B = 1\n")
    both = module(place, "A = 1\nB = 1\n")
    found = [(one, other), (other, one), (one,), (other,), (both,), (one, one)]
    assert len({source_version(*modules) for modules in found}) == len(found)


def test_a_module_in_an_archive_has_the_version_of_its_file(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(place / "archive.zip", "w") as archive:
        archive.writestr("in_an_archive.py", SOURCE)
    monkeypatch.syspath_prepend(place / "archive.zip")
    archived = importlib.import_module("in_an_archive")
    assert str(archived.__file__).startswith(str(place / "archive.zip"))
    assert source_version(archived) == version(place, SOURCE)


def test_a_package_without_sources_is_refused(place: Path) -> None:
    (place / "without_source.py").write_text(SOURCE)
    compileall.compile_dir(place, legacy=True, quiet=1)
    (place / "without_source.py").unlink()
    importlib.invalidate_caches()
    compiled = importlib.import_module("without_source")
    assert compiled.score() == 1
    with pytest.raises(MissingSourceError, match=r"without_source .* install it with its \.py"):
        source_version(compiled)


def test_a_source_that_is_gone_is_refused(place: Path) -> None:
    gone = module(place, SOURCE)
    Path(str(gone.__file__)).unlink()
    with pytest.raises(MissingSourceError, match=gone.__name__):
        source_version(gone)


def test_what_has_no_source_at_all_is_refused(place: Path) -> None:
    for nameless in (ModuleType("made"), sys, module(place, "")):
        with pytest.raises(MissingSourceError):
            source_version(nameless)


def test_a_version_is_the_digest_of_the_text_whatever_python_reads_it() -> None:
    text = Path(str(codes.__file__)).read_text()
    assert source_version(codes) == hashlib.sha256(text.encode()).hexdigest()
