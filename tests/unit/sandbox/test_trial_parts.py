"""Parts of a trial by themselves: health, the plan of stages, scratch folders."""

from __future__ import annotations

import asyncio
import hashlib
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.task_worker import a_step, a_task
from trialog.proto.tasks.config import Healthcheck
from trialog.proto.tasks.files import Entry
from trialog.proto.tasks.task import read_task
from trialog.sandbox.provider import ExecResult
from trialog.sandbox.trials.health import UnhealthyError, until_healthy
from trialog.sandbox.trials.plan import Plan, allowed, plan
from trialog.sandbox.trials.scratch import Scratch
from trialog.sandbox.trials.setup import said
from trialog.spine.tasks.packing import pack
from trialog.spine.tasks.store import TaskStore


class Checked:
    """A healthcheck's exit codes in their order, and the time that goes by between them."""

    def __init__(self, *codes: int, takes_s: float = 0.0) -> None:
        self.codes, self.takes_s = list(codes), takes_s
        self.now = 0.0
        self.slept: list[float] = []

    async def run(self, n: int) -> tuple[int, str]:
        self.now += self.takes_s
        return self.codes[n], f"said {n}"

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    async def wait(self, **settings: float) -> int:
        check = Healthcheck.model_validate({"command": "check", **settings})
        return await until_healthy(check, self.run, clock=lambda: self.now, sleep=self.sleep)


@pytest.mark.parametrize(
    ("codes", "settings", "runs", "slept"),
    [
        ((0,), {}, 1, []),
        ((1, 1, 0), {}, 3, [5.0, 5.0]),
        ((1, 1, 1, 1, 0), {"start_period_sec": 20, "start_interval_sec": 9}, 5, [9.0] * 3 + [5.0]),
        ((7, 0), {"interval_sec": 0.25, "retries": 2}, 2, [0.25]),
    ],
)
async def test_an_environment_is_healthy_once_its_check_passes(
    codes: Sequence[int], settings: dict[str, float], runs: int, slept: list[float]
) -> None:
    checked = Checked(*codes)
    assert await checked.wait(**settings) == runs
    assert checked.slept == slept


@pytest.mark.parametrize(
    ("settings", "runs"),
    [({}, 3), ({"retries": 1}, 1), ({"start_period_sec": 12, "start_interval_sec": 5}, 6)],
)
async def test_one_that_fails_too_often_is_not(settings: dict[str, float], runs: int) -> None:
    checked = Checked(*[4] * 10)
    with pytest.raises(UnhealthyError, match=rf"exit code 4: 'check' said {runs - 1}"):
        await checked.wait(**settings)


async def test_failures_count_only_in_a_row_and_after_the_start() -> None:
    checked = Checked(1, 1, 0, takes_s=3.0)
    assert await checked.wait(start_period_sec=2.0, start_interval_sec=1.0, retries=2) == 3


async def planned(tmp_path: Path, texts: dict[str, str]) -> Plan:
    files = {path: Entry("file", text.encode()) for path, text in texts.items()}
    data = pack(read_task("task", files).files)

    async def fetch(digest: str) -> bytes:
        return data

    store = TaskStore(tmp_path / "tasks")
    return plan(await store.open(hashlib.sha256(data).hexdigest(), fetch))


async def test_a_plain_task_is_one_stage(tmp_path: Path) -> None:
    toml = """
artifacts = ["/out", {source = "/logs/artifacts", exclude = ["*"]}, {source = "/s", service = "db"}]
[agent]
timeout_sec = 9
user = "agent"
[verifier]
timeout_sec = 7
user = 0
env = {A = "1"}
[[verifier.collect]]
command = "dump"
[[verifier.collect]]
command = "elsewhere"
service = "db"
"""
    found = await planned(tmp_path, a_task(toml=toml, environment="memory_mb = 64\ncpus = 2"))
    (stage,) = found.stages
    assert (stage.name, stage.is_last, stage.timeout_s, stage.user) == (None, True, 9.0, "agent")
    assert [hook.command for hook in stage.hooks] == ["dump"]
    grading = stage.grading
    assert (grading.place, grading.timeout_s, grading.user) == (None, 7.0, 0)
    assert [each.source for each in grading.artifacts] == ["/out", "/logs/artifacts"]
    assert [path.name for path in grading.tests] == ["tests"]
    assert (found.place.limits.memory_bytes, found.place.limits.cpus) == (64 << 20, 2.0)
    recipe = found.place.recipe({"base": "host"}, "none")
    assert (recipe.dockerfile, recipe.docker_image) == (None, "base")


async def test_what_a_step_does_not_say_is_the_tasks(tmp_path: Path) -> None:
    toml = """
artifacts = ["/out"]
[agent]
timeout_sec = 9
user = "agent"
[verifier]
timeout_sec = 7
env = {A = "1", B = "1"}
[[steps]]
name = "one"
artifacts = ["/one"]
min_reward = 0.5
[steps.verifier]
environment_mode = "separate"
env = {B = "2"}
[[steps]]
name = "two"
[steps.agent]
timeout_sec = 3
user = 0
[steps.verifier]
timeout_sec = 5
"""
    task = a_task(toml=toml) | a_step("one", "true") | a_step("two", "true")
    task["tests/Dockerfile"] = "FROM base\n"
    one, two = (await planned(tmp_path, task)).stages
    assert (one.timeout_s, one.user, two.timeout_s, two.user) == (9.0, "agent", 3.0, 0)
    assert (one.grading.timeout_s, two.grading.timeout_s) == (7.0, 5.0)
    assert (one.grading.env, two.grading.env) == ({"A": "1", "B": "2"}, {"A": "1", "B": "1"})
    sources = [each.source for each in one.grading.artifacts]
    assert sources == ["/logs/artifacts", "/out", "/one"]
    assert one.grading.place is not None
    assert (one.grading.place.bundled, one.grading.place.docker_image) == (True, None)
    assert (one.grading.min_reward, two.grading.min_reward) == (0.5, None)
    assert two.grading.place is None
    assert (one.is_last, two.is_last) == (False, True)


def test_a_task_gets_no_more_network_than_its_run() -> None:
    assert allowed("public", "public") == "public"
    assert allowed("public", "none") == "none"
    assert allowed(None, "public") == "none"
    assert allowed("no-network", "public") == "none"
    assert allowed("allowlist", "public") == "none"


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from trialog.sandbox.trials.scratch import Scratch
async def main():
    async with Scratch(Path(sys.argv[1])).folder() as folder:
        (folder / "state").write_bytes(b"x" * 1000)
        os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""


async def test_what_a_killed_worker_left_on_its_way_is_removed(tmp_path: Path) -> None:
    ours = Scratch(tmp_path)
    async with ours.folder() as folder:
        (folder / "state").write_text("here")
        argv = [sys.executable, "-c", KILLED, str(tmp_path)]
        killed = await asyncio.to_thread(subprocess.run, argv, check=False)
        assert killed.returncode == -9
        assert len(list(tmp_path.iterdir())) == 2
        other = Scratch(tmp_path)
        assert len(other.sweep()) == 1
        assert other.sweep() == []
        assert (folder / "state").read_text() == "here", "a living worker's tree stays"
    assert not folder.exists()
    ours.close()
    assert list(tmp_path.iterdir()) == []


async def test_a_folder_goes_whatever_is_in_it(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path)
    async with scratch.folder() as folder:
        deep = folder / "a/b"
        deep.mkdir(parents=True)
        (deep / "link").symlink_to("/etc/passwd")
        deep.chmod(0)
    assert not folder.exists()
    assert Path("/etc/passwd").exists()


def test_how_a_command_ended_is_said() -> None:
    assert said(ExecResult(3, b"out", b"err")) == "exit code 3 err"
    assert said(ExecResult(-9, b"out", timed_out=True)) == "over its time out"
    assert said(ExecResult(-9, b"out", limit="disk")) == "killed over the limit of disk out"
