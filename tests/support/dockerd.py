"""A Docker daemon for tests: the one at TRIALOG_DOCKER_HOST or DOCKER_HOST, else they skip.

``make conformance-docker`` starts one and runs them; see .ci/docker.
"""

from __future__ import annotations

import functools
import os
import subprocess

import httpx
import pytest

BASE = "debian:bookworm-slim"


def address() -> str:
    """Return where the daemon is said to be, empty when nothing says so."""
    return os.environ.get("TRIALOG_DOCKER_HOST") or os.environ.get("DOCKER_HOST") or ""


@functools.cache
def missing() -> str:
    """Return why tests cannot use a daemon, empty when they can."""
    where = address()
    if not where:
        return "no daemon: TRIALOG_DOCKER_HOST is not set (make conformance-docker starts one)"
    try:
        found = ask("GET", f"/images/{BASE}/json")
    except httpx.TransportError as error:
        return f"no daemon answers at {where}: {error}"
    return "" if found.status_code == 200 else f"the daemon at {where} has no image {BASE}"


def ask(method: str, path: str, **options: object) -> httpx.Response:
    """Ask the daemon directly, past the code under test."""
    transport = httpx.HTTPTransport(uds=address().removeprefix("unix://"))
    with httpx.Client(transport=transport, base_url="http://docker", timeout=60) as client:
        return client.request(method, path, **options)  # type: ignore[arg-type]


def containers(label: str) -> list[str]:
    """Return the states of all containers with a label (``key=value``), running or not."""
    params = {"all": "true", "filters": f'{{"label": ["{label}"]}}'}
    return [str(found["State"]) for found in ask("GET", "/containers/json", params=params).json()]


def docker(*words: str) -> str:
    """Run the command line's client and return what it said."""
    command = ["docker", "-H", address(), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


# A daemon on a busy machine is slow, and may build and pull images before a test's first line.
MARKS = [
    pytest.mark.docker,
    pytest.mark.skipif(bool(missing()), reason=missing()),
    pytest.mark.timeout(900),
]
