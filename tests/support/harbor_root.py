"""A small root filesystem of this host's own programs, for agents that want to change any of them.

The mode ``host`` has /usr read-only; in a root of its own an agent that is root can replace the
shell, the interpreter and the libraries, as in most images. There is Python with pytest, too.
"""

from __future__ import annotations

import functools
import importlib.util
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

PYTHON = Path("/usr/bin/python3")
_PROGRAMS = """
    awk base64 bash cat chmod chown cmp cp cut date dd diff env false find grep gzip head id kill ln
    ls mkdir mkfifo mknod mktemp mv od printf ps rm sed seq setsid sh sleep sort stat tail tar
    tee timeout touch tr true truncate wc xargs yes
"""
_MODULES = ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "py")
_LEFT_OUT = ("test", "idlelib", "lib2to3", "ensurepip", "distutils", "turtledemo", "tkinter")
_LIBRARY = re.compile(r"(/\S+) \(0x")


def stdlib() -> Path:
    """Return the folder of the system Python's own modules."""
    return Path("/usr/lib") / Path(PYTHON).resolve().name


def missing() -> str:
    """Return why there can be no such root here, empty when there can."""
    if not stdlib().is_dir():
        return "the system has no Python of its own in /usr"
    return "" if shutil.which("ldd") else "there is no ldd"


def make(target: Path) -> Path:
    """Write the root as a tar file and return its path."""
    root = target.with_suffix("")
    (root / "usr/bin").mkdir(parents=True)
    for name in ("bin", "lib", "lib64"):
        (root / "usr" / name).mkdir(exist_ok=True)
        (root / name).symlink_to(f"usr/{name}")
    for folder in ("etc", "root", "tmp", "var/tmp", "home"):
        (root / folder).mkdir(parents=True)
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/bash\n")
    (root / "etc/group").write_text("root:x:0:\n")
    _programs(root)
    _python(root)
    with tarfile.open(target, "w") as tar:
        tar.add(root, arcname=".")
    shutil.rmtree(root)
    return target


def _programs(root: Path) -> None:
    for name in _PROGRAMS.split():
        found = shutil.which(name, path="/usr/bin:/bin")
        if found:
            _copy(Path(found).resolve(), root / "usr/bin" / name)


def _python(root: Path) -> None:
    _copy(PYTHON.resolve(), root / "usr/bin" / PYTHON.resolve().name)
    (root / "usr/bin/python3").symlink_to(PYTHON.resolve().name)
    modules = root / stdlib().relative_to("/")
    left_out = shutil.ignore_patterns("__pycache__", "config-*", *_LEFT_OUT)
    shutil.copytree(stdlib(), modules, ignore=left_out, dirs_exist_ok=True)
    for library in modules.rglob("*.so"):
        _libraries(library, root)
    packages = root / "usr/lib/python3/dist-packages"
    packages.mkdir(parents=True)
    for name in _MODULES:
        spec = importlib.util.find_spec(name)
        assert spec is not None and spec.origin is not None
        origin = Path(spec.origin)
        if origin.name == "__init__.py":
            no_caches = shutil.ignore_patterns("__pycache__")
            shutil.copytree(origin.parent, packages / name, ignore=no_caches)
        else:
            shutil.copy(origin, packages)
    compiled = ["-m", "compileall", "-q", "-j", "2", "--invalidation-mode", "unchecked-hash"]
    subprocess.run([PYTHON, *compiled, packages, modules], check=False, capture_output=True)


def _copy(program: Path, target: Path) -> None:
    shutil.copy(program, target)
    _libraries(program, target.parents[2])


def _libraries(program: Path, root: Path) -> None:
    for path in _needed(program):
        target = root / "usr" / path.relative_to("/usr" if path.is_relative_to("/usr") else "/")
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path.resolve(), target)


@functools.cache
def _needed(program: Path) -> list[Path]:
    said = subprocess.run(["ldd", program], capture_output=True, text=True, check=False)
    return [Path(found) for found in _LIBRARY.findall(said.stdout)]
