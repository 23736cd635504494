"""The embedded stack: Postgres, NATS, Ray and our services as child processes, without Docker."""

from trialog.cli.stack.errors import (
    BadStackOptions,
    MachineUnfit,
    ProcessNotReady,
    StackError,
    StackInUse,
    UnknownProcess,
)
from trialog.cli.stack.options import StackOptions
from trialog.cli.stack.stack import ProcessState, Stack
from trialog.cli.stack.supervisor import ProcessExit, StackEvent

__all__ = [
    "BadStackOptions",
    "MachineUnfit",
    "ProcessExit",
    "ProcessNotReady",
    "ProcessState",
    "Stack",
    "StackError",
    "StackEvent",
    "StackInUse",
    "StackOptions",
    "UnknownProcess",
]
