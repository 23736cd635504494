"""The Python client of Trialog: ``TrialogClient``, ``AsyncTrialogClient`` and their errors."""

from trialog.client.asynchronous import AsyncTrialogClient
from trialog.client.blocking import TrialogClient
from trialog.client.calls import DEFAULT_URL
from trialog.client.errors import (
    AccessDenied,
    ApiError,
    Conflict,
    FieldError,
    InvalidRequest,
    NotFound,
    Problem,
    ServerFailed,
    TrialogError,
    UnexpectedAnswer,
    Unreachable,
)
from trialog.client.retry import Patience

__all__ = [
    "DEFAULT_URL",
    "AccessDenied",
    "ApiError",
    "AsyncTrialogClient",
    "Conflict",
    "FieldError",
    "InvalidRequest",
    "NotFound",
    "Patience",
    "Problem",
    "ServerFailed",
    "TrialogClient",
    "TrialogError",
    "UnexpectedAnswer",
    "Unreachable",
]
