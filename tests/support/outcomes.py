"""What becomes of a run's work: agents, judge and trainer as the tests' own model has them.

Facts carry the run's real action keys, so what they say can be recovered by content.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from support import reference
from trialog.proto import events as ev
from trialog.proto import runspec
from trialog.proto.canonical import bytes_digest, canonical, digest
from trialog.proto.ids import parse_trial_id
from trialog.proto.keys import Asked, Keys, model_of
from trialog.proto.runspec import RunSpec, world_of

Blobs = dict[str, bytes]
PRICE = ev.Bill(calls=1, prompt_tokens=40, completion_tokens=20, cost_microusd=600)


def settings_of(spec: RunSpec) -> reference.Settings:
    """Return the model's settings for a run."""
    rubric, faults = spec.resolved_rubric, spec.faults
    weights = None
    if rubric.scoring == "per_criterion":
        correct, efficiency, tidiness = rubric.weights.values()
        weights = (correct, efficiency, tidiness)
    return reference.Settings(
        n_steps=spec.n_steps,
        n_worlds=spec.n_worlds,
        prompts_per_step=spec.prompts_per_step,
        n_samples=spec.n_samples,
        max_turns=spec.max_turns,
        lr=spec.lr,
        rubric=rubric.name,
        seed=spec.seed,
        flaky=faults.flaky_trial_rate,
        judge_flake=faults.judge_flake_rate,
        skipped=frozenset(faults.always_fail),
        criteria=weights,
    )


def one_by_one(name: str = "one-by-one", *weights: float, **prompts: str) -> dict[str, Any]:
    """Return a rubric whose three criteria are asked for one by one. ``prompts``: other texts."""
    names = ("correct", "efficiency", "tidiness")
    criteria = [
        {"name": each, "weight": weight, "prompt": prompts.get(each, f"Was it {each}?")}
        for each, weight in zip(names, weights or (1.0, 0.3, 0.1), strict=True)
    ]
    return {"name": name, "scoring": "per_criterion", "criteria": criteria}


class Outcomes:
    """The facts that work of one run ends with, given those that offered it."""

    def __init__(self, request: ev.RunRequested, blobs: Blobs) -> None:
        self.request, self.blobs = request, blobs
        self.spec = runspec.load(request.spec)
        self.keys = Keys(self.spec, request.code)
        self.model = settings_of(self.spec)

    @property
    def rescores(self) -> bool:
        """Whether the run only judges."""
        return self.request.mode == "rescore"

    def keep(self, data: bytes) -> str:
        """Keep bytes; return their digest."""
        self.blobs[bytes_digest(data)] = data
        return bytes_digest(data)

    def fails(self, trial_id: str, injected: int) -> bool:
        """Whether an attempt at a trial fails, after so many that were made to."""
        if trial_id in self.model.skipped:
            return True
        drawn = reference.rng(self.model, "trial", trial_id).random()
        return injected == 0 and drawn < self.model.flaky

    def flakes(self, trial_id: str, injected: int) -> bool:
        """Whether an attempt at a judgment fails, after so many that were made to."""
        drawn = reference.rng(self.model, "flake", trial_id).random()
        return injected == 0 and drawn < self.model.judge_flake

    def built(self, origin: ev.WorldRequested) -> ev.WorldBuilt:
        """A world stands; its content depends on the seed."""
        made = digest([origin.world_id, self.spec.seed])
        return ev.WorldBuilt(origin.world_id, self.keys.world(origin.world_id), made)

    def tried(self, origin: ev.TrialRequested, injected: int) -> ev.TrajectoryRecorded:
        """An agent has tried."""
        trial_id = origin.trial_id
        prior = json.loads(self.blobs[origin.weights_digest])["doc_prior"][origin.world_id]
        made = reference.generate(self.model, trial_id, origin.world_id, prior)
        assert made["attempt"] == injected
        return ev.TrajectoryRecorded(
            trial_id,
            origin.step,
            self.keys.generate(trial_id, origin.world_digest, origin.weights_digest),
            digest({key: made[key] for key in ("turns", "answer", "files")}),
            self.keep(canonical(made)),
            len(made["turns"]),
            made["attempt"],
        )

    def verified(self, origin: ev.TrajectoryRecorded) -> ev.TrialVerified:
        """What the agent left was checked."""
        made = json.loads(self.blobs[origin.blob])
        secret, answer = reference.world(self.model, self.world_of(origin.trial_id))
        right = made["answer"] == answer
        return ev.TrialVerified(
            origin.trial_id,
            origin.step,
            self.keys.verify(self.world_of(origin.trial_id), origin.digest),
            right,
            secret if right else None,
            origin.digest,
            origin.blob,
            origin.n_turns,
        )

    def reply(self, trial_id: str, asked: Asked, key: str, ordinal: int) -> ev.JudgeCallRecorded:
        """The judge has answered a call."""
        return ev.JudgeCallRecorded(
            trial_id,
            key,
            ordinal,
            asked.criterion,
            model_of(self.spec)["model"],
            True,
            0.5,
            PRICE.prompt_tokens,
            PRICE.completion_tokens,
            PRICE.cost_microusd,
            1.0,
        )

    def judged(self, origin: ev.TrialVerified, calls: int, found: int) -> ev.Judged:
        """A trial has its reward, from so many calls, of which so many were on the log."""
        made = json.loads(self.blobs[origin.blob])
        world = self.world_of(origin.trial_id)
        scored = reference.judge(self.model, origin.trial_id, world, made)
        outcome = scored["judge_score"], scored["reward"], origin.found_doc, origin.n_turns
        return ev.Judged(
            origin.trial_id,
            origin.step,
            world,
            self.keys.judge(origin),
            digest([origin.trial_id, *outcome]),
            scored["judge_score"],
            scored["reward"],
            origin.verified,
            origin.found_doc,
            origin.n_turns,
            bill=bill_of(calls),
            memo=bill_of(found),
        )

    def applied(self, order: ev.StepRequested) -> ev.StepApplied:
        """A step is in the weights."""
        rows = json.loads(self.blobs[order.manifest])
        weights = json.loads(self.blobs[order.prior_digest])
        for row in rows:
            if row["found_doc"] is not None and row["reward"] > 0:
                prior = weights["doc_prior"][row["world_id"]]
                prior[row["found_doc"]] += self.spec.lr * row["reward"]
        return ev.StepApplied(
            step=order.step,
            action_key=self.keys.step(
                order.step, order.prior_digest, [row["digest"] for row in rows]
            ),
            trained=True,
            prior_digest=order.prior_digest,
            digest=self.keep(canonical(weights)),
            version=order.step + 1,
            n_trials=len(rows),
            n_skipped=order.n_skipped,
            mean_reward=_mean([row["reward"] for row in rows]),
            mean_turns=_mean([row["n_turns"] for row in rows]),
            inputs_key=order.inputs_key,
            bill=order.bill,
        )

    def world_of(self, trial_id: str) -> str:
        """Return the world that a trial plays in."""
        return world_of(self.spec, parse_trial_id(trial_id))


def bill_of(calls: int) -> ev.Bill:
    """Return what so many calls cost."""
    return ev.Bill(
        calls,
        calls * PRICE.prompt_tokens,
        calls * PRICE.completion_tokens,
        calls * PRICE.cost_microusd,
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
