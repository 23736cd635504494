"""How long hypothesis tries: the same examples every time, unless somebody goes looking.

``HYPOTHESIS_PROFILE=explore`` draws ten times as many, and others each time.
"""

from __future__ import annotations

import os

from hypothesis import settings

# No deadline: on a machine that does other work an example may take its time.
settings.register_profile("same", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))
