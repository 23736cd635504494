"""Rows for training: one a trial, with what its policy was given, said and saw. Pure.

A row is as valid as its trial: without a verdict there is no reward, and no zero stands in for it.
Token ids are those that the model's server told; what none told is null, never tokenized anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import msgspec

from trialog.driver.export import atif
from trialog.driver.export.atif import steps_of
from trialog.driver.export.kept import Json, Kept, text_of
from trialog.driver.export.run import ExportedRun
from trialog.driver.export.tokens import Sampled, TokenSequence, sampled, sequences
from trialog.driver.views import Doc
from trialog.proto.ids import parse_trial_id

_ROLES = {"system": "system", "user": "user", "agent": "assistant"}


@dataclass(frozen=True, slots=True)
class Tried:
    """A trial with its trajectory: documents of ATIF, one a part; ``instructions`` as the agent was
    given them, one a part too."""

    doc: Doc
    kept: Kept
    documents: Sequence[Json]
    instructions: Sequence[str] = ()


def is_valid(doc: Doc) -> bool:
    """Whether a trial can be trained on: it was judged, so it has a reward, and a trajectory."""
    return doc["state"] == "judged" and doc["reward"] is not None and bool(doc["trajectory"])


def row(run: ExportedRun, tried: Tried) -> Json:
    """Return the row of a trial."""
    doc, name = tried.doc, parse_trial_id(tried.doc["trial_id"])
    turns = list(_turns(tried))
    known = [turn for _, turn in turns if turn is not None]
    found = sequences(known)
    return {
        "run_id": run.run_id,
        "step": name.step,
        "task": run.task_name(doc["trial_id"]),
        "trial_id": doc["trial_id"],
        "group_id": f"{run.run_id}/s{name.step}-p{name.prompt}",
        "sample": name.sample,
        "state": doc["state"],
        "instruction": "\n\n".join(_instructions(tried)),
        "prompt": _prompt(tried),
        "turns": [shown for shown, _ in turns],
        **_columns(found),
        "segments": [one.shown() for one in found] if len(found) > 1 else None,
        "reward": doc["reward"],
        "reward_valid": is_valid(doc),
        "rewards": doc["rewards"] or None,
        "scores": run.scores(doc) or None,
        "error": doc["error"],
        "mode": doc["mode"],
        "weights_version": doc["weights_version"],
    }


def _columns(found: Sequence[TokenSequence]) -> Json:
    """One sequence has columns of its own; several are no sequence, and none is null."""
    if len(found) == 1:
        return found[0].shown()
    names = ("prompt_token_ids", "completion_token_ids", "loss_mask", "logprobs")
    return dict.fromkeys(names)


def _turns(tried: Tried) -> Iterator[tuple[Json, Sampled | None]]:
    """Yield what each turn of the agent, and all that was said to it, is in a row."""
    parts = [part.step for part in tried.kept.parts] or [None]
    for part, document in zip(parts, tried.documents, strict=False):
        for step in _as_seen(document):
            yield _turn(step, part, tried.doc["weights_version"]), sampled(step)


def _turn(step: Json, part: str | None, weights_version: int) -> Json:
    extra = _dict(step.get("extra"))
    own = extra.get("weights_version")
    is_agent = step.get("source") == "agent"
    version = own if type(own) is int else weights_version
    return {
        "source": str(step.get("source")),
        "task_step": part,
        "text": text_of(step.get("message")),
        "reasoning": _text(step.get("reasoning_content")),
        "tool_calls": [_call(one) for one in _dicts(step.get("tool_calls"))],
        "observations": [_result(one) for one in _results(step)],
        "weights_version": version if is_agent else None,
    }


def _call(call: Json) -> Json:
    """Arguments are JSON text: what they hold differs from tool to tool."""
    arguments = msgspec.json.encode(call.get("arguments")).decode()
    name, call_id = call.get("function_name"), call.get("tool_call_id")
    return {"id": _text(call_id), "name": _text(name), "arguments": arguments}


def _result(result: Json) -> Json:
    return {"call_id": _text(result.get("source_call_id")), "text": text_of(result.get("content"))}


def _results(step: Json) -> list[Json]:
    return _dicts(_dict(step.get("observation")).get("results"))


def _as_seen(document: Json) -> list[Json]:
    """Return a document's steps as a model saw them. The instruction is recorded when the try
    begins, and an agent's system message after it: the prompt had that first."""
    steps = steps_of(document)
    agent = (n for n, step in enumerate(steps) if step.get("source") == "agent")
    n = next(agent, len(steps))
    return sorted(steps[:n], key=lambda step: step.get("source") != "system") + steps[n:]


def _prompt(tried: Tried) -> list[Json]:
    """Return the messages before the first turn of the agent."""
    messages: list[Json] = []
    for step in _as_seen(tried.documents[0]) if tried.documents else ():
        role = _ROLES.get(str(step.get("source")), "user")
        if role == "assistant":
            break
        messages.append({"role": role, "content": text_of(step.get("message"))})
    return messages or [{"role": "user", "content": text} for text in _instructions(tried)[:1]]


def _instructions(tried: Tried) -> Sequence[str]:
    """Return what the agent was told to do, at the steps that it came to; of the reference world
    the same in every trial."""
    played = max(1, len(tried.kept.parts))
    return tried.instructions[:played] or ([] if tried.kept.parts else [atif.INSTRUCTION])


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _dict(value: Any) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}


def _dicts(value: Any) -> list[Json]:
    found = cast("list[Any]", value) if isinstance(value, list) else []
    return [cast("Json", one) for one in found if isinstance(one, dict)]
