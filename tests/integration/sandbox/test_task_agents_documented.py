"""The agent that docs/agents.md shows does what is said of it, against a model that is a script."""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast
from urllib.error import HTTPError

import pytest
from support.loose_sandbox import LooseSandbox
from trialog.sandbox import record
from trialog.sandbox.agent import Try
from trialog.sandbox.errors import AgentError, AgentUnavailableError
from trialog.sandbox.images import ImageSandbox
from trialog.sandbox.loading import load
from trialog.sandbox.record import Tried
from trialog.sandbox.shell import Shell
from trialog.sandbox.snapshot import Snapshot
from trialog.sandbox.trajectory.atif import Actor
from trialog.sandbox.trajectory.log import Recorder
from trialog.sandbox.trying import Ended, let_try

DOC = Path(__file__).parents[3] / "docs" / "agents.md"
NAME = "import:my_agents.looped:Looped"
REPLIES = [
    "First I look.\n```sh\nls; echo done > answer.txt; exit 3\n```",
    "DONE",
]


class Model:
    """An API of a model that says what it is told to, and what it was asked."""

    def __init__(self, replies: list[str]) -> None:
        self.asked: list[dict[str, Any]] = []
        model = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                size = int(self.headers["Content-Length"])
                model.asked.append(json.loads(self.rfile.read(size)))
                if len(model.asked) > len(replies):
                    self.send_error(500)
                    return
                body = json.dumps(reply_of(replies[len(model.asked) - 1])).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Keep the test's output clean."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"


def reply_of(text: str) -> dict[str, Any]:
    ids = list(range(len(text.split())))
    logprobs = [{"logprob": -0.5} for _ in ids]
    choice = {"message": {"content": text}, "token_ids": ids, "logprobs": {"content": logprobs}}
    usage = {"prompt_tokens": 4, "completion_tokens": len(ids)}
    return {"choices": [choice], "usage": usage, "prompt_token_ids": [1, 2, 3, 4]}


@pytest.fixture
def model() -> Iterator[Model]:
    made = Model(REPLIES)
    thread = threading.Thread(target=made.server.serve_forever, daemon=True)
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


@pytest.fixture
async def box(tmp_path: Path) -> AsyncIterator[LooseSandbox]:
    made = LooseSandbox(tmp_path / "box")
    yield made
    await made.destroy()


@pytest.fixture(autouse=True)
def my_agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The documented module, in a folder that modules are found in."""
    (text,) = re.findall(r"^```python\n(.*?)^```$", DOC.read_text(), re.DOTALL | re.MULTILINE)
    assert text.startswith('"""my_agents/looped.py"""')
    (tmp_path / "my_agents").mkdir()
    (tmp_path / "my_agents" / "looped.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in ("my_agents.looped", "my_agents"):
        sys.modules.pop(name, None)


async def test_it_works_and_what_it_did_is_kept(model: Model, box: LooseSandbox) -> None:
    agent = await load(NAME, {"url": model.url, "model": "m"}, ("my_agents.*",))
    shell = Shell(cast("ImageSandbox", box), Recorder(), 30.0)
    trial = Try("s0-p0-n0", "Write done.", None, shell, shell.log, 40, b"{}", 30.0)
    assert await let_try(agent, trial, shell) == Ended()
    assert box.text("/app/answer.txt") == "done\n"
    assert [each["seed"] for each in model.asked] == [40, 41]
    assert model.asked[1]["messages"][-1] == {"role": "user", "content": "exit 3\n"}
    actor = Actor(agent.name, agent.version)
    kept = record.keep_task("s", actor, [Tried(shell.log)], Snapshot(()))
    document = json.loads(kept.documents[0])
    assert [step["source"] for step in document["steps"]] == ["user", "system", "agent", "agent"]
    first, last = document["steps"][2:]
    assert first["observation"]["results"][0]["extra"] == {"exit_code": 3}
    assert (last["message"], last["metrics"]["completion_token_ids"]) == ("DONE", [0])
    assert first["metrics"]["prompt_token_ids"] == [1, 2, 3, 4]
    assert len(first["metrics"]["logprobs"]) == len(first["metrics"]["completion_token_ids"])
    assert document["agent"] == {"name": "looped", "version": "3"}
    assert kept.n_turns == 2


async def test_a_model_that_fails_is_a_failed_attempt(model: Model, box: LooseSandbox) -> None:
    model.asked += [{}, {}]
    agent = await load(NAME, {"url": model.url}, ("*",))
    shell = Shell(cast("ImageSandbox", box), Recorder(), 30.0)
    trial = Try("s0-p0-n0", "Write done.", None, shell, shell.log, 0, b"{}", 30.0)
    with pytest.raises(AgentError, match="500") as caught:
        await let_try(agent, trial, shell)
    assert caught.value.name == "HTTPError"
    cause = caught.value.__cause__
    assert isinstance(cause, HTTPError)
    cause.close()


async def test_options_that_cannot_be_meant_are_named() -> None:
    with pytest.raises(AgentUnavailableError, match="url is to be the address"):
        await load(NAME, {}, ("*",))
