"""Which server a command talks to, and what its failures mean for the exit code."""
# ruff: noqa: PLC0415 - a quick start: a command imports what it needs when it runs

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import TYPE_CHECKING, NamedTuple

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


class Server(NamedTuple):
    """A server's address, and why it is this one; ``origin`` is empty when the user named it."""

    url: str
    origin: str = ""

    def __str__(self) -> str:
        return f"{self.url} ({self.origin})" if self.origin else self.url

    @property
    def option(self) -> str:
        """What names this server to a later command, which might find another by itself."""
        return f" --url {self.url}" if self.origin else ""


def find_server(url: str | None) -> Server:
    """Return the server that was given, that of the running stack, or the default.

    Of several stacks it is the one started last, which is said.
    """
    if url:
        return Server(url)
    stacks = discovery.running()
    if stacks:
        found = Server(stacks[0].url, f"the stack on {stacks[0].data}, started last")
        if len(stacks) > 1:
            output.note(f"{len(stacks)} stacks run: asking {found}; name another with --url")
        return found
    from trialog.client import DEFAULT_URL

    return Server(DEFAULT_URL, "the default")


@contextlib.contextmanager
def server(
    url: Server | str | None, *, patience_s: float = PATIENCE_S, on_wait: OnWait | None = None
) -> Generator[TrialogClient]:
    """Give a client of a server, or of the one that `find_server` finds for an address.

    Its errors become ServerProblem with an exit code.
    """
    from trialog.client import Patience, TrialogClient, TrialogError

    found = url if isinstance(url, Server) else find_server(url)
    patience = Patience(patience_s, on_wait or _Waiting(found))
    try:
        client = TrialogClient(found.url, patience=patience)
    except ValueError as error:
        raise BadInput(f"--url: {error}") from None
    try:
        with client:
            yield client
    except TrialogError as error:
        raise server_problem(error, found) from error


def server_problem(error: TrialogError, asked: Server | None = None) -> ServerProblem:
    """Return what an error of the client means for the command."""
    from trialog.client import AccessDenied, ApiError, NotFound, ServerFailed, Unreachable

    if isinstance(error, Unreachable):
        hint = "start one with `trialog up`, or name another with --url or TRIALOG_URL"
        return ServerProblem(f"{error}; {hint}", UNREACHABLE)
    if isinstance(error, AccessDenied):
        return ServerProblem(f"{error}; set TRIALOG_API_KEY", SERVER_ERROR)
    if isinstance(error, NotFound) and asked is not None:
        return ServerProblem(f"{error}; asked was {asked}", BAD_INPUT)
    refused = isinstance(error, ApiError) and not isinstance(error, ServerFailed)
    return ServerProblem(str(error), BAD_INPUT if refused else SERVER_ERROR)


class _Waiting:
    """Says once that the server does not answer, when that takes longer than a moment."""

    def __init__(self, asked: Server) -> None:
        self._asked, self._told = asked, False

    def __call__(self, cause: str, waited_s: float) -> None:
        """Take note of one more attempt that failed."""
        if waited_s >= _TELL_AFTER_S and not self._told:
            self._told = True
            output.note(f"waiting for {self._asked}: {cause}")
