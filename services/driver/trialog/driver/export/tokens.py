"""Token ids of a trajectory as training wants them. Pure.

A turn's prompt holds all that came before. Where it begins with the prompt and completion of the
turn before, both are one sequence: what lies between is masked, and nothing is tokenized anew.
Where it does not (a summary, a sub-agent, a new step of a task), another sequence begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from trialog.driver.export.atif import steps_of
from trialog.driver.export.kept import Json

_MOST_ID = 2**31 - 1


class Sampled(NamedTuple):
    """What the policy sampled in a turn: the ids of its prompt and completion, and the
    log-probability of each of the latter, None where none were recorded. ``trained``: False for a
    turn that was copied from elsewhere."""

    prompt: list[int]
    completion: list[int]
    logprobs: list[float] | None
    trained: bool = True


@dataclass(slots=True)
class TokenSequence:
    """A prompt and all that follows it. ``mask`` is 1 on the policy's own tokens; log-probabilities
    are None on the others, and where none were recorded."""

    prompt: list[int]
    completion: list[int] = field(default_factory=list[int])
    mask: list[int] = field(default_factory=list[int])
    logprobs: list[float | None] = field(default_factory=list[float | None])

    def shown(self) -> Json:
        """Return it as a row's columns."""
        recorded = any(one is not None for one in self.logprobs)
        return {
            "prompt_token_ids": self.prompt,
            "completion_token_ids": self.completion,
            "loss_mask": self.mask,
            "logprobs": self.logprobs if recorded else None,
        }


def sampled(step: Json) -> Sampled | None:
    """Return what was sampled in a step of a trajectory, None where no ids were recorded."""
    metrics = step.get("metrics")
    if step.get("source") != "agent" or not isinstance(metrics, dict):
        return None
    told = cast("Json", metrics)
    prompt, completion = _ids(told.get("prompt_token_ids")), _ids(told.get("completion_token_ids"))
    if prompt is None or completion is None:
        return None
    logprobs = _floats(told.get("logprobs"), len(completion))
    return Sampled(prompt, completion, logprobs, step.get("is_copied_context") is not True)


def sequences(turns: Sequence[Sampled]) -> list[TokenSequence]:
    """Return the sequences that turns make, in their order."""
    found: list[TokenSequence] = []
    for turn in turns:
        between = _after(found[-1], turn.prompt) if found else None
        if between is None:
            found.append(TokenSequence(turn.prompt))
            between = []
        last, n = found[-1], len(turn.completion)
        last.completion += between + turn.completion
        last.mask += [0] * len(between) + [int(turn.trained)] * n
        last.logprobs += [None] * len(between)
        last.logprobs += turn.logprobs if turn.logprobs and turn.trained else [None] * n
    return found


def rollouts(documents: Sequence[Json]) -> list[Json]:
    """Return token ids as Harbor's agents tell them: turn by turn, a document each."""
    found: list[Json] = []
    for document in documents:
        turns = list(_sampled_in(document))
        if turns:
            told: Json = {
                "prompt_token_ids": [turn.prompt for turn in turns],
                "completion_token_ids": [turn.completion for turn in turns],
            }
            if all(turn.logprobs is not None for turn in turns):
                told["logprobs"] = [turn.logprobs for turn in turns]
            found.append(told)
    return found


def _sampled_in(document: Json) -> Iterator[Sampled]:
    for step in steps_of(document):
        turn = sampled(step)
        if turn is not None:
            yield turn


def _after(before: TokenSequence, prompt: list[int]) -> list[int] | None:
    """Return what a prompt adds to a sequence, None where it does not begin with it."""
    n_prompt, n_all = len(before.prompt), len(before.prompt) + len(before.completion)
    if prompt[:n_prompt] != before.prompt or prompt[n_prompt:n_all] != before.completion:
        return None
    return prompt[n_all:]


def _ids(value: Any) -> list[int] | None:
    if not isinstance(value, list) or not value:
        return None
    ids = cast("list[Any]", value)
    sound = all(type(one) is int and 0 <= one <= _MOST_ID for one in ids)
    return cast("list[int]", ids) if sound else None


def _floats(value: Any, n: int) -> list[float] | None:
    """Return log-probabilities when there is one a token; JSON has no infinity."""
    if not isinstance(value, list):
        return None
    told = cast("list[Any]", value)
    if len(told) != n or not all(isinstance(one, int | float) for one in told):
        return None
    return [float(one) for one in told]
