"""Variables of a task: ``${NAME:-default}`` is its default, wherever it runs. Pure.

The format takes ``${NAME}`` from the environment of whoever runs the task. Here that would be a
worker's, which holds secrets, differs from host to host and is in no key: a value without a default
is refused. docs/decisions/0032 has the reasons.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_WHOLE = re.compile(r"\$\{([^}:]+)(?::-(.*))?\}")


def with_defaults(env: Mapping[str, str]) -> dict[str, str]:
    """Return variables with their defaults in place; those without one stay as they are written.

    A value is a template as a whole or not at all, as in the format: ``a${B}`` is the text itself.
    """
    found = {name: _WHOLE.fullmatch(text) for name, text in env.items()}
    return {
        name: text if (match := found[name]) is None or match[2] is None else match[2]
        for name, text in env.items()
    }


def unset(env: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the variables that ask for the host's, each with the name of that."""
    matches = ((name, _WHOLE.fullmatch(text)) for name, text in env.items())
    return [(name, match[1]) for name, match in matches if match and match[2] is None]
