"""What a run must come to, from the tests' own model of the loop and the settings of its line."""

from __future__ import annotations

import copy
import json
from collections import Counter
from dataclasses import replace
from typing import Any

from support import reference
from support.outcomes import Outcomes
from support.site import Site
from trialog.proto import events as ev
from trialog.proto.ids import parse_trial_id


def expected(site: Site, run_id: str) -> reference.Outcome:
    """Return what the model says of a run: on from the parent's steps where the run takes them as
    they stand; of one that only judges, the parent's trials under other rules."""
    run = site.outcomes[run_id]
    if run.request.mode == "rescore":
        return _rescored(site, run)
    out = reference.Outcome()
    for step in range(run.spec.n_steps):
        kept = _kept_by(site, run, step, out.priors)
        if kept is None:
            out = reference.run(replace(run.model, n_steps=step + 1), out)
            continue
        above = expected(site, kept)
        out.trials |= {t: made for t, made in above.trials.items() if step_of(t) == step}
        out.priors.append(copy.deepcopy(above.priors[step]))
        out.mean_rewards.append(above.mean_rewards[step])
    return out


def _kept_by(site: Site, run: Outcomes, step: int, priors: list[Any]) -> str | None:
    """Return the ancestor whose step a run takes although its own settings may say otherwise: its
    parent, below from_step; or one with the same settings that took it so itself."""
    if step < run.request.from_step:
        return run.request.parent
    for pin in run.request.lineage:
        other = site.outcomes[pin.run_id]
        applied = site.at(pin.run_id, f"step-applied:{step}")
        if applied is None or applied.position > pin.position:
            continue
        same = _settings(other) == _settings(run)
        if same and expected(site, pin.run_id).priors[:step] == priors:
            fact = applied.fact()
            assert isinstance(fact, ev.StepApplied)
            if step < other.request.from_step or (fact.trained and not fact.n_skipped):
                return pin.run_id
    return None


def _settings(run: Outcomes) -> Any:
    """Return what the outcome of a step depends on, its number and weights apart."""
    spec = run.spec
    shape = spec.n_worlds, spec.prompts_per_step, spec.n_samples, spec.max_turns, spec.seed
    rates = spec.faults.flaky_trial_rate
    judged = spec.resolved_rubric.content(), spec.judge
    code = run.request.code, spec.versions
    return shape, rates, judged, code, spec.agent, spec.learner, spec.lr


def _rescored(site: Site, run: Outcomes) -> reference.Outcome:
    assert run.request.parent is not None
    seen = trials_seen(site, run.request.lineage[0])
    out = reference.Outcome()
    for trial, made in sorted(expected(site, run.request.parent).trials.items()):
        if trial in seen:
            scored = reference.judge(run.model, trial, run.world_of(trial), made)
            out.trials[trial] = made | scored
    for step in range(run.spec.n_steps):
        rewards = [made["reward"] for t, made in out.trials.items() if step_of(t) == step]
        out.priors.append({f"w{w}": [1.0] * 8 for w in range(run.spec.n_worlds)})
        out.mean_rewards.append(sum(rewards) / len(rewards) if rewards else float("nan"))
    return out


def trials_seen(site: Site, parent: ev.Provenance) -> set[str]:
    """Return the trials that a run had a trajectory of at a position, its own or of a step that it
    had recovered whole."""
    events = [e for e in site.store.events_of(parent.run_id) if e.position <= parent.position]
    facts = [event.fact() for event in events]
    whole = {fact.step for fact in facts if isinstance(fact, ev.StepApplied) and fact.whole}
    tried = {fact.trial_id for fact in facts if isinstance(fact, ev.TrajectoryRecorded)}
    every = expected(site, parent.run_id).trials
    return tried | {trial for trial in every if step_of(trial) in whole}


def step_of(trial_id: str) -> int:
    """Return the step of a trial."""
    return parse_trial_id(trial_id).step


def assert_expected(site: Site, run_id: str) -> None:
    """Hold that a run completed, with the model's rewards and weights, and lost no trial."""
    model = expected(site, run_id)
    facts = site.facts(run=run_id)
    assert isinstance(facts[-1], ev.RunCompleted), facts[-1]
    applied = [fact for fact in facts if isinstance(fact, ev.StepApplied)]
    assert [fact.step for fact in applied] == list(range(site.outcomes[run_id].spec.n_steps))
    _assert_weights(site, run_id, applied, model)
    for fact in facts:
        if isinstance(fact, ev.Judged):
            assert fact.reward == model.trials[fact.trial_id]["reward"], fact
        elif isinstance(fact, ev.TrajectoryRecorded):
            made: dict[str, Any] = json.loads(site.blobs[fact.blob])
            assert made["turns"] == model.trials[fact.trial_id]["turns"], fact
    asked = [fact.trial_id for fact in facts if isinstance(fact, ev.TrialRequested)]
    ends = Counter(f.trial_id for f in facts if isinstance(f, ev.Judged | ev.TrialSkipped))
    assert sorted(ends) == sorted(asked) and set(ends.values()) <= {1}, "I3"
    whole = {fact.step for fact in applied if fact.whole}
    judged = {fact.trial_id for fact in facts if isinstance(fact, ev.Judged)}
    assert judged == {t for t in model.trials if step_of(t) not in whole}


def _assert_weights(
    site: Site, run_id: str, applied: list[ev.StepApplied], model: reference.Outcome
) -> None:
    prior = site.outcomes[run_id].request.initial_weights
    for fact in applied:
        got = json.loads(site.blobs[fact.digest])["doc_prior"]
        assert got == model.priors[fact.step], f"step {fact.step}"
        assert fact.prior_digest == prior, "I5"
        assert fact.version == fact.step + 1
        mean = model.mean_rewards[fact.step]
        assert fact.mean_reward == mean or (fact.mean_reward is None and mean != mean)
        prior = fact.digest
