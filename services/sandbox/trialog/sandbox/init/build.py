"""Compiles the sandbox's PID 1 once: ``python -m trialog.sandbox.init.build`` prints its path.

The binary is static, so it runs in any world. It is named for the digest of its source and lies
in the environment (``sys.prefix/libexec/trialog``), or in a fallback folder when that cannot be
written. The system's compiler is tried first, then the ``ziglang`` wheel, which brings its own.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from trialog.sandbox.errors import ProviderUnavailableError

_SOURCE = Path(__file__).parent
_FLAGS = ("-O2", "-s", "-static", "-std=gnu11", "-Wall")
_COMPILE_TIMEOUT_S = 300.0
_USAGE_EXIT_CODE = 125


def ensure(fallback_dir: Path | None = None) -> Path:
    """Return the binary, compiling it first when it is missing.

    Safe from several processes at once: each compiles aside and renames. Raises
    ProviderUnavailableError, with the mend, when nothing here can compile it.
    """
    folders = [Path(sys.prefix) / "libexec" / "trialog"]
    if fallback_dir is not None:
        folders.append(fallback_dir)
    for folder in folders:
        binary = folder / _name()
        if os.access(binary, os.X_OK):
            return binary
    for folder in folders:
        if _writable(folder):
            return _compile(folder / _name())
    raise ProviderUnavailableError(
        f"the sandbox's init is not compiled and none of {', '.join(map(str, folders))} can be "
        "written; run `python -m trialog.sandbox.init.build` as the environment's owner"
    )


def _name() -> str:
    """Name the binary for what it is made from, so a new source never meets an old binary."""
    content = hashlib.sha256(" ".join(_FLAGS).encode())
    for path in _sources("*.[ch]"):
        content.update(path.name.encode() + b"\0" + path.read_bytes())
    return f"init-{content.hexdigest()[:16]}"


def _sources(pattern: str) -> list[Path]:
    return sorted(_SOURCE.glob(pattern))


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


def _compilers() -> Iterator[list[str]]:
    for name in ("cc", "gcc", "clang"):
        if found := shutil.which(name):
            yield [found]
    if importlib.util.find_spec("ziglang"):
        target = f"{platform.machine()}-linux-musl"
        yield [sys.executable, "-m", "ziglang", "cc", "-target", target]


def _compile(binary: Path) -> Path:
    tried: list[str] = []
    with tempfile.TemporaryDirectory(prefix=".init-", dir=binary.parent) as aside:
        made = Path(aside) / "init"
        for compiler in _compilers():
            said = _attempt([*compiler, *_FLAGS, "-o", str(made)], made, Path(aside))
            if said is None:
                made.chmod(0o755)
                made.replace(binary)
                return binary
            tried.append(f"{' '.join(compiler)}: {said}")
    raise ProviderUnavailableError(
        "the sandbox's init cannot be compiled here ("
        + ("; ".join(tried) or "no C compiler was found")
        + "). Install a C compiler with a static libc (Debian: apt-get install gcc libc6-dev), or "
        "pip install 'trialog-sandbox[compiler]', which brings one"
    )


def _attempt(command: list[str], made: Path, cache: Path) -> str | None:
    """Run one compiler; return why it failed, or None when the binary starts."""
    env = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": str(cache), "ZIG_LOCAL_CACHE_DIR": str(cache)}
    sources = [str(path) for path in _sources("*.c")]
    try:
        done = subprocess.run(  # noqa: S603 - fixed argv, no shell
            [*command, *sources], env=env, capture_output=True, timeout=_COMPILE_TIMEOUT_S
        )
        if done.returncode != 0:
            return done.stderr.decode("utf-8", "replace").strip()[-300:]
        started = subprocess.run([str(made)], capture_output=True, timeout=10)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if started.returncode != _USAGE_EXIT_CODE:
        return f"the binary does not start (exit code {started.returncode})"
    return None


if __name__ == "__main__":
    print(ensure())  # noqa: T201 - its output is the path
