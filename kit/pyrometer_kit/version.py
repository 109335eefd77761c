"""The installed version of a distribution, found without importlib.metadata: its imports stay in memory for good."""

from __future__ import annotations

import os
import sys

UNKNOWN = "unknown"


def installed(name: str) -> str:
    """Return the version of the distribution ``name``, or ``unknown`` where it was never installed.

    Read from its folder on the import path, such as ``pyrometer_kit-0.1.0.dist-info`` for ``pyrometer-kit``.
    """
    wanted = name.replace("-", "_").lower()
    for folder in sys.path:
        try:
            entries = os.listdir(folder or ".")  # noqa: PTH208
        except OSError:  # a zip file, or missing
            continue
        for entry in entries:
            found, _, version = entry.removesuffix(".dist-info").partition("-")
            if found.lower() == wanted and version and entry.endswith(".dist-info"):
                return version
    return UNKNOWN
