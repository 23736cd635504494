"""The weights of a run, version by version."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import Path, Response

from trialog.driver.api import schemas
from trialog.driver.api.dependencies import ApiDependencies, Deps, Reading
from trialog.driver.api.problems import not_found
from trialog.driver.api.routing import RunId, answer, problems, router
from trialog.driver.views import Doc
from trialog.proto import events as ev

_LATEST = "latest"
_DIGITS = 9

routes = router("weights")


@routes.get(
    "/runs/{run_id}/weights/{version}",
    operation_id="get_weights",
    summary="Read a version of a run's weights",
    response_model=schemas.Weights,
    responses=problems(404),
)
async def get_weights(
    deps: Deps,
    reader: Reading,
    run_id: RunId,
    version: Annotated[str, Path(description='Steps passed, or "latest".', examples=["latest"])],
) -> Response:
    """The weights after so many steps; version 0 is what the run began with. Not rounded. A run of
    tasks has none."""
    run = await reader.run(run_id)
    number, digest = await _named(deps, run, version)
    content: dict[str, Any] = msgspec.json.decode(await deps.blobs.get(digest), type=dict)
    # Canonical JSON writes 1.0 as 1: they are floats all the same.
    prior = {world: [float(x) for x in row] for world, row in content.get("doc_prior", {}).items()}
    return answer({"version": number, "digest": digest, "doc_prior": prior})


async def _named(deps: ApiDependencies, run: Doc, version: str) -> tuple[int, str]:
    """Return number and digest of a version. Raises a 404 problem."""
    run_id: str = run["run_id"]
    if version == _LATEST:
        return run["weights_version"], run["weights_digest"]
    number = _number(run_id, version)
    if number == 0:
        return 0, (await deps.runs.get(run_id)).request.initial_weights
    event = await deps.log.at_slot(run_id, f"step-applied:{number - 1}")
    fact = event.fact() if event else None
    if not isinstance(fact, ev.StepApplied) or fact.version != number:
        raise not_found("version", f"run {run_id} has no weights {version} yet")
    return number, fact.digest


def _number(run_id: str, version: str) -> int:
    digits = version.isascii() and version.isdigit() and len(version) <= _DIGITS
    if not digits or version != str(int(version)):  # one version has one address
        raise not_found("version", f"run {run_id} has no weights {version!r}: give a number")
    return int(version)
