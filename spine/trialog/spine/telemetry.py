"""Structured logs with run and trial on every line, and the metrics of a process."""

from __future__ import annotations

import datetime
import json
import logging
import sys
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import MappingProxyType

from prometheus_client import Counter, Gauge, Histogram

# No run, trial or task id as a label: their series would never end.
WORK_DONE = Counter("trialog_work_total", "Pieces of work by how they ended.", ["kind", "ended"])
WORK_SECONDS = Histogram("trialog_work_seconds", "From claim to record.", ["kind"])
HELD = Gauge("trialog_work_held", "Pieces of work held now.", ["kind"])
BATCHES = Counter("trialog_log_batches_total", "Transactions of the group-commit writer.")
UNREADABLE = Counter("trialog_unreadable_messages_total", "Messages dropped unread.", ["kind"])
DEAD_LETTERS = Counter("trialog_dead_letters_total", "Work given up unhandled.", ["kind"])
MEMBERS = Counter("trialog_log_members_total", "Members written in those transactions.")


_NOISY = ("nats", "httpx", "httpcore", "asyncio", "uvicorn.access")
_root = logging.getLogger("trialog")


_about: ContextVar[Mapping[str, object]] = ContextVar("about", default=MappingProxyType({}))


def about(**words: object) -> None:
    """Put words on every line that this task and those it starts will write."""
    _about.set({**_about.get(), **words})


@dataclass(frozen=True, slots=True)
class Log:
    """A logger with words that stand on every line it writes: the run, the piece of work.

    Over the standard library's logging, whose lines and ours come out alike.
    """

    words: Mapping[str, object] = field(default_factory=dict[str, object])

    def bind(self, **words: object) -> Log:
        """Return a logger with more words."""
        return Log({**self.words, **words})

    def debug(self, event: str, **words: object) -> None:
        """Say what only a developer wants to know."""
        self._write(logging.DEBUG, event, words)

    def info(self, event: str, **words: object) -> None:
        """Say what happened."""
        self._write(logging.INFO, event, words)

    def warning(self, event: str, **words: object) -> None:
        """Say what will mend itself, or wants a look."""
        self._write(logging.WARNING, event, words)

    def error(self, event: str, exc_info: BaseException | None = None, **words: object) -> None:
        """Say what went wrong, with the traceback where there is an error."""
        self._write(logging.ERROR, event, words, exc_info)

    def _write(
        self,
        level: int,
        event: str,
        words: Mapping[str, object],
        error: BaseException | None = None,
    ) -> None:
        if _root.isEnabledFor(level):
            extra = {"words": {**_about.get(), **self.words, **words}}
            _root.log(level, "%s", event, exc_info=error, extra=extra)


class _JsonFormatter(logging.Formatter):
    """One JSON object a line, the service's name in each."""

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        line: dict[str, object] = {
            "event": record.getMessage(),
            **getattr(record, "words", _about.get()),
            "service": self._service,
            "level": record.levelname.lower(),
            "timestamp": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        text = json.dumps(line, default=str, ensure_ascii=False)
        # A lone surrogate, which UTF-8 cannot hold, becomes its JSON escape.
        return text.encode("utf-8", "backslashreplace").decode()


def configure(service: str, level: str) -> None:
    """Write JSON lines to stderr, ours and the libraries', with service and time."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter(service))
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    for noisy in _NOISY:
        logging.getLogger(noisy).setLevel(logging.WARNING)


def logger() -> Log:
    """Return a logger; bind run and trial where they are known."""
    return Log()
