"""Which server a command talks to, and what its failures mean for the exit code."""
# ruff: noqa: PLC0415 - a quick start: a command imports what it needs when it runs

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import TYPE_CHECKING

from trialog.cli import discovery, output
from trialog.cli.exits import BAD_INPUT, SERVER_ERROR, UNREACHABLE, BadInput, CommandError

if TYPE_CHECKING:
    from trialog.client import TrialogClient, TrialogError
    from trialog.client.retry import OnWait

PATIENCE_S = 5.0
WATCH_PATIENCE_S = 60.0
_TELL_AFTER_S = 1.0


class ServerProblem(CommandError):
    """The server refused, failed or did not answer."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def find_url(url: str | None) -> str:
    """Return the server's address: the one given, that of the running stack, or the default."""
    if url:
        return url
    stack = discovery.newest()
    if stack is not None:
        return stack.url
    from trialog.client import DEFAULT_URL

    return DEFAULT_URL


@contextlib.contextmanager
def server(
    url: str | None, *, patience_s: float = PATIENCE_S, on_wait: OnWait | None = None
) -> Generator[TrialogClient]:
    """Give a client of the server; its errors become ServerProblem with an exit code."""
    from trialog.client import Patience, TrialogClient, TrialogError

    found = find_url(url)
    patience = Patience(patience_s, on_wait or _Waiting(found))
    try:
        client = TrialogClient(found, patience=patience)
    except ValueError as error:
        raise BadInput(f"--url: {error}") from None
    try:
        with client:
            yield client
    except TrialogError as error:
        raise server_problem(error) from error


def server_problem(error: TrialogError) -> ServerProblem:
    """Return what an error of the client means for the command."""
    from trialog.client import AccessDenied, ApiError, ServerFailed, Unreachable

    if isinstance(error, Unreachable):
        hint = "start one with `trialog up`, or name another with --url or TRIALOG_URL"
        return ServerProblem(f"{error}; {hint}", UNREACHABLE)
    if isinstance(error, AccessDenied):
        return ServerProblem(f"{error}; set TRIALOG_API_KEY", SERVER_ERROR)
    refused = isinstance(error, ApiError) and not isinstance(error, ServerFailed)
    return ServerProblem(str(error), BAD_INPUT if refused else SERVER_ERROR)


class _Waiting:
    """Says once that the server does not answer, when that takes longer than a moment."""

    def __init__(self, url: str) -> None:
        self._url, self._told = url, False

    def __call__(self, cause: str, waited_s: float) -> None:
        """Take note of one more attempt that failed."""
        if waited_s >= _TELL_AFTER_S and not self._told:
            self._told = True
            output.note(f"waiting for {self._url}: {cause}")
