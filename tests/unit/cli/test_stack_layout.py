"""The data folder: lock, secrets, ports, Ray's short path."""

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from trialog.cli.stack import MachineUnfit, StackInUse
from trialog.cli.stack import layout as stack_layout
from trialog.cli.stack.ports import PortBook, is_free


def test_folder_and_secrets_are_private_and_kept(tmp_path: Path) -> None:
    layout = stack_layout.open_layout(tmp_path / "a" / "data")
    assert layout.root.stat().st_mode & 0o777 == 0o700
    first = stack_layout.load_credentials(layout)
    assert len({first.owner_password, first.app_password, first.nats_password}) == 3
    assert stack_layout.load_credentials(layout) == first
    for path in (layout.root / "credentials", layout.ray_token):
        assert path.stat().st_mode & 0o777 == 0o600
    assert not list(layout.root.glob("*.part"))


def test_folder_that_cannot_be_made_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MachineUnfit, match="--data DIR"):
        stack_layout.open_layout(tmp_path / "file" / "data")


def test_lock_names_its_holder_and_ends_with_it(tmp_path: Path) -> None:
    layout = stack_layout.open_layout(tmp_path)
    held = stack_layout.take_lock(layout)
    with pytest.raises(StackInUse, match=rf"pid {os.getpid()}\)"):
        stack_layout.take_lock(layout)
    os.close(held)
    os.close(stack_layout.take_lock(layout))


def test_lock_of_a_dead_holder_is_waited_for(tmp_path: Path) -> None:
    """A watchdog that still cleans up shares the lock of the stack it outlives."""
    layout = stack_layout.open_layout(tmp_path)
    held = stack_layout.take_lock(layout)
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    layout.lock.write_text(f"{dead.pid}\n")
    watchdog = subprocess.Popen(["sleep", "0.3"], pass_fds=(held,))
    os.close(held)
    os.close(stack_layout.take_lock(layout))
    assert watchdog.wait(timeout=0.2) == 0


def test_ray_folder_is_short_and_replaces_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("d" * 60)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    layout = stack_layout.open_layout(tmp_path / "data")
    first = stack_layout.fresh_ray_folder(layout)
    assert len(os.fsencode(first)) <= stack_layout.RAY_FOLDER_BYTES
    second = stack_layout.fresh_ray_folder(layout)
    assert second.exists() and not first.exists()
    assert not first.parent.exists()
    shutil.rmtree(second.parent)


def test_what_is_around_rays_folder_is_closed(tmp_path: Path) -> None:
    """Ray opens the folder that it is given to everyone."""
    folder = stack_layout.fresh_ray_folder(stack_layout.open_layout(tmp_path))
    assert folder.parent.stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "ray-folder").read_text() == str(folder.parent)
    shutil.rmtree(folder.parent)


def test_ports_are_remembered_until_taken(tmp_path: Path) -> None:
    book = PortBook(tmp_path / "ports.json")
    ports = {name: book.port(name) for name in "abcdefgh"}
    assert len(set(ports.values())) == len(ports)
    assert {name: book.port(name) for name in ports} == ports
    with socket.create_server(("127.0.0.1", ports["a"])):
        assert book.port("a") == ports["a"]  # our own process has it meanwhile
        assert not is_free(ports["a"])
        book.close()
        later = PortBook(tmp_path / "ports.json")
        assert later.port("a") != ports["a"]
        assert later.port("b") == ports["b"]


def test_no_two_stacks_choose_the_same_port(tmp_path: Path) -> None:
    """Neither has bound it yet; the second folder remembers the first one's port."""
    first = PortBook(tmp_path / "first.json")
    port = first.port("nats")
    (tmp_path / "second.json").write_text((tmp_path / "first.json").read_text())
    second = PortBook(tmp_path / "second.json")
    assert second.port("nats") != port
    first.close()
    second.close()
    assert PortBook(tmp_path / "first.json").port("nats") == port


def test_long_logs_are_put_aside(tmp_path: Path) -> None:
    layout = stack_layout.open_layout(tmp_path)
    for name, size in (("long", 17 << 20), ("short", 5)):
        with (layout.logs / f"{name}.log").open("wb") as file:
            file.truncate(size)
    stack_layout.rotate_logs(layout)
    assert {path.name for path in layout.logs.iterdir()} == {"long.log.1", "short.log"}
