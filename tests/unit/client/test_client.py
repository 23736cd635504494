"""Both clients against a real server: retries, problems, streams that are cut."""

import socket
import threading
from collections.abc import Iterator

import pytest
from support.fake_api import RUN, FakeDriver, Served, make_dead_letter, make_trial, serve
from trialog.client import (
    AccessDenied,
    AsyncTrialogClient,
    Conflict,
    InvalidRequest,
    NotFound,
    Patience,
    TrialogClient,
    UnexpectedAnswer,
    Unreachable,
)
from trialog.client.calls import Call, segment


@pytest.fixture
def served() -> Iterator[Served]:
    with serve(FakeDriver()) as server:
        yield server


@pytest.fixture
def driver(served: Served) -> FakeDriver:
    return served.driver


@pytest.fixture
def client(served: Served) -> Iterator[TrialogClient]:
    with TrialogClient(served.url, patience=Patience(10)) as one:
        yield one


def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def test_a_run_is_created_once_over_failing_answers(driver: FakeDriver, client: TrialogClient):
    driver.failures = [503, 502]
    run = client.create_run({"n_steps": 2})
    sent = driver.seen("POST", "/runs")
    assert len(sent) == 3
    assert len({headers["idempotency-key"] for headers in sent}) == 1
    assert run["spec"] == {"n_steps": 2}
    assert len(driver.runs) == 1


def test_a_driver_that_comes_back_is_waited_for(served: Served):
    served.driver.add_run()
    told: list[str] = []
    served.stop()
    back = threading.Event()

    def on_wait(cause: str, waited_s: float) -> None:
        told.append(cause)
        if not back.is_set():
            back.set()
            served.start()

    with TrialogClient(served.url, patience=Patience(10, on_wait)) as client:
        assert client.get_run(RUN)["run_id"] == RUN
    assert "connection refused" in told


def test_patience_ends():
    url = f"http://127.0.0.1:{unused_port()}"
    with (
        TrialogClient(url, patience=Patience(0)) as client,
        pytest.raises(Unreachable, match="connection refused"),
    ):
        client.list_runs()


def test_problems_become_errors_that_name_the_field(driver: FakeDriver, client: TrialogClient):
    with pytest.raises(InvalidRequest, match="n_steps: Input should be") as refused:
        client.create_run({"n_steps": "x"})
    assert refused.value.problem.errors[0].field == "n_steps"
    with pytest.raises(NotFound, match="there is no run"):
        client.get_run(RUN)
    driver.add_run(state="completed")
    with pytest.raises(Conflict):
        client.pause(RUN)


def test_the_api_key_is_sent(served: Served, monkeypatch: pytest.MonkeyPatch):
    served.driver.api_key = "secret"
    with TrialogClient(served.url) as client, pytest.raises(AccessDenied):
        client.list_runs()
    monkeypatch.setenv("TRIALOG_API_KEY", "secret")
    with TrialogClient(served.url) as client:
        assert client.list_runs()["runs"] == []


def test_an_address_that_is_none_is_refused():
    with pytest.raises(ValueError, match="expected http://HOST:PORT"):
        TrialogClient("127.0.0.1:80")


def test_another_server_is_recognised(served: Served):
    with TrialogClient(served.url + "/docs") as client, pytest.raises(NotFound):
        client.list_runs()
    with (
        TrialogClient(served.url) as client,
        pytest.raises(UnexpectedAnswer, match="not a Trialog driver"),
    ):
        client._send(Call("GET", "/docs"))


@pytest.mark.parametrize("text", ["a/b", "..", ".", "a?b", "a#b", "a%2Fb"])
def test_an_id_stays_one_path_segment(text: str):
    made = segment(text)
    assert not set("/?#") & set(made)
    assert made not in (".", "..")


def test_trials_and_weights_come_as_they_are(driver: FakeDriver, client: TrialogClient):
    driver.add_run()
    driver.trials[RUN] = [make_trial("s0-p0-n0"), make_trial("s1-p0-n0")]
    driver.weights[RUN] = [{"version": 0, "digest": "d", "doc_prior": {"w0": [1.0] * 8}}]
    assert client.list_trials(RUN, step=1)["trials"] == [driver.trials[RUN][1]]
    assert client.get_weights(RUN) == driver.weights[RUN][0]
    assert client.get_trial(RUN, "s0-p0-n0")["reward"] == 2.31


def test_steps_come_page_by_page(driver: FakeDriver, client: TrialogClient):
    driver.add_run()
    driver.steps[RUN] = [{"step": number} for number in range(3)]
    first = client.list_steps(RUN, limit=2)
    assert [step["step"] for step in first["steps"]] == [0, 1]
    rest = client.list_steps(RUN, limit=2, cursor=first["next_cursor"])
    assert (rest["steps"], rest["next_cursor"]) == ([{"step": 2}], None)


def test_dead_work_is_listed_and_offered_again(driver: FakeDriver, client: TrialogClient):
    driver.dead = [make_dead_letter(f"{RUN}/w{n}/build_world") for n in range(3)]
    page = client.list_dead_letters(limit=2)
    assert page["dead_letters"] == driver.dead[:2]
    assert client.list_dead_letters(cursor=page["next_cursor"])["dead_letters"] == driver.dead[2:]
    assert client.list_dead_letters(run_id="r-zzzzzzzzzzzzzzzz")["dead_letters"] == []
    key = driver.dead[0]["key"]
    assert client.redrive(key)["key"] == key
    with pytest.raises(NotFound, match="no work"):
        client.redrive(key)


RUBRIC = {"name": "mine", "criteria": [{"name": "a"}]}


def test_rubrics_are_kept_listed_and_compared(driver: FakeDriver, client: TrialogClient):
    driver.failures = [503]  # put again, it is the same version
    first = client.put_rubric("mine", RUBRIC)
    second = client.put_rubric("mine", RUBRIC | {"criteria": [{"name": "a", "weight": 2.0}]})
    assert [(one["version"], one["added"]) for one in (first, second)] == [(1, True), (2, True)]
    assert client.put_rubric("mine", RUBRIC)["added"] is False
    page = client.list_rubrics(limit=4)
    assert [one["name"] for one in page["rubrics"]] == ["instant", "mine", "task", "v1"]
    (last,) = client.list_rubrics(cursor=page["next_cursor"])["rubrics"]
    assert (last["name"], last["built_in"]) == ("v2-efficiency", True)
    versions = client.get_rubric("mine", limit=1)
    assert [one["version"] for one in versions["versions"]] == [2]
    older = client.get_rubric("mine", cursor=versions["next_cursor"])["versions"]
    assert [one["version"] for one in older] == [1]
    assert client.get_rubric_version("mine", 1)["digest"] == first["digest"]
    diff = client.diff_rubrics("mine", from_=1, to="mine@2")
    assert diff["changed"][0]["fields"] == [{"field": "weight", "from": 1.0, "to": 2.0}]
    with pytest.raises(NotFound, match="rubric other is unknown"):
        client.get_rubric("other")
    with pytest.raises(Conflict, match="under another name"):
        client.put_rubric("v1", RUBRIC)


def test_the_chain_is_walked(client: TrialogClient):
    assert client.verify_log() == {"broken_at": None, "checked_until": 7}


def fill(driver: FakeDriver, count: int, *, end: bool = True) -> None:
    driver.add_run()
    for number in range(count):
        driver.append("TrialRequested", trial_id=f"s0-p{number}-n0", step=0)
    if end:
        driver.append("RunCompleted", weights_version=0, weights_digest="d")
        driver.runs[RUN]["state"] = "running"  # so that watching opens a stream


def test_watching_goes_on_after_each_cut(driver: FakeDriver, client: TrialogClient):
    fill(driver, 6)
    driver.cut_after = 3
    assert [event["position"] for event in client.watch(RUN)] == [1, 2, 3, 4, 5, 6, 7]
    resumed = [h.get("last-event-id") for h in driver.seen("GET", f"/runs/{RUN}/events")]
    assert resumed == [None, "3", "6"]


def test_watching_lives_through_a_restart(served: Served, client: TrialogClient):
    driver = served.driver
    fill(driver, 2, end=False)
    seen: list[str] = []
    for event in client.watch(RUN):
        seen.append(event["type"])
        if len(seen) == 2:
            served.stop()
            driver.append("RunFailed", reason="min_group")
            driver.runs[RUN]["state"] = "running"
            threading.Timer(0.3, served.start).start()
    assert seen == ["TrialRequested", "TrialRequested", "RunFailed"]


def test_watching_an_ended_run_reads_pages_and_stops(driver: FakeDriver, client: TrialogClient):
    fill(driver, 5)
    driver.runs[RUN]["state"] = "completed"
    driver.page_size = 2
    assert len(list(client.watch(RUN))) == 6
    assert list(client.watch(RUN, after=6)) == []
    assert [event["position"] for event in client.watch(RUN, after=4)] == [5, 6]


def test_watching_an_unknown_run_fails(client: TrialogClient):
    with pytest.raises(NotFound):
        next(iter(client.watch(RUN)))


async def test_the_asynchronous_client_does_the_same(served: Served):
    driver = served.driver
    driver.failures = [503]
    async with AsyncTrialogClient(served.url, patience=Patience(10)) as client:
        created = await client.create_run({"n_steps": 1})
        assert len(driver.runs) == 1
        run_id = created["run_id"]
        driver.append("RunRequested", run_id, spec={})
        driver.append("RunCancelled", run_id)
        driver.runs[run_id]["state"] = "running"
        driver.cut_after = 1
        types = [event["type"] async for event in client.watch(run_id)]
        assert types == ["RunRequested", "RunCancelled"]
        assert [event["position"] async for event in client.iter_events(run_id, after=1)] == [2]
        assert (await client.pause(run_id))["state"] == "paused"
        with pytest.raises(NotFound):
            await client.get_run(RUN)
        assert (await client.list_steps(run_id))["steps"] == []
        driver.dead = [make_dead_letter(f"{RUN}/w0/build_world")]
        assert (await client.list_dead_letters(run_id=RUN))["dead_letters"] == driver.dead
        assert (await client.redrive(driver.dead[0]["key"]))["run_state"] == "running"
        assert (await client.verify_log(3))["checked_until"] == 10
        assert (await client.put_rubric("mine", RUBRIC))["version"] == 1
        assert (await client.get_rubric("mine"))["latest"]["version"] == 1
        assert (await client.get_rubric_version("mine", 1))["built_in"] is False
        assert (await client.diff_rubrics("v1", to="mine"))["to"]["name"] == "mine"
        assert len((await client.list_rubrics())["rubrics"]) == 5


@pytest.mark.parametrize("kind", [TrialogClient, AsyncTrialogClient])
def test_the_address_is_that_of_the_environment_where_none_is_given(
    kind: type[TrialogClient | AsyncTrialogClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRIALOG_URL", raising=False)
    assert kind().url == "http://127.0.0.1:8321"
    monkeypatch.setenv("TRIALOG_URL", "http://127.0.0.1:9/")
    assert kind().url == "http://127.0.0.1:9"
    assert kind("http://127.0.0.1:8").url == "http://127.0.0.1:8"
    monkeypatch.setenv("TRIALOG_URL", "nowhere")
    with pytest.raises(ValueError, match="'nowhere' is no address"):
        kind()
