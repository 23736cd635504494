"""The blocking client of the driver's API."""

from __future__ import annotations

import time
import uuid
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Literal

import httpx

from trialog.client import calls, transport
from trialog.client.calls import RETRY_STATUSES, Call
from trialog.client.export_models import Row, RowPage, TaskResults
from trialog.client.fork_models import Comparison, Lineage, Mode, Plan
from trialog.client.models import (
    ENDED,
    DeadLetterPage,
    Event,
    EventPage,
    Redriven,
    Run,
    RunPage,
    StepPage,
    TrialDetail,
    TrialPage,
    Verification,
    Weights,
)
from trialog.client.retry import Attempts, Patience
from trialog.client.rubric_models import (
    RubricDiff,
    RubricPage,
    RubricPut,
    RubricVersion,
    RubricVersions,
)
from trialog.client.sse import SseParser
from trialog.client.task_models import TaskArchive
from trialog.proto.events import RUN_ENDS


class TrialogClient:
    """Talks to one driver; a restart of it is waited out for ``patience.total_s`` seconds.

    ``url`` defaults to $TRIALOG_URL, else http://127.0.0.1:8321, ``api_key`` to $TRIALOG_API_KEY.
    Every method raises ApiError, Unreachable or UnexpectedAnswer (trialog.client.errors). Use it
    as a context manager.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        patience: Patience | None = None,
        timeout_s: float = 30.0,
    ) -> None:
        self.url = transport.address(url)
        self._patience = patience or Patience()
        self._http = httpx.Client(**transport.client_options(self.url, api_key, timeout_s))

    def __enter__(self) -> TrialogClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def create_run(self, spec: Mapping[str, Any], *, idempotency_key: str | None = None) -> Run:
        """Start a run of a RunSpec; sent again, the same key gives the same run."""
        return self._send(calls.create_run(spec, idempotency_key or uuid.uuid4().hex))

    def upload_tasks(self, archive: str | Path) -> TaskArchive:
        """Upload a tar (gzipped or not) of a task's folder or a folder of tasks; a run is of them
        with ``tasks: {"archive": DIGEST}``."""
        return self._send(calls.upload_tasks(Path(archive)))

    def list_runs(
        self,
        *,
        state: str | None = None,
        labels: Mapping[str, str] | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> RunPage:
        """Return a page of runs."""
        return self._send(calls.list_runs(state, labels or {}, limit, cursor))

    def get_run(self, run_id: str) -> Run:
        """Return one run."""
        return self._send(calls.get_run(run_id))

    def list_steps(
        self,
        run_id: str,
        *,
        step: int | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> StepPage:
        """Return a page of a run's steps."""
        return self._send(calls.list_steps(run_id, step, limit, cursor))

    def list_trials(
        self,
        run_id: str,
        *,
        step: int | None = None,
        state: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> TrialPage:
        """Return a page of a run's trials."""
        return self._send(calls.list_trials(run_id, step, state, limit, cursor))

    def get_trial(self, run_id: str, trial_id: str) -> TrialDetail:
        """Return one trial with its events."""
        return self._send(calls.get_trial(run_id, trial_id))

    def get_trajectory(self, run_id: str, trial_id: str) -> dict[str, Any]:
        """Return what the agent of a trial did."""
        return self._send(calls.get_trial(run_id, trial_id, "/trajectory"))

    def list_task_results(self, run_id: str, *, step: int | None = None) -> TaskResults:
        """Return how the tasks of a run went, of all its steps or of one."""
        return self._send(calls.list_task_results(run_id, step))

    def list_rows(
        self,
        run_id: str,
        *,
        step: int | None = None,
        unscored: bool = False,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> RowPage:
        """Return a page of a run's trials as rows for training; ``unscored``: also those that ended
        without a verdict."""
        return self._send(calls.list_rows(run_id, step, unscored, limit, cursor))

    def iter_rows(
        self, run_id: str, *, step: int | None = None, unscored: bool = False
    ) -> Iterator[Row]:
        """Yield a run's trials as rows for training, page by page."""
        cursor = None
        while True:
            page = self.list_rows(run_id, step=step, unscored=unscored, cursor=cursor)
            yield from page["rows"]
            cursor = page["next_cursor"]
            if cursor is None:
                return

    def download_files(self, run_id: str, trial_id: str | None = None, *, to: BinaryIO) -> None:
        """Write a trial as a folder of the Harbor format, or what stands above a run's trials, to a
        file that can be cut: a tar archive."""
        call = calls.get_files(run_id, trial_id)
        attempts = Attempts(self._patience, self.url)
        while True:
            try:
                self._download(call, to)
                return
            except httpx.TransportError as error:
                time.sleep(attempts.failed(transport.cause_of(error)))

    def _download(self, call: Call, to: BinaryIO) -> None:
        to.seek(0)
        to.truncate()
        request = transport.request(self._http, call)
        request.extensions["timeout"] = transport.DOWNLOAD_TIMEOUT.as_dict()
        response = self._http.send(request, stream=True)
        try:
            if response.status_code in RETRY_STATUSES:
                raise httpx.ReadError(f"status {response.status_code}")
            body = response.read() if response.status_code >= 400 else b""
            refused = transport.refused_download(response, body, self.url)
            if refused is not None:
                raise refused
            for chunk in response.iter_bytes():
                to.write(chunk)
        finally:
            response.close()

    def get_weights(self, run_id: str, version: int | Literal["latest"] = "latest") -> Weights:
        """Return a version of a run's weights; version n is that after n steps."""
        return self._send(calls.get_weights(run_id, version))

    def list_events(self, run_id: str, *, after: int = 0, limit: int | None = None) -> EventPage:
        """Return a page of a run's events after a position."""
        return self._send(calls.list_events(run_id, after, limit))

    def cancel(self, run_id: str) -> Run:
        """End a run; its open trials end cancelled."""
        return self._send(calls.control(run_id, "cancel"))

    def pause(self, run_id: str) -> Run:
        """Claim nothing new for a run; what is in flight still records."""
        return self._send(calls.control(run_id, "pause"))

    def resume(self, run_id: str, *, budget: Mapping[str, float | None] | None = None) -> Run:
        """Offer a paused run's work again; limits in ``budget`` are others from now on, None: no
        limit, those that are left out stay."""
        return self._send(calls.resume(run_id, budget))

    def fork(
        self,
        run_id: str,
        changes: Mapping[str, Any] | None = None,
        *,
        rubric: str | None = None,
        mode: Mode | None = None,
        idempotency_key: str | None = None,
    ) -> Run:
        """Start a run from what another has, with some of its settings changed.

        ``changes`` may also hold ``from_step``: steps below it stand as they are. Sent again, the
        same key gives the same run.
        """
        how, key = {"rubric": rubric, "mode": mode}, idempotency_key or uuid.uuid4().hex
        return self._send(calls.fork(run_id, changes or {}, how, key))

    def plan_fork(
        self,
        run_id: str,
        changes: Mapping[str, Any] | None = None,
        *,
        rubric: str | None = None,
        mode: Mode | None = None,
    ) -> Plan:
        """Return what such a fork would recover, execute and cost; nothing is started."""
        how = {"rubric": rubric, "mode": mode}
        return self._send(calls.plan_fork(run_id, changes or {}, how))

    def get_lineage(
        self, run_id: str, *, limit: int | None = None, cursor: str | None = None
    ) -> Lineage:
        """Return a run's ancestors, and a page of all runs of its tree."""
        return self._send(calls.get_lineage(run_id, limit, cursor))

    def compare(
        self,
        a: str,
        b: str,
        *,
        step: int | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Comparison:
        """Return a page of the trials of two runs side by side; the first has totals and steps."""
        return self._send(calls.compare(a, b, step, limit, cursor))

    def list_dead_letters(
        self,
        *,
        run_id: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> DeadLetterPage:
        """Return a page of the work that was given up."""
        return self._send(calls.list_dead_letters(run_id, limit, cursor))

    def redrive(self, key: str) -> Redriven:
        """Offer dead work again."""
        return self._send(calls.redrive(key))

    def put_rubric(self, name: str, rubric: Mapping[str, Any]) -> RubricPut:
        """Keep a rubric as the next version of a name; the same content is the same version."""
        return self._send(calls.put_rubric(name, rubric))

    def list_rubrics(self, *, limit: int | None = None, cursor: str | None = None) -> RubricPage:
        """Return a page of rubrics, each by its latest version."""
        return self._send(calls.list_rubrics(limit, cursor))

    def get_rubric(
        self, name: str, *, limit: int | None = None, cursor: str | None = None
    ) -> RubricVersions:
        """Return a rubric's latest version, and a page of all of them."""
        return self._send(calls.get_rubric(name, limit, cursor))

    def get_rubric_version(
        self, name: str, version: int | Literal["latest"] = "latest"
    ) -> RubricVersion:
        """Return a version of a rubric."""
        return self._send(calls.get_rubric_version(name, version))

    def diff_rubrics(
        self, name: str, *, from_: int | str | None = None, to: int | str | None = None
    ) -> RubricDiff:
        """Compare two versions: numbers of this rubric's, or NAME@VERSION of any."""
        return self._send(calls.diff_rubrics(name, from_, to))

    def verify_log(self, after: int = 0) -> Verification:
        """Walk the log's hash chain above a position, a hundred thousand links at most."""
        return self._send(calls.verify_log(after))

    def iter_events(self, run_id: str, after: int = 0) -> Iterator[Event]:
        """Yield the events that are on the log now, page by page."""
        while True:
            page = self.list_events(run_id, after=after)
            yield from page["events"]
            if not page["events"]:
                return
            after = max(page["next"], page["events"][-1]["position"])

    def watch(self, run_id: str, after: int = 0) -> Iterator[Event]:
        """Yield a run's events from a position on, each once, up to the one that ends it.

        Lives through driver restarts: it goes on after the last event seen (Last-Event-ID).
        """
        attempts = Attempts(self._patience, self.url)
        while True:
            if self.get_run(run_id)["state"] in ENDED:
                yield from self.iter_events(run_id, after)
                return
            try:
                with closing(self._stream(run_id, after, attempts)) as events:
                    for event in events:
                        after = event["position"]
                        yield event
                        if event["type"] in RUN_ENDS:
                            return
                time.sleep(transport.REOPEN_S)
            except httpx.TransportError as error:
                time.sleep(attempts.failed(transport.cause_of(error)))

    def _stream(self, run_id: str, after: int, attempts: Attempts) -> Generator[Event, None, None]:
        """Yield the events of one connection; it just ends when the driver closes it."""
        request = transport.request(self._http, calls.stream_events(run_id, after))
        request.extensions["timeout"] = transport.STREAM_TIMEOUT.as_dict()
        response = self._http.send(request, stream=True)
        try:
            if response.status_code in RETRY_STATUSES:
                raise httpx.ReadError(f"status {response.status_code}")
            if response.status_code == transport.NOTHING_TO_COME:
                return
            if not transport.is_stream(response):
                raise transport.refused_stream(response, response.read(), self.url)
            attempts.reset()
            parser = SseParser()
            for chunk in response.iter_bytes():
                for event in transport.events_of(parser, chunk):
                    if event["position"] > after:
                        after = event["position"]
                        yield event
        finally:
            response.close()

    def _send(self, call: Call) -> Any:
        attempts = Attempts(self._patience, self.url)
        while True:
            try:
                response = self._http.send(transport.request(self._http, call))
            except httpx.TransportError as error:
                cause = transport.cause_of(error)
            else:
                if response.status_code not in RETRY_STATUSES:
                    kind = response.headers.get("content-type", "")
                    return calls.answer(
                        response.status_code, kind, response.content, source=self.url
                    )
                cause = f"status {response.status_code}"
            time.sleep(attempts.failed(cause))
