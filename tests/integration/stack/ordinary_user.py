"""An environment that a user without rights can read, wherever root keeps the checkout."""

import os
import shutil
import site
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


def _runs(command: list[str], uid: int) -> bool:
    try:
        done = subprocess.run(
            command, user=uid, group=uid, extra_groups=[], env={}, capture_output=True, cwd="/"
        )
    except OSError:
        return False
    return done.returncode == 0


def readable_python(uid: int) -> str | None:
    """Return an interpreter of this minor version that the user can run."""
    name = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    candidates = [
        getattr(sys, "_base_executable", ""),
        f"/usr/bin/{name}",
        f"/usr/local/bin/{name}",
    ]
    return next((c for c in candidates if c and _runs([c, "-I", "-c", "import venv"], uid)), None)


def _readable_copy(path: Path, uid: int, place: Path) -> Path:
    """Return the folder itself where the user can read it, else a hard-linked copy."""
    if _runs(["/bin/sh", "-c", 'ls "$0"/* >/dev/null', str(path)], uid):
        return path

    def link(source: str, target: str) -> None:
        try:
            os.link(source, target)
        except OSError:
            shutil.copy2(source, target)

    return shutil.copytree(path, place, copy_function=link, symlinks=True)


@contextmanager
def readable_environment(python: str, uid: int) -> Generator[Path]:
    """Make a virtual environment with what this one has; yields its interpreter."""
    folder = Path(tempfile.mkdtemp(prefix="trialog-readable-"))
    folder.chmod(0o755)
    try:
        subprocess.run([python, "-m", "venv", "--without-pip", str(folder)], check=True)
        packages = {Path(p) for p in site.getsitepackages() if Path(p).is_dir()}  # not all exist
        linked = {Path(p) for p in sys.path if Path(p, "trialog").is_dir()}  # the members
        paths = [
            _readable_copy(path, uid, folder / f"copy-{n}")
            for n, path in enumerate(sorted(packages | linked))
        ]
        (target,) = folder.glob("lib/python*/site-packages")
        (target / "all.pth").write_text("".join(f"{path}\n" for path in paths))
        shutil.copy2(Path(sys.prefix) / "bin" / "nats-server", folder / "bin")
        yield folder / "bin" / "python"
    finally:
        shutil.rmtree(folder)
