"""Where the images of a run come from: what of that cannot be meant. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

PATTERN = r"^(host|(oci|tar):[^\x00]{1,4096})$"


def check_source(source: str) -> str:
    """Return an image's source. Raises ValueError for what is none."""
    if re.fullmatch(PATTERN, source):
        return source
    raise ValueError(
        f"{source[:100]!r} is no source of an image: tar:PATH (a root filesystem), oci:PATH (an "
        "OCI layout) or host (bubblewrap's trusted mode)"
    )


def check(provider: str, images: Mapping[str, str]) -> None:
    """Raise ValueError for sources that no worker of this provider can take."""
    for name, source in images.items():
        if source == "host" and provider == "docker":
            raise ValueError(
                f"images.{name} is host, which is for provider bubblewrap: a container has a root "
                "of its own; name a tar: or oci: of it, or leave it out (images: {}) where the "
                "daemon has it"
            )
        path = path_of(source)
        if path and not path.startswith("/"):
            raise ValueError(
                f"images.{name} is {source}, whose path is relative, and a worker may run "
                f"elsewhere: give it from the root, {source.partition(':')[0]}:/..."
            )


def path_of(source: str) -> str:
    """Return where a source lies, its tag included; an empty text for ``host``."""
    return source.partition(":")[2]


def rooted(source: str, folder: str) -> str:
    """Return a source whose path is from the root, where it is relative to a folder."""
    path = path_of(source)
    if not path or path.startswith("/") or not re.fullmatch(PATTERN, source):
        return source
    return f"{source.partition(':')[0]}:{folder.rstrip('/')}/{path.removeprefix('./')}"
