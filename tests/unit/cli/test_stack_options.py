"""Options, the services that follow from them, and what each is told."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from trialog.cli.stack import BadStackOptions, MachineUnfit, StackOptions, UnknownProcess
from trialog.cli.stack import services as stack_services
from trialog.cli.stack.checks import check_port, check_space
from trialog.cli.stack.layout import Layout
from trialog.cli.stack.ports import PortBook


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (StackOptions(drivers=-1), "drivers"),
        (StackOptions(sandboxes=65), "sandboxes"),
        (StackOptions(judge_concurrency=0), "judge_concurrency"),
        (StackOptions(api_port=70_000), "api_port"),
        (StackOptions(api_host="localhost"), "api_host"),
        (StackOptions(api_host="0.0.0.0"), "API key"),
        (StackOptions(with_ray=False), "trainer"),
    ],
)
def test_bad_options_are_named(options: StackOptions, named: str) -> None:
    with pytest.raises(BadStackOptions, match=named):
        options.check()


def test_good_options_pass() -> None:
    StackOptions().check()
    StackOptions(api_host="0.0.0.0", api_key="secret").check()
    StackOptions(with_ray=False, trainers=0).check()
    StackOptions(with_ray=False, with_services=False).check()


def test_services_are_named_by_kind_and_number() -> None:
    assert stack_services.planned(StackOptions(drivers=2, sandboxes=1, judges=1)) == [
        *("driver-1", "driver-2", "sandbox-1", "judge-1", "trainer-1", "standin"),
    ]
    assert stack_services.planned(StackOptions(judges=0, sandboxes=0)) == ["driver-1", "trainer-1"]


@pytest.fixture
def folder(tmp_path: Path) -> Layout:
    return Layout(tmp_path, ephemeral=True)


def test_services_share_the_api_port_and_have_their_own_http_port(folder: Layout) -> None:
    ports = PortBook(folder.ports)
    options = StackOptions(drivers=2, api_key="hush", extra_env={"TRIALOG_LOG_LEVEL": "DEBUG"})
    one, other = (
        stack_services.spec(name, options, folder, ports, {"TRIALOG_POOL": "default"})
        for name in ("driver-1", "driver-2")
    )
    assert one.env["TRIALOG_API_PORT"] == other.env["TRIALOG_API_PORT"]
    assert one.env["TRIALOG_HTTP_PORT"] != other.env["TRIALOG_HTTP_PORT"]
    assert one.env["TRIALOG_POOL"] == "default"
    assert one.env["TRIALOG_LOG_LEVEL"] == "DEBUG"
    assert one.env["TRIALOG_API_KEY"] == "hush"
    assert "hush" not in " ".join(one.argv)
    assert stack_services.api_url(options, ports).endswith(one.env["TRIALOG_API_PORT"])


def test_each_kind_is_told_its_own(folder: Layout) -> None:
    ports = PortBook(folder.ports)
    options = StackOptions(
        sandbox_concurrency=3, service_env={"sandbox": {"TRIALOG_SANDBOX_PROVIDER": "null"}}
    )

    def env(name: str) -> dict[str, str]:
        return dict(stack_services.spec(name, options, folder, ports, {}).env)

    assert env("driver-1")["TRIALOG_TASK_ROOTS"] == "/"
    assert "TRIALOG_TASK_ROOTS" not in env("sandbox-1")
    assert env("sandbox-1")["TRIALOG_CONCURRENCY"] == "3"
    assert env("sandbox-1")["TRIALOG_SANDBOX_PROVIDER"] == "null"
    assert env("judge-1")["TRIALOG_JUDGE_URL"] == f"http://127.0.0.1:{ports.port('standin')}"
    assert env("trainer-1")["RAY_AUTH_TOKEN_PATH"] == str(folder.ray_token)
    assert "TRIALOG_RAY_ADDRESS" not in env("judge-1")
    assert (
        str(ports.port("standin"))
        in stack_services.spec("standin", options, folder, ports, {}).argv
    )


def test_unknown_service_is_refused(folder: Layout) -> None:
    for name in ("tuner-1", "driver", "driver-x", "../driver-1"):
        with pytest.raises(UnknownProcess):
            stack_services.spec(name, StackOptions(), folder, PortBook(folder.ports), {})


@pytest.mark.parametrize(
    ("host", "seen"),
    [
        ("0.0.0.0", "http://127.0.0.1:8080"),
        ("::1", "http://[::1]:8080"),
        ("::", "http://[::1]:8080"),
    ],
)
def test_url_can_be_reached_from_here(folder: Layout, host: str, seen: str) -> None:
    options = StackOptions(api_host=host, api_port=8080)
    assert stack_services.api_url(options, PortBook(folder.ports)) == seen


@pytest.fixture
def listener() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_taken_port_and_full_disk_are_explained(
    tmp_path: Path, listener: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(MachineUnfit, match=f"port {listener} on 127.0.0.1 is taken"):
        check_port("127.0.0.1", listener)
    check_space(tmp_path)
    monkeypatch.setattr("trialog.cli.stack.checks._FREE_BYTES", 1 << 62)
    with pytest.raises(MachineUnfit, match="MB free"):
        check_space(tmp_path)
