"""What comes of a step whose trials have all ended. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from trialog.driver.lineage import Lineage
from trialog.driver.state import RunState, Step
from trialog.proto import events as ev
from trialog.proto.canonical import bytes_digest, canonical
from trialog.proto.runspec import worlds_of
from trialog.proto.work import step_subject


def closed(state: RunState, step: Step, lineage: Lineage) -> tuple[list[ev.Fact], list[bytes]]:
    """Return the request for the optimizer step, with its result where an ancestor has it, or the
    result where there is nothing to train on; and the manifest to keep before them."""
    scored = sorted(_scored(state, step), key=lambda judged: judged.trial_id)
    digests = [judged.digest for judged in scored]
    key = state.keys.step(step.number, state.weights_digest, digests)
    # A skipped trial is tried again by a fork, and what other code made is not what the key says:
    # such a step is not recovered whole.
    whole = not step.n_skipped and not step.unpinned
    if not scored or state.rescoring or not state.trains:
        whole = whole and not state.rescoring and not state.trains
        return [_untrained(state, step, key, scored, whole)], []
    applied = lineage.recover(ev.StepApplied, step_subject(step.number), key)
    manifest = canonical([_manifest_row(judged) for judged in scored])
    request = ev.StepRequested(
        step.number,
        key,
        state.weights_digest,
        bytes_digest(manifest),
        len(scored),
        step.n_skipped,
        applied is not None,
        _inputs_key(state, step) if whole else "",
        _bill_of(scored),
    )
    if applied is None:
        return [request], [manifest]
    applied = replace(
        applied,
        n_skipped=request.n_skipped,
        inputs_key=request.inputs_key,
        bill=request.bill,
    )
    return [request, applied], [manifest]


def _inputs_key(state: RunState, step: Step) -> str:
    worlds = worlds_of(state.spec, step.number)
    return state.keys.step_inputs(step.number, state.weights_digest, worlds)


def _bill_of(scored: Sequence[ev.Judged]) -> ev.Bill:
    bills = [judged.bill for judged in scored]
    return ev.Bill(
        sum(bill.calls for bill in bills),
        sum(bill.prompt_tokens for bill in bills),
        sum(bill.completion_tokens for bill in bills),
        sum(bill.cost_microusd for bill in bills),
    )


def _untrained(
    state: RunState, step: Step, key: str, scored: Sequence[ev.Judged], whole: bool
) -> ev.StepApplied:
    """Return a step that leaves the weights as they are; means are over what was scored."""
    n = len(scored)
    return ev.StepApplied(
        step=step.number,
        action_key=key,
        trained=False,
        prior_digest=state.weights_digest,
        digest=state.weights_digest,
        version=state.weights_version + 1,
        n_trials=n,
        n_skipped=step.n_skipped,
        mean_reward=sum(judged.reward for judged in scored) / n if n else None,
        mean_turns=sum(judged.n_turns for judged in scored) / n if n else None,
        inputs_key=_inputs_key(state, step) if whole else "",
        bill=ev.Bill() if state.trains else _bill_of(scored),
    )


def _scored(state: RunState, step: Step) -> Iterator[ev.Judged]:
    """Yield the judgments that count: under min_group, only of groups that are large enough."""
    judged = [trial.judged for trial in step.trials.values() if trial.judged is not None]
    policy = state.spec.group_policy
    sizes: dict[str, int] = {}
    for one in judged:
        group = one.trial_id.rpartition("-")[0]
        sizes[group] = sizes.get(group, 0) + 1
    least = policy.min_size if policy.mode == "min_group" else 1
    return (one for one in judged if sizes[one.trial_id.rpartition("-")[0]] >= least)


def _manifest_row(judged: ev.Judged) -> dict[str, object]:
    return {
        "trial_id": judged.trial_id,
        "world_id": judged.world_id,
        "found_doc": judged.found_doc,
        "reward": judged.reward,
        "n_turns": judged.n_turns,
        "digest": judged.digest,
    }
