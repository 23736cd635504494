"""What the stand-in answers: any model that a request names well scores by the one formula."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from trialog.judge.standin.reference import InvalidRequestError, reference_reply


class Model(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which model is to score, and how it is sampled."""

    model: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)]
    max_tokens: Annotated[int, msgspec.Meta(ge=1)]


def answer_to(request: dict[str, Any]) -> bytes:
    """Return the JSON text of the reply to a request, which names a model beside what it asks.

    Score and tokens are of what is asked alone. Raises InvalidRequestError.
    """
    try:
        msgspec.convert(request.get("model"), Model)
    except msgspec.ValidationError as error:
        raise InvalidRequestError(f"model: {error}") from error
    return reference_reply({name: value for name, value in request.items() if name != "model"})
