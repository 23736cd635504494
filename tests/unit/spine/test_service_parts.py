"""Settings, health and the lines of a log: what every process shows of itself."""

from __future__ import annotations

import json
import logging
import urllib.error
import urllib.request
from pathlib import Path
from types import ModuleType

import pytest
from pydantic import ValidationError
from trialog.proto.codes import source_version
from trialog.spine import service, telemetry
from trialog.spine.health import HealthServer
from trialog.spine.settings import ServiceSettings

GOOD = {
    "TRIALOG_DATABASE_URL": "postgresql://u:secret-of-ours@127.0.0.1/db",
    "TRIALOG_NATS_URL": "nats://u:secret-of-ours@127.0.0.1",
    "TRIALOG_BLOB_DIR": "/tmp/blobs",
}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(ServiceSettings.model_fields):
        monkeypatch.delenv("TRIALOG_" + name.upper(), raising=False)
    for name, value in GOOD.items():
        monkeypatch.setenv(name, value)


def test_settings_come_from_the_environment() -> None:
    settings = ServiceSettings.from_environment()
    assert settings.blob_dir == Path("/tmp/blobs")
    assert (settings.pool, settings.concurrency, settings.lease_ms) == ("default", 8, 30_000)
    assert "secret-of-ours" not in repr(settings)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TRIALOG_CONCURRENCY", "0"),
        ("TRIALOG_CONCURRENCY", "many"),
        ("TRIALOG_LEASE_MS", "1"),
        ("TRIALOG_HTTP_PORT", "70000"),
        ("TRIALOG_POOL", "No Pool"),
        ("TRIALOG_POOL", "a.b"),
        ("TRIALOG_DATABASE_URL", ""),
        ("TRIALOG_GRACE_S", "-1"),
    ],
)
def test_a_service_with_wrong_settings_names_the_variable_and_no_secret(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ValidationError):
        ServiceSettings.from_environment()

    async def body(context: service.Context) -> None:
        raise AssertionError("never begun")

    with pytest.raises(SystemExit) as ended:
        service.serve("test", ServiceSettings, body)
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert f"test: {name}: " in said
    assert "secret-of-ours" not in said
    assert "Traceback" not in said


def test_a_service_without_its_source_does_not_start(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def body(context: service.Context) -> None:
        raise AssertionError("never begun")

    def versions() -> dict[str, str]:
        return {"agent:made": source_version(ModuleType("made_up"))}

    with pytest.raises(SystemExit) as ended:
        service.serve("test", ServiceSettings, body, versions)
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("test: made_up is installed without its source")
    assert "Traceback" not in said


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_health_says_what_is_waited_for() -> None:
    waiting: list[str | None] = ["Postgres (TRIALOG_DATABASE_URL)"]
    server = HealthServer("127.0.0.1", 0, lambda: waiting[0])
    server.start()
    try:
        assert get(server.port, "/livez")[0] == 200
        status, body = get(server.port, "/readyz")
        assert (status, json.loads(body)) == (503, {"waiting_for": waiting[0]})
        waiting[0] = None
        assert get(server.port, "/readyz") == (200, '{"status": "ready"}')
        assert get(server.port, "/else")[0] == 404
        status, body = get(server.port, "/metrics")
        assert status == 200
        assert "trialog_log_batches_total" in body
    finally:
        server.stop()


@pytest.fixture
def root_logger() -> object:
    root = logging.getLogger()
    before = (root.handlers[:], root.level)
    yield
    root.handlers[:], root.level = before


@pytest.mark.usefixtures("root_logger")
def test_every_line_of_the_log_is_json_with_the_run_on_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    telemetry.configure("tester", "INFO")
    log = telemetry.logger().bind(run="r-abcdefghijklmnop", trial="s0-p0-n0")
    log.info("judged", reward=1.5)
    log.debug("not said")
    logging.getLogger("somebody.else").warning("a library's line")
    try:
        raise RuntimeError("odd \udcff text")
    except RuntimeError as error:
        log.error("broke down", exc_info=error)
    first, library, last = map(json.loads, capsys.readouterr().err.splitlines())
    assert first["event"] == "judged"
    assert (first["run"], first["trial"], first["reward"]) == (
        "r-abcdefghijklmnop",
        "s0-p0-n0",
        1.5,
    )
    assert (first["service"], first["level"]) == ("tester", "info")
    assert (library["event"], library["service"]) == ("a library's line", "tester")
    assert "RuntimeError: odd \udcff text" in last["exception"]
