"""The examples of the API's description are what it would answer."""

from __future__ import annotations

import json

import pytest
from pydantic import BaseModel
from trialog.driver.api.examples import EXAMPLES


@pytest.mark.parametrize("model", EXAMPLES, ids=lambda model: model.__name__)
def test_an_example_has_its_schemas_shape(model: type[BaseModel]) -> None:
    model.model_validate_json(json.dumps(EXAMPLES[model]))
