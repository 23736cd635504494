"""task.toml: schema 1.0 to 1.4, legacy spellings, mistakes named, ignored keys warned of."""

from __future__ import annotations

import re

import pytest
from trialog.proto.tasks.files import TaskProblem
from trialog.proto.tasks.parse import parse
from trialog.proto.tasks.variables import unset, with_defaults

LEGACY = """
version = "1.0"
[environment]
memory = "2G"
storage = "512M"
allow_internet = true
"""
MODERN = """
schema_version = "1.0"
[environment]
memory_mb = 2048
storage_mb = 512
network_mode = "public"
"""


def test_legacy_spellings_say_what_the_modern_ones_do() -> None:
    assert parse(LEGACY.encode()) == parse(MODERN.encode())
    config, warnings = parse(LEGACY.encode())
    assert (config.schema_version, config.environment.memory_mb) == ("1.0", 2048)
    assert warnings == []


def test_what_is_not_given_has_the_formats_defaults() -> None:
    config, warnings = parse(b"")
    assert warnings == []
    assert (config.schema_version, config.verifier.timeout_sec) == ("1.4", 600.0)
    assert config.agent.timeout_sec is None
    assert config.environment.build_timeout_sec == 600.0
    assert config.environment.network_mode is None, "not public: the task does not say"
    assert config.mode() == "shared"


@pytest.mark.parametrize(
    ("text", "mib"),
    [('memory = "1.5G"', 1536), ('memory = "2048K"', 2), ('memory = " 3 m "', 3)],
)
def test_sizes_are_read_with_their_unit(text: str, mib: int) -> None:
    config, _ = parse(f"[environment]\n{text}".encode())
    assert config.environment.memory_mb == mib


@pytest.mark.parametrize(
    ("text", "network"),
    [
        ("allow_internet = false", "no-network"),
        ('allow_internet = true\nnetwork_mode = "no-network"', "no-network"),
        ("", None),
    ],
)
def test_allow_internet_gives_way_to_the_mode(text: str, network: str | None) -> None:
    config, _ = parse(f"[environment]\n{text}".encode())
    assert config.environment.network_mode == network


def test_every_legacy_spelling_is_read_in_a_verifiers_environment_too() -> None:
    text = '[[steps]]\nname = "a"\n[steps.verifier.environment]\nmemory = "1G"\nos = "LINUX"\n'
    config, warnings = parse(text.encode())
    environment = config.steps[0].verifier.environment
    assert environment is not None and warnings == []
    assert (environment.memory_mb, environment.os) == (1024, "linux")
    assert config.mode(config.steps[0]) == "separate"


def test_each_ignored_key_is_warned_of_with_its_place() -> None:
    text = """
colour = "red"
artifacts = ["/app/a", {source = "/app/b", keep = true}]
[task]
name = "x/y"
flavour = 1
[metadata]
anything = {goes = 1979-05-27}
[agent]
retries = 2
[environment]
mcp_servers = [{name = "m"}]
skills_dir = "/skills"
gpu_types = ["T4"]
memory = 3
healthcheck = {command = "true", shell = "sh"}
[[steps]]
name = "a"
[steps.agent]
retries = 2
"""
    config, warnings = parse(text.encode())
    assert {warning.partition(" is ignored")[0] for warning in warnings} == {
        "colour",
        "[artifacts[1]].keep",
        "[task].flavour",
        "[agent].retries",
        "[environment].mcp_servers",
        "[environment].skills_dir",
        "[environment].gpu_types",
        "[environment].memory",
        "[environment.healthcheck].shell",
        "[steps[0].agent].retries",
    }
    assert config.environment.memory_mb is None
    assert [artifact.source for artifact in config.artifacts] == ["/app/a", "/app/b"]
    assert not config.model_extra and not config.environment.model_extra


def test_empty_idle_keys_say_nothing() -> None:
    _, warnings = parse(b"[environment]\nmcp_servers = []\ngpu_types = []\n")
    assert warnings == []


def test_a_strategy_without_steps_and_a_newer_schema_are_warned_of() -> None:
    _, warnings = parse(b'schema_version = "1.7"\nmulti_step_reward_strategy = "mean"\n')
    assert [warning.partition(" ")[0] for warning in warnings] == [
        "schema_version",
        "multi_step_reward_strategy",
    ]
    config, (warning,) = parse(b"version = 1.0\n")
    assert config.schema_version == "1.0" and "write it as a text" in warning


MISTAKES = [
    ("[agent]\ntimeout_sec = 0", "[agent].timeout_sec must be above 0"),
    ("[agent]\ntimeout_sec = nan", "holds a value that cannot be meant"),
    ("[verifier]\ntimeout_sec = -1.5", "[verifier].timeout_sec must be above 0"),
    ('[agent]\ntimeout_sec = "soon"', "[agent].timeout_sec must be"),
    ("[environment.env]\nPORT = 8080", "[environment.env].PORT must be a text"),
    ('[environment]\nmemory = "2T"', "[environment].memory must be a size"),
    ('[environment]\nmemory = "2G"\nmemory_mb = 1', "says 2048 MiB and [environment].memory_mb 1"),
    ('[environment]\nallow_internet = "yes"', "[environment].allow_internet must be true or"),
    ('[environment]\nnetwork_mode = "some"', "[environment].network_mode must be 'no-network'"),
    ('[environment]\nallowed_hosts = ["a.org"]', "[environment].allowed_hosts is given without"),
    ('[verifier]\nallowed_hosts = ["a.org"]', "[verifier].allowed_hosts is given without"),
    ("[environment]\nmemory_mb = 0", "[environment].memory_mb must be above 0"),
    ("[[steps]]", "[steps[0]].name is missing"),
    ('[[steps]]\nname = "a"\n[steps.agent]\ntimeout_sec = 0', "[steps[0].agent].timeout_sec"),
    ('[[steps]]\nname = "../a"', "[steps[0]].name '../a' can be no folder's name"),
    ('[[steps]]\nname = ""', "[steps[0]].name '' can be no folder's name"),
    ('[[steps]]\nname = ".."', "[steps[0]].name '..' can be no folder's name"),
    ('[[steps]]\nname = "a"\n[[steps]]\nname = "A"', "[steps[1]].name 'A' is a step's before it"),
    ("agent = 3", "agent must be a table"),
    ("steps = [3]", "steps[0] must be a table"),
    ("[[artifacts]]\nexclude = []", "[artifacts[0]].source is missing"),
    ('artifacts = ["/a", "/app/../etc"]', "[artifacts[1]].source '/app/../etc' must hold no '..'"),
    ('artifacts = ["/a\\u0000b"]', "[artifacts[0]].source '/a\\x00b' can be no path"),
    ('artifacts = [""]', "[artifacts[0]].source '' can be no path"),
    (f'artifacts = ["/{"é" * 2000}"]', "[artifacts[0]].source is longer than 4000 bytes"),
    (
        '[[steps]]\nname = "a"\n[[steps.artifacts]]\nsource = "\\u0000"',
        "[steps[0].artifacts[0]].source",
    ),
    (
        '[[artifacts]]\nsource = "/a"\nexclude = ["a", "\\u0000"]',
        "[artifacts[0]].exclude[1] can be no pattern",
    ),
    ('[environment]\nworkdir = "/a/../b"', "[environment].workdir '/a/../b' must hold no '..'"),
    ('[environment]\nworkdir = "/a\\u0000"', "[environment].workdir '/a\\x00' can be no path"),
    (f'[environment]\nworkdir = "/{"a" * 4000}"', "[environment].workdir is longer than 4000"),
    ('[verifier.environment]\nworkdir = ".."', "[verifier.environment].workdir '..'"),
    ('artifacts = [{source = "/a", destination = "/b"}]', "must be relative"),
    ('artifacts = [{source = "/a", destination = "../b"}]', "must hold no '..'"),
    ('artifacts = [{source = "/a", destination = "manifest.json"}]', "is the collection's"),
    ('[verifier]\nenvironment_mode = "shared"\n[verifier.environment]', "environment_mode is sha"),
    ('schema_version = "2.0"', "schema_version is '2.0'; supported are 1.0 to 1.4"),
    ("schema_version = 2", "schema_version is 2; supported are"),
    ("[environment", "is no TOML"),
    ("a = " + "9" * 5000, "is no TOML"),
    ("a = " + "[" * 3000, "nested too deeply"),
    ('[environment.env]\n"A=B" = "c"', "[environment.env].A=B can be no variable"),
    (f"[environment]\nmemory_mb = {2**60}", "holds a value that cannot be meant"),
    ('[environment]\nmemory = "999999999999999999999G"', "[environment].memory must be a size"),
]


@pytest.mark.parametrize(("text", "said"), MISTAKES)
def test_a_mistake_is_named_with_file_and_key(text: str, said: str) -> None:
    with pytest.raises(TaskProblem) as caught:
        parse(text.encode())
    assert caught.value.file == "task.toml"
    assert str(caught.value).startswith("task.toml: ") and said in str(caught.value)


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(TaskProblem, match=r"task.toml: is not UTF-8 at byte 4"):
        parse(b'a = "\xff"'.replace(b'"', b"", 1))
    with pytest.raises(TaskProblem, match="larger than"):
        parse(b"#" * 1_000_001)


def test_several_mistakes_are_counted() -> None:
    with pytest.raises(TaskProblem, match=r"and 1 more"):
        parse(b"[agent]\ntimeout_sec = 0\n[verifier]\ntimeout_sec = 0\n")


def test_variables_are_their_defaults_in_every_table() -> None:
    text = """
[environment.env]
A = "${HOST:-a}"
[verifier.env]
B = "${HOST:-}"
[verifier.environment.env]
C = "${HOST:-c:-d}"
[solution.env]
D = "${HOST}"
[[steps]]
name = "s"
[steps.verifier.env]
E = "x${HOST:-e}"
"""
    config, _ = parse(text.encode())
    assert config.environment.env == {"A": "a"}
    assert config.verifier.env == {"B": ""}
    assert config.verifier.environment is not None
    assert config.verifier.environment.env == {"C": "c:-d"}
    assert config.solution.env == {"D": "${HOST}"}, "check refuses it, for the oracle only"
    assert config.steps[0].verifier.env == {"E": "x${HOST:-e}"}, "a template is a whole value"


def test_the_hosts_variables_are_never_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOST_SECRET", "s3cret")
    env = {"A": "${HOST_SECRET}", "B": "${HOST_SECRET:-d}", "C": "$HOST_SECRET"}
    assert with_defaults(env) == {"A": "${HOST_SECRET}", "B": "d", "C": "$HOST_SECRET"}
    assert unset(env) == [("A", "HOST_SECRET")]


@pytest.mark.parametrize(
    ("text", "mend"),
    [
        ('[environment]\nmemory = "lots"', "write memory_mb = 2048, in MiB"),
        ('[environment]\nstorage = ""', "write storage_mb = 2048, in MiB"),
        ('[environment]\ncpus = "two"', "write a number, without quotes"),
        ("[agent]\ntimeout_sec = []", "write a number, without quotes"),
    ],
)
def test_a_value_that_is_none_has_a_mend(text: str, mend: str) -> None:
    with pytest.raises(TaskProblem) as caught:
        parse(text.encode())
    assert caught.value.mend == mend


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[agent]\ntimeout_secs = 1", "[agent].timeout_secs is ignored: .*(did you mean timeout_s"),
        ("[enviroment]\n", "enviroment is ignored: no such key is known (did you mean environ"),
        ('[task]\nnames = "x"', "[task].names is ignored: no such key is known (did you mean name"),
    ],
)
def test_a_misspelt_key_is_told_what_was_meant(text: str, said: str) -> None:
    _, warnings = parse(text.encode())
    assert any(re.match(re.escape(said).replace(r"\.\*", ".*"), one) for one in warnings), warnings
