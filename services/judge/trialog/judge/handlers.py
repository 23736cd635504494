"""What a judge does with its work: make each call once, then turn the replies into a reward."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from trialog.judge import scoring
from trialog.judge.calls import Answer, Calls
from trialog.judge.errors import JudgeRefusedError, ScoringError
from trialog.judge.evidence import Evidence
from trialog.judge.scoring import Verdict
from trialog.proto import events as ev
from trialog.proto.ids import parse_trial_id
from trialog.proto.keys import model_of
from trialog.proto.runspec import world_of
from trialog.spine import lineage
from trialog.spine.blobs import BlobStore
from trialog.spine.consumer import AttemptFailedError, Held
from trialog.spine.runs import Run


class Handlers:
    """The handler of the judge's queue."""

    def __init__(self, calls: Calls, blobs: BlobStore) -> None:
        self._calls = calls
        self._blobs = blobs

    async def on_trial_verified(self, held: Held) -> None:
        """Judge a verified trial under its run's rubric."""
        limit_s = held.run.spec.timeouts.judge_s
        try:
            async with asyncio.timeout(limit_s):
                await self._judge(held)
        except TimeoutError as error:
            raise AttemptFailedError("timeout", f"judging took more than {limit_s:g} s") from error
        except JudgeRefusedError as error:
            raise AttemptFailedError("task", str(error)) from error
        except ScoringError as error:
            raise AttemptFailedError("infrastructure", str(error)) from error

    async def _judge(self, held: Held) -> None:
        fact = held.origin
        assert isinstance(fact, ev.TrialVerified)
        if (kept := await _recovered(held, fact)) is not None:
            await held.finish(kept)
            return
        spec = held.run.spec
        rubric = spec.resolved_rubric
        evidence = await self._evidence(fact, needed=rubric.scoring != "check")
        model = model_of(spec)
        answers: dict[str, Answer] = {}
        for asked, key in held.run.keys.calls(fact):
            request = {"model": model, **scoring.request_of(asked, evidence)}
            call = scoring.Call(asked.criterion, key, request)
            answers[call.criterion] = await self._calls.ask(held, fact.trial_id, call)
        if scoring.flakes(fact.trial_id, held.injected, spec.faults.judge_flake_rate, spec.seed):
            raise AttemptFailedError("injected", "the judge flaked after its call was recorded")
        verdicts = {criterion: _verdict(answer.reply) for criterion, answer in answers.items()}
        judgment = scoring.judgment(rubric, evidence, verdicts)
        await held.finish(_judged(held.run, fact, judgment, list(answers.values())))

    async def _evidence(self, fact: ev.TrialVerified, *, needed: bool) -> Evidence:
        """Return what is judged; deterministic checks need no trajectory."""
        trajectory: dict[str, Any] = {}
        if needed:
            kept = msgspec.json.decode(await self._blobs.get(fact.blob))
            trajectory = {key: kept[key] for key in ("turns", "answer", "files")}
        return Evidence(
            fact.trial_id, trajectory, fact.verified, fact.found_doc, fact.n_turns, fact.reward
        )


async def _recovered(held: Held, fact: ev.TrialVerified) -> ev.Judged | None:
    """Return the judgment that an ancestor has of the same: its calls are paid for."""
    run, slot = held.run, f"end:{fact.trial_id}"
    key, ancestors = run.keys.judge(fact), run.request.lineage
    kept = await lineage.recovered(held.log, ancestors, slot, key, ev.Judged)
    if kept is None:
        return None
    return replace(kept, world_id=_world_of(run, fact), unpinned=_is_unpinned(run, fact))


def _world_of(run: Run, fact: ev.TrialVerified) -> str:
    return world_of(run.spec, parse_trial_id(fact.trial_id))


def _is_unpinned(run: Run, fact: ev.TrialVerified) -> bool:
    return fact.unpinned or bool(run.other)


def _verdict(reply: ev.JudgeCallRecorded) -> Verdict:
    assert reply.score is not None
    return Verdict(reply.score, reply.scores)


def _bill(replies: Iterable[ev.JudgeCallRecorded]) -> ev.Bill:
    paid = list(replies)
    return ev.Bill(
        len(paid),
        sum(reply.prompt_tokens for reply in paid),
        sum(reply.completion_tokens for reply in paid),
        sum(reply.cost_microusd for reply in paid),
    )


def _judged(
    run: Run, fact: ev.TrialVerified, judgment: scoring.Judgment, answers: list[Answer]
) -> ev.Judged:
    return ev.Judged(
        fact.trial_id,
        fact.step,
        _world_of(run, fact),
        run.keys.judge(fact),
        judgment.digest,
        judgment.score,
        judgment.reward,
        fact.verified,
        fact.found_doc,
        fact.n_turns,
        judgment.scores,
        _bill(answer.reply for answer in answers),
        _bill(answer.reply for answer in answers if not answer.made),
        unpinned=_is_unpinned(run, fact),
    )
