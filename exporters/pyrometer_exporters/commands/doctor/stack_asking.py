"""Ask a query, and name a few things in a line: shared by the checks of a monitoring stack."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import quote

from pyrometer_kit.http_client import get
from pyrometer_kit.prometheus import Series, answer

# As many names as fit into a line.
SHOWN = 5


def series(url: str, query: str) -> list[Series]:
    """Return the result of an instant query of the server at ``url``, now.

    Raises:
        HttpError, PrometheusError: there was no usable answer.
    """
    return answer(get(url, f"/api/v1/query?query={quote(query)}"))


def values(url: str, query: str) -> list[tuple[Mapping[str, str], float]]:
    """Return labels and last value of each series; raises as ``series`` does."""
    return [(item.labels, item.points[-1][1]) for item in series(url, query)]


def some(names: Iterable[str], shown: int = SHOWN) -> str:
    """Return the first names, and how many more there are."""
    ordered = sorted(set(names))
    more = f" and {len(ordered) - shown} more" if len(ordered) > shown else ""
    return ", ".join(ordered[:shown]) + more


def seconds(duration: float) -> str:
    """Return ``15 s``, or ``10 min`` where that is exact and shorter to read."""
    minutes, rest = divmod(duration, 60)
    return f"{minutes:g} min" if minutes >= 2 and not rest else f"{duration:g} s"
