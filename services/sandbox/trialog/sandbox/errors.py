"""Everything the sandbox can refuse, drawn as one tree.

``failure`` is the class that goes on the log when the error ends an attempt.

    SandboxError            infrastructure
      ProviderUnavailableError
      InvalidNameError
      SandboxGoneError
      SandboxBusyError
      ResultDroppedError
      FileRefusedError      agent
        FileMissingError
      SnapshotRefusedError  agent
    WorldError              task
      ImageError
    TaskError               task (see there)
    AgentError              agent
      AgentUnavailableError
      CommandFailedError
      TrialTimedOutError    timeout
      InjectedFault         injected
"""

from __future__ import annotations

from typing import ClassVar, Literal

Failure = Literal["infrastructure", "agent", "task", "timeout", "injected"]


class SandboxError(Exception):
    """The isolation itself failed or refused."""

    failure: ClassVar[Failure] = "infrastructure"


class ProviderUnavailableError(SandboxError):
    """A provider cannot isolate on this machine; the message says why and what mends it."""


class InvalidNameError(SandboxError, ValueError):
    """A sandbox id, exec id, digest or path that is not acceptable."""


class SandboxGoneError(SandboxError):
    """The sandbox does not exist, has ended, or died during the call."""


class SandboxBusyError(SandboxError):
    """Another live worker of this host owns the sandbox."""


class ResultDroppedError(SandboxError):
    """The command did run, but its kept result was dropped to bound memory; it is not rerun."""


class FileRefusedError(SandboxError):
    """A file inside is not what it may be: not regular, behind a symlink, or above the limit."""

    failure: ClassVar[Failure] = "agent"


class FileMissingError(FileRefusedError):
    """There is no such file inside."""


class SnapshotRefusedError(SandboxError):
    """What the agent left behind is above the caps on entries, depth or bytes."""

    failure: ClassVar[Failure] = "agent"


class WorldError(Exception):
    """A world's archive is unsafe, broken, or not the one its digest names."""

    failure: ClassVar[Failure] = "task"


class ImageError(WorldError):
    """An image cannot be had or built: its base is not declared, or a build step failed."""


class TaskError(Exception):
    """A task's outcome that is no reward. ``name`` is Harbor's class of it, ``record`` the blob of
    what was left behind, if anything was kept."""

    failure: ClassVar[Failure] = "task"

    def __init__(self, name: str, message: str, record: str = "") -> None:
        super().__init__(message)
        self.name, self.record = name, record


class AgentError(Exception):
    """The agent's try failed, not the sandbox. ``name`` is what a task's records call it: Harbor's
    name where it has one, or that of what the agent's own code raised, which is the cause then;
    ``record`` is the blob of where."""

    failure: ClassVar[Failure] = "agent"
    name: str = "AgentError"
    record: str = ""


class AgentUnavailableError(AgentError):
    """The agent cannot be made here: its module, its class or its options are not as they must be.

    The message names which, and what mends it.
    """

    name = "AgentUnavailableError"


class CommandFailedError(AgentError):
    """A command that the agent depends on ended with a non-zero exit code."""

    name = "NonZeroAgentExitCodeError"


class TrialTimedOutError(AgentError):
    """The trial ran over its time; its command was killed with all its children."""

    failure: ClassVar[Failure] = "timeout"
    name = "AgentTimeoutError"


class InjectedFault(AgentError):
    """A failure that the run asked for."""

    failure: ClassVar[Failure] = "injected"
