"""Which version of a distribution is installed, without importlib.metadata: its imports take 3 MB for good."""

from __future__ import annotations

import os
import sys
from functools import cache

UNKNOWN = "unknown"


@cache
def installed(name: str) -> str:
    """From the name of its folder, such as ``pyrometer-0.1.0.dist-info``; ``unknown`` where it was never installed."""
    for folder in sys.path:
        try:
            entries = os.listdir(folder or ".")  # noqa: PTH208
        except OSError:  # a zip file, or not there
            continue
        for entry in entries:
            found, _, version = entry.removesuffix(".dist-info").partition("-")
            if found == name and version and entry.endswith(".dist-info"):
                return version
    return UNKNOWN
