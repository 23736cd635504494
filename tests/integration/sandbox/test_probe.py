"""The self-test fails closed: no isolation, no sandbox."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from trialog.sandbox.bubblewrap.provider import BubblewrapProvider

PROBE = (
    "import asyncio, pathlib, sys\n"
    "from trialog.sandbox.bubblewrap.provider import BubblewrapProvider\n"
    "from trialog.sandbox.errors import ProviderUnavailableError\n"
    "try: asyncio.run(BubblewrapProvider(pathlib.Path(sys.argv[1])).probe())\n"
    "except ProviderUnavailableError as error: print('refused:', error)\n"
)


async def test_a_working_host_passes_and_is_left_clean(
    provider: BubblewrapProvider, tmp_path: Path
) -> None:
    capabilities = await provider.probe()
    assert (capabilities.provider, capabilities.network) == ("bubblewrap", "hard")
    assert list((tmp_path / "run").iterdir()) == []


@pytest.mark.skipif(not shutil.which("unshare"), reason="unshare is missing")
def test_a_host_without_user_namespaces_is_refused_with_the_mend(tmp_path: Path) -> None:
    """A namespace of our own in which no more can be made stands for such a host."""
    forbid = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
    inner = [sys.executable, "-c", PROBE, str(tmp_path)]
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "sh", "-c", forbid, "sh", *inner],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.startswith("refused: bubblewrap cannot isolate here"), done
    assert "unprivileged user namespaces" in done.stdout
    assert list((tmp_path / "run").iterdir()) == []
