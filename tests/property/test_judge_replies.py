"""Whatever bytes a judge answers with, they are read, priced and kept."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from trialog.judge.clients import reply_of
from trialog.judge.replies import MAX_TOKENS, Prices
from trialog.proto import events as ev

CRITERION = {"criterion": {"name": "style", "prompt": None}}
WHOLE = {"rubric": {"name": "r", "weights": {"correct": 1.0, "style": 2.0}}}
numbers = st.one_of(st.floats(), st.integers(), st.just(2**53), st.just(-1), st.booleans())
values = st.recursive(
    st.one_of(st.none(), numbers, st.text()),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner)),
)
bodies = st.fixed_dictionaries(
    {},
    optional={
        "score": values,
        "scores": st.one_of(values, st.dictionaries(st.sampled_from(["correct", "style"]), values)),
        "usage": st.one_of(
            values,
            st.dictionaries(st.sampled_from(["prompt_tokens", "completion_tokens"]), values),
        ),
    },
).map(lambda body: json.dumps(body).encode())


@given(
    raw=st.one_of(st.binary(max_size=200), bodies),
    request=st.sampled_from([CRITERION, WHOLE]),
)
def test_no_reply_whatever_its_bytes_fails_on_its_way_to_the_log(
    raw: bytes, request: dict[str, Any]
) -> None:
    dear = Prices(1e6, 1e6)
    reply = reply_of({"model": {}, **request}, raw, prices=dear, latency_ms=1.0)
    assert 0 <= reply.prompt_tokens <= MAX_TOKENS
    fact = ev.JudgeCallRecorded(
        "s0-p0-n0",
        "c" * 64,
        0,
        "style",
        "m",
        reply.valid,
        reply.score,
        reply.prompt_tokens,
        reply.completion_tokens,
        reply.cost_microusd,
        reply.latency_ms,
        reply.scores,
    )
    again = ev.decode("JudgeCallRecorded", 1, ev.encode(fact))
    assert again == fact
