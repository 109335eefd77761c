"""Versions of the tools: reading them, and finding a new enough tool on PATH."""

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

Version = tuple[int, int]

# 3.5 is the first 3.x with long-term support; 0.33 is the first Alertmanager that sends `notification_reason`.
OLDEST_PROMETHEUS: Version = (3, 5)
OLDEST_ALERTMANAGER: Version = (0, 33)

_VERSION = re.compile(r"\bversion (\d+)\.(\d+)")


def parse_version(text: str) -> Version | None:
    """Parse major and minor from the first line of `--version` of any of the tools; None for anything else.

    It reads `prometheus, version 3.5.3+ds1 (branch: ...)` and `amtool, version 0.33.1 (branch: ...)`.
    """
    match = _VERSION.search(text)
    return (int(match[1]), int(match[2])) if match else None


def version_line(command: Sequence[str | Path]) -> str:
    """Return the first line of `<command> --version`; empty when it does not start or fails.

    Alertmanager's older releases print to stderr, hence both streams.
    """
    try:
        answer = subprocess.run(
            [*map(str, command), "--version"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=20, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout.partition("\n")[0] if answer.returncode == 0 else ""


def on_path(names: Sequence[str], oldest: Version) -> Path | None:
    """Return the first of `names` on PATH that has version `oldest` or newer; None if there is none."""
    for name in names:
        found = shutil.which(name)
        if found is None:
            continue
        version = parse_version(version_line([found]))
        if version is not None and version >= oldest:
            return Path(found)
    return None
