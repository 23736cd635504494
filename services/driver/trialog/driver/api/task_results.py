"""How the tasks of a run went."""

from __future__ import annotations

from fastapi import Response

from trialog.driver.api import task_results_schemas as schemas
from trialog.driver.api.dependencies import Reading
from trialog.driver.api.export import Exports
from trialog.driver.api.routing import PatientRoute, RunId, answer, problems, router
from trialog.driver.api.steps import StepNumber

routes = router("trials", PatientRoute)


@routes.get(
    "/runs/{run_id}/tasks",
    operation_id="list_task_results",
    summary="List how the tasks of a run went",
    response_model=schemas.TaskResults,
    responses=problems(404, 422),
)
async def list_task_results(
    reader: Reading, exports: Exports, run_id: RunId, step: StepNumber = None
) -> Response:
    """A line a task in the order of the run, and the run's own. Means are over
    trials with a verdict; the others are counted apart. In the reference world a world is a task.
    """
    doc = await reader.run(run_id)
    tally = await exports.tally(await exports.run(run_id), step)
    about = {"run_id": run_id, "state": doc["state"]}
    return answer(about | {"totals": tally.totals(), "tasks": tally.rows()})
