"""The stack as a user without rights, and as one without a name or a home."""

import asyncio
import json
import os
import pwd
import shutil
import site
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from integration.stack.observed import parts_of, survivors
from integration.stack.ordinary_user import readable_environment, readable_python

pytestmark = [
    pytest.mark.stack,
    pytest.mark.skipif(os.geteuid() != 0, reason="all tests of this folder are such a test then"),
]
HOLD = Path(__file__).with_name("hold_stack.py")
NAMELESS = 54_321


async def hold(uid: int, with_ray: bool) -> None:
    python = await asyncio.to_thread(readable_python, uid)
    if python is None:
        pytest.skip("no interpreter of this version that an ordinary user can run")
    with readable_environment(python, uid) as interpreter:
        script = shutil.copy2(HOLD, interpreter.parent)
        process = await asyncio.create_subprocess_exec(
            *(str(interpreter), str(script)),
            json.dumps({"with_ray": with_ray, "with_services": False}),
            user=uid,
            group=uid,
            extra_groups=[],
            env={"HOME": "/nonexistent", "PATH": "/usr/bin:/bin"},
            cwd="/",
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        line = await process.stdout.readline()
        if not line:
            pytest.fail((await process.communicate())[1].decode())
        root = Path(json.loads(line)["root"])
        parts = parts_of(root) + psutil.Process(process.pid).children()
        assert parts and process.returncode is None
        assert {part.uids().real for part in parts if part.is_running()} == {uid}
        process.kill()
        await process.communicate()
        assert await survivors(parts) == []
        assert not await asyncio.to_thread(root.exists)


@pytest.mark.slow
async def test_ordinary_user_with_ray() -> None:
    await hold(pwd.getpwnam("nobody").pw_uid, with_ray=True)


async def test_user_without_name_and_home() -> None:
    await hold(NAMELESS, with_ray=False)


def test_a_packages_folder_that_is_not_there(monkeypatch: pytest.MonkeyPatch):
    # The interpreter of Debian names dist-packages in a virtual environment, which has none.
    there = site.getsitepackages()
    monkeypatch.setattr(site, "getsitepackages", lambda: [*there, "/nonexistent/dist-packages"])
    with readable_environment(sys.executable, os.getuid()) as interpreter:
        subprocess.run([interpreter, "-c", "import psutil, trialog.proto"], check=True)
