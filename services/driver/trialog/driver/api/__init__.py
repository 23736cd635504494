"""The driver's HTTP API. Importing it imports the web stack: do so late where time counts."""

from trialog.driver.api.app import create_app
from trialog.driver.api.dependencies import ApiDependencies
from trialog.driver.api.server import run_api

__all__ = ["ApiDependencies", "create_app", "run_api"]
