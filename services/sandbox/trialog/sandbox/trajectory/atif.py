"""The Agent Trajectory Interchange Format, version 1.8: the document of one try.

Its fields and their rules are the format's: steps count from 1, a result names a call of its own
step, what only an agent can have is left out elsewhere, and a document has at least one step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from trialog.sandbox.agent import Metrics
from trialog.sandbox.trajectory.log import Call, Recorder, Step

VERSION = "ATIF-v1.8"
_UNFINISHED = "did not end before the try was over"


@dataclass(frozen=True, slots=True)
class Actor:
    """Whose trajectory it is."""

    name: str
    version: str
    model_name: str | None = None


def document(session_id: str, actor: Actor, log: Recorder) -> dict[str, Any]:
    """Return the document of a try, ready for JSON: without what nobody said."""
    total = len(log.steps) + log.steps_left_out
    found: dict[str, Any] = {
        "schema_version": VERSION,
        "session_id": session_id,
        "agent": _said(asdict(actor)),
        "steps": [_step(number, step) for number, step in enumerate(log.steps, 1)],
        "final_metrics": _said(
            {f"total_{name}": value for name, value in asdict(log.totals).items()}
            | {"total_steps": total}
        ),
    }
    if log.steps_left_out or log.calls_left_out:
        found["notes"] = (
            f"{log.steps_left_out} of {total} steps and {log.calls_left_out} tool calls were left "
            "out: the trajectory is above the limits of what is kept"
        )
    return found


def _step(number: int, step: Step) -> dict[str, Any]:
    at = datetime.fromtimestamp(step.at, UTC).isoformat(timespec="milliseconds")
    found: dict[str, Any] = {
        "step_id": number,
        "timestamp": at.replace("+00:00", "Z"),
        "source": step.source,
        "message": step.text,
    }
    if step.calls:
        found["tool_calls"] = [
            {"tool_call_id": call.call_id, "function_name": call.name, "arguments": call.arguments}
            for call in step.calls
        ]
        found["observation"] = {"results": _results(step.calls)}
    return found | _said(
        {
            "reasoning_content": step.reasoning,
            "model_name": step.model_name,
            "metrics": None if step.metrics is None else _metrics(step.metrics),
            # Only a reply whose metrics are known is known to be one.
            "llm_call_count": None if step.metrics is None else 1,
        }
    )


def _results(calls: Sequence[Call]) -> list[dict[str, Any]]:
    return [
        {
            "source_call_id": call.call_id,
            "content": _UNFINISHED if call.result is None else call.result,
            **({} if call.exit_code is None else {"extra": {"exit_code": call.exit_code}}),
        }
        for call in calls
    ]


def _metrics(metrics: Metrics) -> dict[str, Any]:
    return _said(asdict(metrics))


def _said(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
