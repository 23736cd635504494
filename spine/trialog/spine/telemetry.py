"""Structured logs with run and trial on every line, and the metrics of a process."""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog
from prometheus_client import Counter, Gauge, Histogram

Log = structlog.stdlib.BoundLogger

# No run, trial or task id as a label: their series would never end.
WORK_DONE = Counter("trialog_work_total", "Pieces of work by how they ended.", ["kind", "ended"])
WORK_SECONDS = Histogram("trialog_work_seconds", "From claim to record.", ["kind"])
HELD = Gauge("trialog_work_held", "Pieces of work held now.", ["kind"])
BATCHES = Counter("trialog_log_batches_total", "Transactions of the group-commit writer.")
UNREADABLE = Counter("trialog_unreadable_messages_total", "Messages dropped unread.", ["kind"])
DEAD_LETTERS = Counter("trialog_dead_letters_total", "Work given up unhandled.", ["kind"])
MEMBERS = Counter("trialog_log_members_total", "Members written in those transactions.")


def configure(service: str, level: str) -> None:
    """Write JSON lines to stderr, ours and the libraries', with service and time."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    for noisy in ("nats", "httpx", "httpcore", "asyncio", "uvicorn.access"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[level.upper()]
        ),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(service=service)


def logger() -> Log:
    """Return a logger; bind run and trial where they are known."""
    return structlog.get_logger()
