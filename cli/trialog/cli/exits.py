"""Exit codes of the command, and the errors that carry them."""

from __future__ import annotations

OK = 0
NOT_MET = 1
BAD_INPUT = 2
UNREACHABLE = 3
SERVER_ERROR = 4
NO_STACK = 5
INTERRUPTED = 130
PIPE_CLOSED = 141  # as a shell tells SIGPIPE

HELP = """\
Exit codes: 0 done; 1 the run failed or was cancelled, or a claim of the demo failed; \
2 bad input (usage, a run file, an id that is not there, a request the server refuses); \
3 no server reached; 4 access denied, or the server failed; 5 the embedded stack did not start; \
130 interrupted; 141 what reads the output went away."""


class CommandError(Exception):
    """A failure that ends the command with an exit code; the message is for the user."""

    exit_code = NOT_MET


class BadInput(CommandError):
    """What the user gave cannot be meant."""

    exit_code = BAD_INPUT


class NoStack(CommandError):
    """The embedded stack is not installed or did not start."""

    exit_code = NO_STACK
