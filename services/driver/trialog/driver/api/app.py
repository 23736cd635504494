"""The FastAPI application, put together."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from trialog.driver.api import (
    compare,
    dead_letters,
    events,
    export,
    forks,
    lineage,
    operations,
    rubrics,
    runs,
    steering,
    steps,
    task_archives,
    task_results,
    trials,
    weights,
)
from trialog.driver.api.budget_schemas import Resumption
from trialog.driver.api.dependencies import ApiDependencies
from trialog.driver.api.examples import EXAMPLES
from trialog.driver.api.export_reader import ExportReader
from trialog.driver.api.following import Following
from trialog.driver.api.problems import add_handlers
from trialog.driver.api.reader import Reader
from trialog.driver.api.schemas import Problem
from trialog.driver.api.security import Guard
from trialog.proto.runspec import RunSpec

VERSION = "1"
_DESCRIPTION = """Start runs, watch them, steer them, and read what is on their log.

Errors are problems (RFC 9457). Lists come in pages: ask on with `next_cursor`. Times are those that
the log recorded, in UTC. Where the server was started with an API key, every route but /livez and
/readyz asks for it."""
_TAGS = [
    {"name": "runs", "description": "Ask for runs and steer them."},
    {"name": "trials", "description": "What agents tried, and how it was judged."},
    {"name": "exports", "description": "Trials in the formats of the field."},
    {"name": "weights", "description": "What was learnt."},
    {"name": "rubrics", "description": "What judges score by, in versions that never change."},
    {"name": "events", "description": "The log of a run, as it was recorded."},
    {"name": "operations", "description": "The system itself."},
]
# Of archives that are made at once: each takes a disk's and a processor's time.
_MOST_BUILDING: Final = 2
_REF = "#/components/schemas/{model}"


def create_app(deps: ApiDependencies) -> FastAPI:
    """Return the API. It uses what it is given and starts nothing of its own."""
    app = FastAPI(
        title="Trialog",
        version=VERSION,
        description=_DESCRIPTION,
        openapi_tags=_TAGS,
        docs_url=None,  # their pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.dependencies = deps
    app.state.reader = Reader(deps.log, deps.engine)
    app.state.exports = ExportReader(deps.log, deps.blobs, app.state.reader)
    app.state.building = asyncio.Semaphore(_MOST_BUILDING)
    app.state.following = Following(deps.bus)
    about_runs = (
        runs,
        forks,
        lineage,
        compare,
        steps,
        steering,
        trials,
        weights,
        events,
        task_archives,
        task_results,
        export,
    )
    for module in (*about_runs, rubrics, dead_letters, operations):
        app.include_router(module.routes)
    add_handlers(app)
    larger = {task_archives.PATH: deps.max_archive_bytes}
    app.add_middleware(
        Guard, api_key=deps.api_key, max_body_bytes=deps.max_body_bytes, larger=larger
    )
    app.openapi = lambda: _described(app, deps.api_key is not None)
    return app


def _described(app: FastAPI, with_key: bool) -> dict[str, Any]:
    """Return the OpenAPI description, with what FastAPI cannot know: bodies that are read by hand,
    problems, and the key."""
    if app.openapi_schema is None:
        schema = get_openapi(
            title=app.title,
            version=app.version,
            description=app.description,
            routes=app.routes,
            tags=app.openapi_tags,
        )
        components = schema.setdefault("components", {})
        for model in (RunSpec, Resumption, Problem):
            described = model.model_json_schema(ref_template=_REF)
            components["schemas"] |= described.pop("$defs", {})
            components["schemas"][model.__name__] = described
        for model, example in EXAMPLES.items():
            components["schemas"][model.__name__]["examples"] = [example]
        _drop_unused(schema)
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        schema["security"] = [{"key": []}] if with_key else [{}, {"key": []}]
        for path in ("/livez", "/readyz"):
            schema["paths"][path]["get"]["security"] = []
        app.openapi_schema = schema
    return app.openapi_schema


def _drop_unused(schema: dict[str, Any]) -> None:
    """Drop FastAPI's own 422: a route whose values can be wrong says so with a problem."""
    for methods in schema["paths"].values():
        for operation in methods.values():
            content = operation["responses"].get("422", {}).get("content", {})
            if "application/json" in content:
                del operation["responses"]["422"]
    for name in ("HTTPValidationError", "ValidationError"):
        schema["components"]["schemas"].pop(name, None)
