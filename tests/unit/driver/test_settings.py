"""The API is open to this machine alone unless a key guards it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError
from trialog.driver.settings import DriverSettings

KNOWN = {
    "TRIALOG_DATABASE_URL": "postgresql://a:b@127.0.0.1/c",
    "TRIALOG_NATS_URL": "nats://a:b@127.0.0.1",
    "TRIALOG_BLOB_DIR": "/var/lib/trialog",
}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What every service is told."""
    for name, value in KNOWN.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_loopback_needs_no_key(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setenv("TRIALOG_API_HOST", host)
    assert DriverSettings.from_environment().api_host == host


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "example.org"])
def test_any_other_address_demands_a_key(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setenv("TRIALOG_API_HOST", host)
    with pytest.raises(ValidationError, match="TRIALOG_API_KEY"):
        DriverSettings.from_environment()
    monkeypatch.setenv("TRIALOG_API_KEY", "")
    with pytest.raises(ValidationError, match="TRIALOG_API_KEY"):
        DriverSettings.from_environment()
    monkeypatch.setenv("TRIALOG_API_KEY", "long enough to guess in vain")
    assert DriverSettings.from_environment().api_key is not None


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRIALOG_NATS_URL")
    with pytest.raises(ValidationError, match="nats_url"):
        DriverSettings.from_environment()


def test_secrets_are_not_shown() -> None:
    assert "a:b" not in repr(DriverSettings.from_environment())


def test_no_folder_of_tasks_is_read_unless_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert DriverSettings.from_environment().task_folders == ()
    monkeypatch.setenv("TRIALOG_TASK_ROOTS", "/srv/tasks::/home/me")
    assert DriverSettings.from_environment().task_folders == (Path("/srv/tasks"), Path("/home/me"))
    monkeypatch.setenv("TRIALOG_TASK_ROOTS", "/srv/tasks:tasks")
    with pytest.raises(ValidationError, match="'tasks' must be absolute"):
        DriverSettings.from_environment()


def test_an_upload_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert DriverSettings.from_environment().max_archive_bytes == 2_000_000_000
    monkeypatch.setenv("TRIALOG_MAX_ARCHIVE_BYTES", "1")
    with pytest.raises(ValidationError, match="max_archive_bytes"):
        DriverSettings.from_environment()
