"""ATIF 1.8, the field's format of trajectories: documents of tasks, and ours of the reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, cast

from trialog.driver.export.kept import Json, Kept

VERSION: Final = "ATIF-v1.8"
INSTRUCTION: Final = (
    "One of the documents docs/doc-0.txt to docs/doc-7.txt holds the digest of a secret. Find it "
    "and write it to answer.txt."
)
_ANSWER = "answer.txt"


class Usage(NamedTuple):
    """What the models of a trajectory took; None where nobody told."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    cost_usd: float | None = None


def steps_of(document: Json | None) -> list[Json]:
    """Return the steps of a document; what is no step is left out."""
    found: Any = (document or {}).get("steps")
    steps = cast("list[Any]", found) if isinstance(found, list) else []
    return [cast("Json", one) for one in steps if isinstance(one, dict)]


def reference(kept: Kept, session_id: str, agent: str, version: str) -> Json:
    """Return the document of a trial in the reference world. Nothing of it is a model's: its policy
    draws the documents, so each turn is a call without a message."""
    steps = [_step("user", INSTRUCTION)]
    for number, turn in enumerate(kept.turns):
        doc, found = turn.get("doc"), bool(turn.get("found"))
        call = f"turn-{number}"
        steps.append(
            _step("agent", "")
            | _call(call, "read", {"path": f"docs/doc-{doc}.txt"})
            | _saw(call, "the secret" if found else "no secret")
        )
    if kept.answer is not None or kept.files:
        written = {"path": _ANSWER, "content": kept.answer or ""}
        steps.append(_step("agent", "") | _call("answer", "write", written))
    return whole(steps, session_id, agent, version)


def whole(steps: Sequence[Json], session_id: str, agent: str, version: str) -> Json:
    """Return a document of steps; they are numbered from 1."""
    return {
        "schema_version": VERSION,
        "session_id": session_id,
        "agent": {"name": agent, "version": version or "unknown"},
        "steps": [{"step_id": number, **step} for number, step in enumerate(steps, 1)],
        "final_metrics": {"total_steps": len(steps)},
    }


def nothing(session_id: str, agent: str, version: str) -> Json:
    """Return the document of a try of which nothing was kept; a document has at least a step."""
    step = _step("system", "No trajectory was kept.")
    return whole([step], session_id, agent, version)


def usage(documents: Sequence[Json]) -> Usage:
    """Return what the models took, summed over the steps that tell."""
    metrics = [
        cast("Json", step["metrics"])
        for document in documents
        for step in steps_of(document)
        if isinstance(step.get("metrics"), dict)
    ]
    return Usage(*(_sum(metrics, name) for name in Usage._fields))


def model_of(document: Json | None) -> str | None:
    """Return the model that a document names."""
    agent: Any = (document or {}).get("agent")
    name = cast("Json", agent).get("model_name") if isinstance(agent, dict) else None
    return name if isinstance(name, str) else None


def _step(source: str, message: str) -> Json:
    step: Json = {"source": source, "message": message}
    return step | {"llm_call_count": 0} if source == "agent" else step


def _call(call_id: str, name: str, arguments: Json) -> Json:
    call = {"tool_call_id": call_id, "function_name": name, "arguments": arguments}
    return {"tool_calls": [call]}


def _saw(call_id: str, content: str) -> Json:
    return {"observation": {"results": [{"source_call_id": call_id, "content": content}]}}


def _sum(metrics: Sequence[Json], name: str) -> Any:
    told = [value for one in metrics if isinstance(value := one.get(name), int | float)]
    return sum(told) if told else None
