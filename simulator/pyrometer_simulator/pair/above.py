"""Where Thanos and Mimir are, which no package of Debian has, and how to get them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

HOW_TO_GET = {
    "thanos": "CGO_ENABLED=0 go build -tags slicelabels ./cmd/thanos in Thanos' source (v0.42.0)",
    "mimir": "CGO_ENABLED=0 go build -tags netgo,stringlabels ./cmd/mimir in Mimir's source (main of 2026-04-23)",
}


def program(name: str) -> Path | None:
    """Return the program that the variable THANOS or MIMIR names, else the one on PATH, else None."""
    found = os.environ.get(name.upper()) or shutil.which(name)
    return Path(found) if found else None


def missing(name: str) -> str:
    """Return the reason for a test that is skipped: what is missing and how to get it."""
    return f"no {name}: {HOW_TO_GET[name]}, and its folder on PATH or {name.upper()}=path"
