"""Our services below the stack: started, restarted, added and stopped."""

import signal

import httpx
import pytest
from integration.stack.observed import parts_of
from trialog.cli.stack import Stack, StackEvent, StackOptions, UnknownProcess

pytestmark = [pytest.mark.stack, pytest.mark.slow]
REQUEST = {
    "trial_id": "s0-p0-n0",
    "rubric": {"name": "r", "weights": {"correct": 1.0}},
    "trajectory": {"turns": [], "files": []},
    "model": {"model": "reference-judge", "temperature": 0.0, "max_tokens": 1024},
    "verified": True,
}


async def test_killed_driver_is_back_on_the_same_address() -> None:
    events: list[StackEvent] = []
    options = StackOptions(with_ray=False, trainers=0, sandboxes=1, judges=1)
    async with Stack(options, events.append) as stack:
        await stack.ready()
        assert set(stack.processes) == {
            *("postgres", "nats", "driver-1", "sandbox-1", "judge-1", "standin"),
        }
        async with httpx.AsyncClient(base_url=stack.api_url) as api:
            assert (await api.get("/readyz")).status_code == 200
            pid = stack.kill("driver-1", signal.SIGKILL)
            assert pid is not None
            await stack.exited("driver-1", pid)
            await stack.ready()
            assert (await api.get("/readyz")).status_code == 200
        assert stack.processes["driver-1"].restarts == 1
        assert [(one.name, one.returncode) for one in stack.exits] == [("driver-1", -9)]
        assert [event.kind for event in events if event.name == "driver-1"] == [
            *("started", "exited", "restarting", "started"),
        ]

        name = await stack.start_service("sandbox")
        assert name == "sandbox-2"
        await stack.ready()
        await stack.stop_service(name)
        assert stack.processes[name].pid is None
        assert stack.exits[-1].returncode == 0
        assert await stack.start_service("sandbox") == "sandbox-3"
        with pytest.raises(UnknownProcess, match="sandbox-9"):
            await stack.stop_service("sandbox-9")
        secrets = {stack.credentials.app_password, stack.credentials.nats_password}
        assert not any(secret in text for text in _command_lines(stack) for secret in secrets)
    assert {one.returncode for one in stack.exits if one.name.startswith("judge")} == {0}


def _command_lines(stack: Stack) -> list[str]:
    return [" ".join(part.cmdline()) for part in parts_of(stack.layout.root)]


async def test_services_wait_for_infrastructure_that_restarts() -> None:
    options = StackOptions(with_ray=False, trainers=0, sandboxes=1, judges=1)
    async with Stack(options) as stack:
        await stack.ready()
        await stack.restart_infrastructure("nats", wipe=True)
        await stack.restart_infrastructure("postgres")
        await stack.ready()
        async with httpx.AsyncClient(base_url=stack.api_url) as api:
            assert (await api.get("/readyz")).status_code == 200


async def test_killed_standin_still_knows_its_calls() -> None:
    """What was asked was paid for, whoever answered it is gone or not."""
    options = StackOptions(with_ray=False, drivers=0, sandboxes=0, judges=1, trainers=0)
    async with Stack(options) as stack:
        await stack.ready()
        url = f"http://127.0.0.1:{stack.ports.port('standin')}"
        async with httpx.AsyncClient(base_url=url) as standin:
            asked = await standin.post("/v1/judge", headers={"Idempotency-Key": "k"}, json=REQUEST)
            assert asked.status_code == 200, asked.text
            pid = stack.kill("standin", signal.SIGKILL)
            assert pid is not None
            await stack.exited("standin", pid)
            await stack.ready()
            assert (await standin.get("/v1/calls")).json()["by_key"] == {"k": 1}
