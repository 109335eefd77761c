"""Interpolation of Grafana's variables: turn a panel's query into the one that Prometheus receives."""

from __future__ import annotations

import re
from collections.abc import Mapping

_VARIABLE = re.compile(r"\$\{(\w+)(?::\w+)?\}|\$([A-Za-z_]\w*)")


def interpolate(expr: str, variables: Mapping[str, str]) -> str:
    """Return the expression with $name, ${name} and ${name:format} replaced; unknown variables stay."""
    return _VARIABLE.sub(lambda match: variables.get(match[1] or match[2], match[0]), expr)


def builtin_variables(seconds: int, scrape: int = 15, points: int = 1000) -> dict[str, str]:
    """Return Grafana's built-in variables for a time range.

    Args:
        seconds: length of the range.
        scrape: scrape interval in seconds.
        points: width of the panel in points.
    """
    step = max(scrape, seconds // points)
    return {
        "__interval": f"{step}s",
        # Asked for beside a least interval of 1 ms, to know the width in pixels.
        "__interval_ms": str(max(1, 1000 * seconds // points)),
        "__rate_interval": f"{max(step + scrape, 4 * scrape)}s",
        "__range": f"{seconds}s",
        "__range_s": str(seconds),
        "__range_ms": str(1000 * seconds),
    }
