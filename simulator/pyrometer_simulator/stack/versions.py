"""Which version a tool has, and whether it is new enough."""

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

Version = tuple[int, int]

# 3.5 is the first 3.x with long-term support; 0.33 is the first Alertmanager that says `notification_reason`.
OLDEST_PROMETHEUS: Version = (3, 5)
OLDEST_ALERTMANAGER: Version = (0, 33)

_VERSION = re.compile(r"\bversion (\d+)\.(\d+)")


def parse_version(text: str) -> Version | None:
    """Major and minor from the first line of `--version`, as all four tools print it; None for anything else.

    `prometheus, version 3.5.3+ds1 (branch: ...)` and `amtool, version 0.33.1 (branch: ...)` are what it reads.
    """
    match = _VERSION.search(text)
    return (int(match[1]), int(match[2])) if match else None


def version_line(command: Sequence[str | Path]) -> str:
    """The first line of `<command> --version`; empty when it does not start or answers with an error.

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
    """The first of `names` found on PATH in version `oldest` or newer."""
    for name in names:
        found = shutil.which(name)
        if found is None:
            continue
        version = parse_version(version_line([found]))
        if version is not None and version >= oldest:
            return Path(found)
    return None
