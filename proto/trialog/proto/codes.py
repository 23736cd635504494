"""The version of a piece of code: the digest of its source.

An agent, a verifier, a learner and a deterministic check are a module each, or a few. What they
call of the platform is no part of them: what that does must not change.
"""

from __future__ import annotations

import hashlib
from types import ModuleType


class MissingSourceError(RuntimeError):
    """A module was installed without its source, so nobody can tell what it is."""


def source_version(*modules: ModuleType) -> str:
    """Return the hex SHA-256 of the modules' sources, in the order that they are named.

    Line ends do not matter, every other character does. Raises MissingSourceError: without sources
    two versions would be one.
    """
    # No source holds the separator: Python refuses a NUL.
    text = "\0".join(_source(module) for module in modules)
    return hashlib.sha256(text.encode()).hexdigest()


def _source(module: ModuleType) -> str:
    """Return a module's text as its own loader reads it: from a folder or from an archive."""
    get_source = getattr(getattr(module.__spec__, "loader", None), "get_source", None)
    try:
        text = None if get_source is None else get_source(module.__name__)
    except (ImportError, OSError) as error:
        raise MissingSourceError(_missing(module)) from error
    if not text:
        raise MissingSourceError(_missing(module))
    return text


def _missing(module: ModuleType) -> str:
    return (
        f"{module.__name__} is installed without its source, which tells what code it is: "
        "install it with its .py files"
    )
