"""The reference loop, written once more from its rules, in one process and with no regard to us.

It imports nothing of Trialog: what the services do is compared with it at any size.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass, field
from typing import Any

RUBRICS = {"v1": (1.0, 0.3, 0.1), "v2-efficiency": (1.0, 1.0, 0.5)}


@dataclass
class Settings:
    n_steps: int = 3
    n_worlds: int = 3
    prompts_per_step: int = 3
    n_samples: int = 2
    max_turns: int = 6
    lr: float = 2.0
    rubric: str = "v1"
    seed: int | None = None
    flaky: float = 0.0
    judge_flake: float = 0.0
    skipped: frozenset[str] = frozenset()
    # Weights of criteria that are asked for one by one: no noise, whatever the rubric's name.
    criteria: tuple[float, float, float] | None = None


@dataclass
class Outcome:
    trials: dict[str, dict[str, Any]] = field(default_factory=dict)
    priors: list[dict[str, list[float]]] = field(default_factory=list)
    mean_rewards: list[float] = field(default_factory=list)
    mean_turns: list[float] = field(default_factory=list)
    generate_retried: set[str] = field(default_factory=set)
    judge_retried: set[str] = field(default_factory=set)


def rng(settings: Settings, *parts: str) -> random.Random:
    if settings.seed is not None:
        parts = (*parts, str(settings.seed))
    return random.Random(int(hashlib.sha256("|".join(parts).encode()).hexdigest()[:8], 16))


def world(settings: Settings, w: str) -> tuple[int, str]:
    r = rng(settings, "world", w)
    doc = r.randrange(8)
    return doc, hashlib.sha256(f"{w}-secret-{r.randrange(10**6):06d}".encode()).hexdigest()


def generate(settings: Settings, t: str, w: str, prior: list[float]) -> dict[str, Any]:
    attempt = 0
    while True:
        r = rng(settings, "trial", t)
        if attempt == 0 and r.random() < settings.flaky:
            attempt = 1
            continue
        remaining, order = list(range(8)), []
        while remaining:
            doc = r.choices(remaining, [prior[i] for i in remaining], k=1)[0]
            remaining.remove(doc)
            order.append(doc)
        secret, digest = world(settings, w)
        turns: list[dict[str, Any]] = []
        answer = None
        for doc in order[: settings.max_turns]:
            turns.append({"doc": doc, "found": doc == secret})
            if doc == secret:
                answer = digest
                break
        files = ["answer.txt"] + (["scratch.tmp"] if r.random() < 0.3 else [])
        return {"attempt": attempt, "turns": turns, "answer": answer, "files": files}


def judge(settings: Settings, t: str, w: str, trajectory: dict[str, Any]) -> dict[str, Any]:
    r = rng(settings, "judge", t, settings.rubric)
    secret, digest = world(settings, w)
    correct = 1 if trajectory["answer"] == digest else 0
    efficiency = max(0, 1 - (len(trajectory["turns"]) - 1) / 8)
    tidy = 1 if trajectory["files"] == ["answer.txt"] else 0
    a, b, c = settings.criteria or RUBRICS[settings.rubric]
    score = a * correct + b * efficiency + c * tidy
    if settings.criteria is None:
        score = round(score + r.uniform(-0.05, 0.05), 3)
    return {
        "judge_score": score,
        "reward": round(correct + score, 3),
        "verified": bool(correct),
        "found_doc": secret if correct else None,
    }


def run(settings: Settings, begun: Outcome | None = None) -> Outcome:
    """Run the loop from its beginning, or on from steps that were taken as they stand."""
    out = begun or Outcome()
    prior = {f"w{w}": [1.0] * 8 for w in range(settings.n_worlds)}
    if out.priors:
        prior = {w: list(values) for w, values in out.priors[-1].items()}
    for step in range(len(out.priors), settings.n_steps):
        rewards: list[tuple[str, str, dict[str, Any]]] = []
        for p in range(settings.prompts_per_step):
            for n in range(settings.n_samples):
                t, w = f"s{step}-p{p}-n{n}", f"w{p % settings.n_worlds}"
                if t in settings.skipped:
                    continue
                made = generate(settings, t, w, prior[w])
                made |= judge(settings, t, w, made)
                made |= {"world_id": w, "step": step, "n_turns": len(made["turns"])}
                out.trials[t] = made
                if made["attempt"]:
                    out.generate_retried.add(t)
                if rng(settings, "flake", t).random() < settings.judge_flake:
                    out.judge_retried.add(t)
                rewards.append((t, w, made))
        rewards.sort(key=lambda row: row[0])
        for _, w, made in rewards:
            if made["found_doc"] is not None and made["reward"] > 0:
                prior[w][made["found_doc"]] += settings.lr * made["reward"]
        out.priors.append({w: list(values) for w, values in prior.items()})
        out.mean_rewards.append(sum(m["reward"] for *_, m in rewards) / max(len(rewards), 1))
        out.mean_turns.append(sum(m["n_turns"] for *_, m in rewards) / max(len(rewards), 1))
    return out
