"""What is refused before anything runs, with its mend; and what is only warned of."""

from __future__ import annotations

import dataclasses

import pytest
from support.task_folders import STEPS, STEPS_TOML, TOML, Changes, task
from trialog.proto.tasks.check import Settings, Verdict, check, verdict_on
from trialog.proto.tasks.files import TaskProblem

BASE = "debian:bookworm-slim"
RUN = Settings(images={BASE: "host"}, agent="oracle")


def verdict(changes: Changes | None = None, settings: Settings = RUN) -> Verdict:
    return check(task(changes), settings)


def with_toml(more: str, settings: Settings = RUN) -> Verdict:
    """Return the verdict on a task whose [environment] (and what follows) has more."""
    return verdict({"task.toml": TOML + more}, settings)


def test_a_sound_task_runs_without_a_word() -> None:
    assert verdict() == Verdict("answer", True)
    assert verdict(STEPS).runs
    assert verdict(settings=dataclasses.replace(RUN, provider="docker", images={})).runs


REFUSED = [
    ('os = "Windows"', "[environment].os is windows", "only Linux"),
    ('[verifier.environment]\nos = "windows"', "[verifier.environment].os is windows", "Linux"),
    ('tpu = {type = "v6e", topology = "2x4"}', "asks for a TPU", "no sandbox has one"),
    ("gpus = 1", "[environment].gpus asks for 1 GPU(s)", "gpus = 0"),
    ("[verifier.environment]\ngpus = 2", "[verifier.environment].gpus asks for 2", "gpus = 0"),
    (
        '[agent]\nnetwork_mode = "allowlist"\nallowed_hosts = ["a.org"]',
        "[agent].network_mode is allowlist",
        "no-network or public",
    ),
    ('[agent]\nnetwork_mode = "public"', "[agent].network_mode is public", "network: public"),
    ('[verifier]\nnetwork_mode = "public"', "[verifier].network_mode is public", "no-network"),
    (
        '[[verifier.collect]]\ncommand = "dump"\nservice = "db"',
        "artifacts or collect names the service db",
        "only the service main",
    ),
    ('[environment.env]\nKEY = "${HOST_KEY}"', "[environment.env].KEY asks for", "${HOST_KEY:-VA"),
    ('[verifier.env]\nKEY = "${HOST_KEY}"', "[verifier.env].KEY asks for the host's", "default"),
    ('[solution.env]\nKEY = "${HOST_KEY}"', "[solution.env].KEY asks for the host's", "default"),
]


@pytest.mark.parametrize(("more", "reason", "mend"), REFUSED)
def test_what_no_sandbox_can_do_is_refused_with_its_mend(more: str, reason: str, mend: str) -> None:
    found = with_toml(more)
    assert not found.runs
    assert reason in found.reason and mend in found.mend


def test_a_refusal_says_all_that_is_wrong_at_once() -> None:
    found = with_toml('gpus = 1\n[agent]\nnetwork_mode = "public"', Settings(agent="policy"))
    assert [part in found.reason for part in ("GPU", "public", "policy")] == [True] * 3


@pytest.mark.parametrize("place", ["environment/docker-compose.yaml", "tests/docker-compose.yaml"])
def test_services_beside_the_tasks_are_refused(place: str) -> None:
    found = verdict({place: "services: {db: {image: postgres}}"})
    assert found.reason.startswith(f"{place} starts services") and "healthcheck" in found.mend
    deeper = verdict({place.replace("/", "/app/"): "of the task's own"})
    assert deeper.runs


def test_a_task_of_a_compose_file_alone_is_refused_for_that() -> None:
    changes: Changes = {"environment/Dockerfile": None, "environment/docker-compose.yaml": "x"}
    assert "starts services" in verdict(changes).reason
    steps = STEPS | {"steps/two/tests/docker-compose.yaml": "x"}
    assert "steps/two/tests/docker-compose.yaml starts" in verdict(steps).reason


def test_artifacts_of_other_services_are_refused() -> None:
    text = 'artifacts = [{source = "/d", service = "db"}, {source = "/e", service = "main"}]\n'
    found = verdict({"task.toml": text + TOML})
    assert found.reason == "artifacts or collect names the service db"
    step = STEPS_TOML + 'artifacts = [{source = "/d", service = "q"}]\n'
    assert "[steps[1]]" in verdict(STEPS | {"task.toml": step}).reason


def test_a_network_is_had_as_far_as_the_run_allows() -> None:
    toml = TOML.replace("no-network", "public")
    assert not verdict({"task.toml": toml}).runs
    public = dataclasses.replace(RUN, network="public", provider="docker")
    assert verdict({"task.toml": toml}, public).runs
    bwrap = verdict({"task.toml": toml}, dataclasses.replace(public, provider="bubblewrap"))
    assert "bubblewrap sandboxes have no network" in bwrap.reason and "docker" in bwrap.mend
    legacy = 'version = "1.0"\n[environment]\nallow_internet = true\n'
    assert "is public" in verdict({"task.toml": legacy}).reason
    silent = verdict({"task.toml": ""})
    assert silent.runs
    (warning,) = silent.warnings
    assert "gets no network" in warning and "public" in warning


def test_images_must_be_among_the_runs_for_bubblewrap_only() -> None:
    bare = dataclasses.replace(RUN, images={})
    found = verdict(settings=bare)
    assert not found.runs
    assert found.reason == f"the image {BASE} is not among the run's images"
    assert f'{{"{BASE}": ' in found.mend and "docker" in found.mend
    unsaid = verdict(settings=Settings())
    assert unsaid.runs and BASE in unsaid.warnings[0]
    ready = with_toml('docker_image = "made:1"')
    assert "made:1" in ready.reason and BASE not in ready.reason
    judge = with_toml('[verifier.environment]\ndocker_image = "judge:1"')
    assert "judge:1" in judge.reason and BASE not in judge.reason


def test_a_dockerfile_of_the_tests_names_its_image_too() -> None:
    changes: Changes = {
        "task.toml": TOML + "[verifier.environment]\n",
        "tests/Dockerfile": "FROM other:1\n",
    }
    assert "other:1" in verdict(changes).reason
    unused: Changes = {"tests/Dockerfile": "FROM other:1\n"}
    assert verdict(unused).runs, "graded in the shared image: nothing is built of it"


@pytest.mark.parametrize("text", ["ARG B\nFROM $B\n", "RUN x\n", b"FROM caf\xe9\n"])
def test_a_dockerfile_without_a_known_image_is_refused(text: str | bytes) -> None:
    for provider in ("bubblewrap", "docker"):
        found = verdict(
            {"environment/Dockerfile": text}, dataclasses.replace(RUN, provider=provider)
        )
        assert found.reason.startswith("environment/Dockerfile: ")


def test_the_null_provider_runs_no_task() -> None:
    found = verdict(settings=dataclasses.replace(RUN, provider="null"))
    assert "provider null runs no commands" in found.reason


@pytest.mark.parametrize("agent", ["policy", "noop"])
def test_agents_of_the_reference_world_play_no_task(agent: str) -> None:
    found = verdict(settings=dataclasses.replace(RUN, agent=agent))
    assert f"agent {agent} knows" in found.reason and "oracle" in found.mend


@pytest.mark.parametrize("agent", ["nop", "command", "import:m:C"])
def test_only_the_oracle_needs_a_solution(agent: str) -> None:
    gone: Changes = {"solution/solve.sh": None}
    assert verdict(gone, dataclasses.replace(RUN, agent=agent)) == Verdict("answer", True)
    refused = verdict(gone)
    assert refused.reason.startswith("solution/solve.sh is missing")
    unsaid = verdict(gone, dataclasses.replace(RUN, agent=None))
    assert unsaid.runs and "oracle cannot play" in unsaid.warnings[0]
    env: Changes = {"task.toml": TOML + '[solution.env]\nKEY = "${HOST_KEY}"\n'}
    assert verdict(env, dataclasses.replace(RUN, agent=agent)).runs


def test_each_step_needs_a_solution_for_the_oracle() -> None:
    changes = STEPS | {"solution/solve.sh": None, "steps/one/solution/solve.sh": "x"}
    assert verdict(changes).reason.startswith("steps/two/solution/solve.sh is missing")
    assert verdict(changes | {"steps/two/solution/solve.sh": "x"}).runs


def test_a_task_that_cannot_be_read_does_not_run() -> None:
    problem = TaskProblem("task.toml", "is missing", "write one")
    found = verdict_on("a", problem, RUN)
    assert found == Verdict("a", False, "task.toml: is missing", "write one")


def test_warnings_of_reading_are_the_verdicts() -> None:
    found = with_toml('skills_dir = "/skills"')
    assert (
        found.runs
        and found.warnings == task({"task.toml": TOML + 'skills_dir = "/skills"'}).warnings
    )


def test_what_only_a_daemon_builds_is_refused_for_bubblewrap() -> None:
    fetches: Changes = {"environment/Dockerfile": f"FROM {BASE}\nADD https://x.org/f /f\n"}
    found = verdict(fetches)
    assert found.reason == (
        "environment/Dockerfile: ADD of an address is not built without a Docker daemon"
    )
    docker = dataclasses.replace(RUN, provider="docker")
    assert not verdict(fetches, docker).runs, "there is no network to fetch it by"
    assert verdict(fetches, dataclasses.replace(docker, network="public")).runs
    ready = {**fetches, "task.toml": TOML + f'docker_image = "{BASE}"'}
    assert verdict(ready).runs, "the Dockerfile is not built"


def test_an_image_may_be_spelt_as_from_may() -> None:
    changes: Changes = {"environment/Dockerfile": "FROM docker.io/library/base\n"}
    assert verdict(changes, dataclasses.replace(RUN, images={"base:latest": "host"})).runs


@pytest.mark.parametrize("path", ["tests/test.sh", "solution/solve.sh"])
def test_scripts_with_windows_line_ends_are_warned_of(path: str) -> None:
    said = f"{path} has Windows line ends (CRLF), which a shell trips over: save it with LF"
    assert verdict({path: "#!/bin/sh\r\necho 1\r\n"}).warnings == (said,)
    assert verdict({"tests/data.sh": "x\r\n", "instruction.md": "x\r\n"}).warnings == ()


@pytest.mark.parametrize(
    "line",
    [
        "RUN --mount=type=cache,target=/c true",
        "COPY --chmod=755 a /a",
        "RUN <<EOF\ntrue\nEOF",
    ],
)
def test_what_needs_buildkit_is_refused_for_docker(line: str) -> None:
    """The daemon's plain builder refuses it in the middle of a build."""
    changed: Changes = {
        "environment/Dockerfile": f"FROM {BASE}\n{line}\n",
        "environment/a": "x",
    }
    docker = dataclasses.replace(RUN, provider="docker", network="public", images=None)
    found = verdict(changed, docker)
    assert not found.runs and "is not built here" in found.reason


@pytest.mark.parametrize(("mode", "runs"), [("public", False), ("no-network", True)])
def test_a_step_has_the_network_of_its_task(mode: str, runs: bool) -> None:
    """All steps are played in one sandbox: one that asks for less would get more."""
    toml = (
        'schema_version = "1.4"\n[environment]\nnetwork_mode = "no-network"\n'
        f'[[steps]]\nname = "a"\n[steps.agent]\nnetwork_mode = "{mode}"\n'
    )
    changed: Changes = {"task.toml": toml, "steps/a/instruction.md": "Do.", "tests/test.sh": "x"}
    docker = dataclasses.replace(RUN, provider="docker", network="public", images=None, agent="nop")
    assert verdict(changed, docker).runs is runs, verdict(changed, docker)


def test_a_name_that_grows_without_end_is_refused() -> None:
    """Each word is short; what they come to would fill the memory of who reads them."""
    text = f"ARG A={'x' * 4000}\nFROM {'$A' * 5000}\n"
    found = verdict({"environment/Dockerfile": text})
    assert not found.runs and "more than 4096 characters" in found.reason


@pytest.mark.parametrize(
    "line", ["memory_mb = 9000000000000000", "storage_mb = 16777217", "cpus = 1e9"]
)
def test_resources_that_no_machine_has_are_refused(line: str) -> None:
    toml = f'schema_version = "1.4"\n[environment]\n{line}\n'
    with pytest.raises(TaskProblem, match=line.split(" ", maxsplit=1)[0]):
        verdict({"task.toml": toml})
