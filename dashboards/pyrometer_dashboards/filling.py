"""Queries as Grafana would send them: variables and built-in windows filled in."""

from __future__ import annotations

import re
from collections.abc import Mapping

_VARIABLE = re.compile(r"\$\{(\w+)(?::\w+)?\}|\$([A-Za-z_]\w*)")


def filled(expr: str, variables: Mapping[str, str]) -> str:
    """The expression with $name, ${name} and ${name:format} replaced; what isn't known stays."""
    return _VARIABLE.sub(lambda match: variables.get(match[1] or match[2], match[0]), expr)


def windows(seconds: int, scrape: int = 15, points: int = 1000) -> dict[str, str]:
    """Grafana's built-in variables for a range of so many seconds on a panel of so many points."""
    step = max(scrape, seconds // points)
    return {
        "__interval": f"{step}s",
        "__rate_interval": f"{max(step + scrape, 4 * scrape)}s",
        "__range": f"{seconds}s",
        "__range_s": str(seconds),
    }
