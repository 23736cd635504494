"""Both clients on forks: what is sent, once, and what comes back."""

from collections.abc import Iterator

import pytest
from support.fake_api import RUN, FakeDriver, Served, serve
from support.fake_forks import plan_of, planned, tree_run
from trialog.client import AsyncTrialogClient, InvalidRequest, NotFound, Patience, TrialogClient
from trialog.driver.api.compare_schemas import Comparison
from trialog.driver.api.examples import EXAMPLES

NOBODY = "r-qqqqqqqqqqqqqqqq"


@pytest.fixture
def served() -> Iterator[Served]:
    with serve(FakeDriver()) as server:
        driver = server.driver
        driver.add_run()
        driver.forks.plan = plan_of(RUN, [planned(0, judge=(0, 6, 0, "rubric digest changed"))])
        driver.forks.comparison = EXAMPLES[Comparison]
        driver.forks.lineage = {"run_id": RUN, "root": RUN, "ancestors": []} | {
            "runs": [tree_run(RUN, None), tree_run(NOBODY, RUN)]
        }
        yield server


def test_forks_are_planned_made_once_and_compared(served: Served):
    driver = served.driver
    with TrialogClient(served.url, patience=Patience(10)) as client:
        plan = client.plan_fork(RUN, {"lr": 1.0}, rubric="v1", mode="rescore")
        assert plan["totals"]["judge"]["executed"] == 6
        driver.failures = [503]
        made = client.fork(RUN, {"from_step": 1}, rubric="v1@2")
        assert (made["parent"], made["state"]) == (RUN, "running")
        assert driver.forks.asked == [
            ({"rubric": "v1", "mode": "rescore", "dry_run": "true"}, {"lr": 1.0}),
            ({"rubric": "v1@2"}, {"from_step": 1}),
        ]
        keys = [h.get("idempotency-key") for h in driver.seen("POST", f"/runs/{RUN}/fork")]
        assert keys[0] is None
        assert keys[1] is not None and keys[1] == keys[2], "sent again, it is the same fork"
        client.fork(RUN, idempotency_key="nightly")
        assert driver.seen("POST", f"/runs/{RUN}/fork")[-1]["idempotency-key"] == "nightly"
        page = client.get_lineage(RUN, limit=1)
        assert [run["run_id"] for run in page["runs"]] == [RUN]
        rest = client.get_lineage(RUN, cursor=page["next_cursor"])
        assert [run["run_id"] for run in rest["runs"]] == [NOBODY]
        compared = client.compare(RUN, RUN, step=0, limit=5)
        assert compared["totals"] is not None and compared["totals"]["delta"] == 0.796167
        assert client.compare(RUN, RUN, step=7)["trials"] == []
        with pytest.raises(InvalidRequest, match="from_step: is beyond"):
            client.fork(RUN, {"from_step": 9})
        for call in (client.fork, client.plan_fork, client.get_lineage):
            with pytest.raises(NotFound):
                call(NOBODY)
        with pytest.raises(NotFound):
            client.compare(NOBODY, RUN)


async def test_the_asynchronous_client_does_the_same(served: Served):
    driver = served.driver
    async with AsyncTrialogClient(served.url, patience=Patience(10)) as client:
        plan = await client.plan_fork(RUN, {"lr": 1.0}, rubric="v1", mode="rescore")
        assert plan["parent"] == RUN
        made = await client.fork(RUN, {"from_step": 1}, mode="recompute")
        assert made["parent"] == RUN
        assert driver.forks.asked[-1] == ({"mode": "recompute"}, {"from_step": 1})
        page = await client.get_lineage(RUN, limit=1)
        assert page["next_cursor"] == "1"
        assert (await client.compare(RUN, RUN, step=0))["steps"][0]["n"] == 6
        with pytest.raises(NotFound):
            await client.compare(NOBODY, RUN)
