"""Tasks through the real ``harbor`` package and through ours: the same is read and refused.

``sh .ci/harbor`` makes the environment that the package needs; without it this is skipped.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, cast

import pytest
from support.harbor_runner import harbor_python
from support.task_folders import STEPS, STEPS_TOML, TOML, Changes, link, written
from trialog.proto.tasks.config import Environment, Healthcheck, TaskConfig, Verifier
from trialog.proto.tasks.files import TaskProblem
from trialog.proto.tasks.parse import parse
from trialog.proto.tasks.task import instruction_of, read_task, steps_of
from trialog.spine.tasks.folders import read_folder

_SCRIPT = """
import json, sys, warnings
from harbor.models.task.config import TaskConfig
warnings.simplefilter("ignore")
found = []
for text in json.load(sys.stdin):
    try:
        found.append(TaskConfig.model_validate_toml(text).model_dump(mode="json"))
    except Exception as error:
        found.append(None)
print(json.dumps(found))
"""
_FOLDERS = """
import json, sys, warnings
from pathlib import Path
from harbor.models.task.task import Task
from harbor.models.task.verifier_mode import resolve_verifier_environment_definition
warnings.simplefilter("ignore")
found = {}
for name in json.load(sys.stdin):
    folder = Path(name)
    if not Task.is_valid_dir(folder):
        found[folder.name] = None
        continue
    task, images = Task(folder), []
    for step in task.config.steps or [None]:
        made = resolve_verifier_environment_definition(task.config, task.paths, step)
        images.append(made and [
            made.directory.relative_to(folder.resolve()).as_posix(),
            made.config.docker_image,
            made.config.memory_mb,
            made.bundled_tests,
        ])
    told = [task.step_instruction(step.name) for step in task.config.steps or []]
    found[folder.name] = [told or [task.instruction], images]
print(json.dumps(found))
"""
_OWN = TOML + "[verifier.environment]\nmemory_mb = 7\n"
FOLDERS: dict[str, Changes] = {
    "plain": {},
    "canary": {"instruction.md": "<!-- canary 1 -->\n# CANARY 2\n\nDo it.\n"},
    "no-instruction": {"instruction.md": None},
    "no-test": {"tests/test.sh": None},
    "no-toml": {"task.toml": None},
    "steps": STEPS,
    "step-without-test": STEPS | {"tests/test.sh": None},
    "step-without-instruction": STEPS | {"steps/one/instruction.md": None},
    "separate-anew": {"task.toml": TOML + '[verifier]\nenvironment_mode = "separate"\n'},
    "separate-tests": {"task.toml": _OWN, "tests/Dockerfile": "FROM x\n"},
    "separate-baked": {"task.toml": _OWN, "tests/Dockerfile": "FROM x\n", "tests/test.sh": None},
    "separate-image": {"task.toml": _OWN + 'docker_image = "judge"\n', "tests/test.sh": None},
    "step-separate": STEPS
    | {
        "task.toml": f'{STEPS_TOML}[steps.verifier.environment]\ndocker_image = "judge"\n',
    },
    "step-dockerfile": STEPS
    | {
        "task.toml": STEPS_TOML.replace("[[steps]]", "[verifier.environment]\n[[steps]]", 1),
        "steps/two/tests/Dockerfile": "FROM y\n",
    },
    "link-within": {"tests/l": link("test.sh")},
    "link-out": {"tests/l": link("/etc/passwd")},
    "link-above": {"tests/l": link("../../x")},
}
TAKEN = [
    "",
    'version = "1.0"\n[environment]\nmemory = "2G"\nstorage = "10g"\nallow_internet = true\n',
    'version = "1.1"\n[environment]\nmemory = "1.5G"\nallow_internet = false\n',
    '[environment]\nallow_internet = true\nnetwork_mode = "no-network"\n',
    '[environment]\nmemory = " 512m "\nmemory_mb = 512\ncpus = 0.5\n',
    '[environment]\nos = "LINUX"\nworkdir = "/app"\nenv = {A = "b"}\nbuild_timeout_sec = 7\n',
    '[environment.healthcheck]\ncommand = "true"\nretries = 9\n',
    '[agent]\ntimeout_sec = 12.5\nuser = "me"\n',
    '[agent]\nuser = 1000\nnetwork_mode = "public"\n',
    '[verifier]\nenvironment_mode = "separate"\ntimeout_sec = 9\nenv = {K = "v"}\nuser = "t"\n',
    '[verifier.environment]\ndocker_image = "judge"\nmemory = "1G"\n',
    '[[verifier.collect]]\ncommand = "dump"\n',
    'artifacts = ["/app", {source = "/logs", destination = "l", exclude = ["*.o"]}]\n',
    '[solution]\nenv = {A = "1"}\n',
    'multi_step_reward_strategy = "final"\n[[steps]]\nname = "a b"\nmin_reward = 0.5\n'
    '[steps.agent]\ntimeout_sec = 3\n[[steps]]\nname = "é"\nmin_reward = {quality = 1.0}\n'
    'artifacts = ["/x"]\n[steps.healthcheck]\ncommand = "up"\n',
    '[task]\nname = "a/b"\n[metadata]\nanything = [1, 2]\n',
    "colour = 1\n[agent]\nfoo = 2\n",
    "[environment]\nmemory = 2\n",
]
REFUSED = [
    '[environment]\nmemory = "2T"\n',
    '[environment]\nmemory = "2G"\nmemory_mb = 1\n',
    '[environment]\nnetwork_mode = "some"\n',
    '[environment]\nnetwork_mode = "public"\nallowed_hosts = ["a.org"]\n',
    '[agent]\nallowed_hosts = ["a.org"]\n',
    '[agent]\ntimeout_sec = "soon"\n',
    "[environment.env]\nPORT = 8080\n",
    '[verifier]\nenvironment_mode = "shared"\n[verifier.environment]\n',
    '[[steps]]\nname = "../a"\n',
    '[[steps]]\nname = "a"\n[[steps]]\nname = "A"\n',
    "[[steps]]\n",
    'artifacts = ["/a/../b"]\n',
    'artifacts = [{source = "/a", destination = "/b"}]\n',
    'artifacts = [{source = "/a", destination = "manifest.json"}]\n',
    'multi_step_reward_strategy = "best"\n',
    "[environment\n",
    "agent = 3\n",
]


def harbors(given: list[str], script: str = _SCRIPT) -> Any:
    """Return what the package reads in each of them, None for what it refuses."""
    python = harbor_python()
    if python is None:
        pytest.skip("no environment with the harbor package: sh .ci/harbor makes one")
    done = subprocess.run(
        [str(python), "-c", script],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return json.loads(done.stdout)


def test_what_the_package_takes_is_read_alike() -> None:
    for text, theirs in zip(TAKEN, harbors(TAKEN), strict=True):
        ours, _ = parse(text.encode())
        assert theirs is not None, text
        assert _shown(ours) == _theirs(theirs), text


def test_what_the_package_refuses_is_refused() -> None:
    assert harbors(REFUSED) == [None] * len(REFUSED)
    for text in REFUSED:
        with pytest.raises(TaskProblem):
            parse(text.encode())


def test_folders_are_tasks_to_both_with_the_same_texts_and_images(tmp_path: Path) -> None:
    folders = [str(written(tmp_path / name, changes)) for name, changes in FOLDERS.items()]
    theirs = harbors(folders, _FOLDERS)
    assert {name: _seen(tmp_path / name) for name in FOLDERS} == theirs
    assert sum(one is None for one in theirs.values()) == 7


def _seen(folder: Path) -> Any:
    """Return a folder's instructions and what its steps are graded in, None for no task."""
    try:
        task = read_task(folder.name, read_folder(folder))
    except TaskProblem:
        return None
    layout, steps = task.layout, steps_of(task.config)
    images = [layout.verifier_image(step) for step in steps]
    return [
        [instruction_of(task.files, layout.instruction(step)) for step in steps],
        [
            image
            and [image.context, image.docker_image, image.environment.memory_mb, image.bundled]
            for image in images
        ],
    ]


def _shown(config: TaskConfig) -> dict[str, Any]:
    """Return what runs are made from."""
    return {
        "schema_version": config.schema_version,
        "agent": {"timeout_sec": config.agent.timeout_sec, "user": config.agent.user},
        "environment": _environment(config.environment),
        "verifier": _verifier(config.verifier),
        "artifacts": [one.model_dump() for one in config.artifacts],
        "solution": config.solution.env,
        "strategy": config.multi_step_reward_strategy,
        "steps": [
            {
                "name": step.name,
                "timeout_sec": step.agent.timeout_sec,
                "min_reward": step.min_reward,
                "healthcheck": _healthcheck(step.healthcheck),
                "artifacts": [one.model_dump() for one in step.artifacts],
            }
            for step in config.steps
        ],
    }


def _environment(table: Environment | None) -> dict[str, Any] | None:
    if table is None:
        return None
    names = ("build_timeout_sec", "docker_image", "os", "cpus", "memory_mb", "storage_mb", "gpus")
    found = table.model_dump(include={*names, "env", "workdir"})
    # What is not said is public there, and none here: the one difference, which check warns of.
    mode = table.network_mode or "public"
    return found | {"network_mode": mode, "healthcheck": _healthcheck(table.healthcheck)}


def _verifier(table: Verifier) -> dict[str, Any]:
    found = table.model_dump(include={"timeout_sec", "env", "user", "environment_mode"})
    collect = [hook.model_dump() for hook in table.collect]
    return found | {"environment": _environment(table.environment), "collect": collect}


def _healthcheck(table: Healthcheck | None) -> dict[str, Any] | None:
    return None if table is None else table.model_dump()


def _theirs(given: dict[str, Any]) -> dict[str, Any]:
    """Return the package's settings in the shape of ours: the same model reads them."""
    plain = cast("dict[str, Any]", _without_none(given))
    return _shown(TaskConfig.model_validate(plain))


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(one) for key, one in value.items() if one is not None}
    return [_without_none(one) for one in value] if isinstance(value, list) else value
