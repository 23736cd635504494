"""What can go wrong when talking to a driver.

```
TrialogError
├── Unreachable           no answer within the time that was allowed
├── UnexpectedAnswer      something answered, but not as Trialog's API does
└── ApiError              the driver refused; carries the problem (RFC 9457)
    ├── AccessDenied      401, 403: the API key is missing or wrong
    ├── NotFound          404: no such run, trial or version
    ├── Conflict          409: not in the run's present state
    ├── InvalidRequest    400, 413, 415, 422 ...: the request cannot be meant
    └── ServerFailed      5xx: the driver's fault
```
"""

from __future__ import annotations

from dataclasses import dataclass


class TrialogError(Exception):
    """Base of everything that the client raises."""


class Unreachable(TrialogError):
    """No driver answered at the address within the time that was allowed."""

    def __init__(self, url: str, cause: str, waited_s: float) -> None:
        super().__init__(f"no driver answers at {url}: {cause} (tried for {waited_s:.0f} s)")
        self.url = url
        self.cause = cause


class UnexpectedAnswer(TrialogError):
    """Whatever answered does not speak Trialog's API."""


@dataclass(frozen=True)
class FieldError:
    """One thing that is wrong in a request; ``field`` is a dotted path, empty for the whole."""

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


@dataclass(frozen=True)
class Problem:
    """An answer of type application/problem+json (RFC 9457)."""

    status: int
    title: str
    detail: str = ""
    type: str = "about:blank"
    instance: str = ""
    errors: tuple[FieldError, ...] = ()


class ApiError(TrialogError):
    """The driver answered with a problem."""

    def __init__(self, problem: Problem) -> None:
        text = problem.title or "error"
        # Where the fields are named, the detail only repeats them.
        if problem.detail and problem.detail != problem.title and not problem.errors:
            text += f": {problem.detail}"
        super().__init__("\n".join([text, *(f"  {error}" for error in problem.errors)]))
        self.problem = problem

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.problem.status


class AccessDenied(ApiError):
    """The API key is missing or wrong."""


class NotFound(ApiError):
    """There is no such run, trial or version."""


class Conflict(ApiError):
    """The run's present state does not allow it."""


class InvalidRequest(ApiError):
    """The request cannot be meant: ``problem.errors`` names the fields."""


class ServerFailed(ApiError):
    """The driver failed."""


def api_error(problem: Problem) -> ApiError:
    """Return the error class that fits a problem's status."""
    if problem.status in (401, 403):
        return AccessDenied(problem)
    if problem.status == 404:
        return NotFound(problem)
    if problem.status == 409:
        return Conflict(problem)
    return ServerFailed(problem) if problem.status >= 500 else InvalidRequest(problem)
