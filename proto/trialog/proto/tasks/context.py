"""What of a Dockerfile no build can do: found before one begins. Pure.

Only what is certain is said: a source with a variable, or below a link, may be there or not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, cast

from trialog.proto.spelling import hint
from trialog.proto.tasks.dockerfile import REMOTE, Instruction, flags_of, instructions
from trialog.proto.tasks.files import Entry

_KNOWN = (
    "ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL",
    "MAINTAINER", "ONBUILD", "RUN", "SHELL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR",
)  # fmt: skip
# Another frontend may know other instructions.
_SYNTAX = re.compile(r"#\s*syntax\s*=\s*(\S+)", re.IGNORECASE)
_OWN_SYNTAX = re.compile(r"(docker\.io/)?docker/dockerfile\b")
_WILD = re.compile(r"[*?\[]")
_UNCERTAIN = re.compile(r"[$\\'\"]|<<|\*\*")


def faults(text: str, context: Mapping[str, Entry], *, wildcards: bool) -> list[str]:
    """Return what is wrong with a Dockerfile, each with its line.

    ``context`` are the entries beside it, by their paths. ``wildcards``: a pattern must match
    something, which BuildKit does not ask for.
    """
    if (syntax := _SYNTAX.match(text.lstrip("\ufeff"))) and not _OWN_SYNTAX.match(syntax[1]):
        return []
    found: list[str] = []
    for each in instructions(text):
        if each.name not in _KNOWN:
            what = f"{each.name[:40]} is no instruction{hint(each.name, _KNOWN)}"
            found.append(f"line {each.line}: {what}")
        elif each.name in ("COPY", "ADD"):
            missing = (one for one in _sources(each) if _is_missing(one, context, wildcards))
            found += [
                f"line {each.line}: {each.name} of {one[:200]}, which is not beside the Dockerfile"
                for one in missing
            ]
    return found


def _sources(each: Instruction) -> Iterator[str]:
    """Yield what is taken from the context for certain, as it is written."""
    flags, _ = flags_of(each.rest)
    if any(key == "from" for key, _ in flags):
        return
    rest = each.rest
    while rest.startswith("--"):
        rest = "".join(rest.split(None, 1)[1:])
    for source in _words(rest)[:-1]:
        if not (_UNCERTAIN.search(source) or REMOTE.match(source) or ".." in source.split("/")):
            yield source


def _words(rest: str) -> list[str]:
    if rest.startswith("["):
        try:
            words: Any = json.loads(rest)
        except ValueError:
            return rest.split()
        if isinstance(words, list):
            return [word for word in cast("list[Any]", words) if isinstance(word, str)]
    return rest.split()


def _is_missing(source: str, context: Mapping[str, Entry], wildcards: bool) -> bool:
    parts = [part for part in source.split("/") if part not in ("", ".")]
    if not parts:
        return False
    if _WILD.search(source):
        links = any(entry.kind == "symlink" for entry in context.values())
        return wildcards and not links and not any(_matches(path, parts) for path in context)
    above = ("/".join(parts[:depth]) for depth in range(1, len(parts)))
    if any(path in context and context[path].kind == "symlink" for path in above):
        return False
    return "/".join(parts) not in context


def _matches(path: str, parts: list[str]) -> bool:
    names = path.split("/")
    return len(names) == len(parts) and all(map(fnmatchcase, names, parts))
