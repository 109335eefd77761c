"""Read the qualities in ``Accept`` and ``Accept-Encoding`` (RFC 9110, section 12.5)."""

from __future__ import annotations

OPENMETRICS = "application/openmetrics-text"


def coding_quality(header: str, coding: str) -> float:
    """Return the quality, 0 to 1, of a content coding in ``Accept-Encoding``; 0 is refused or not named.

    >>> coding_quality("gzip;q=0, *;q=0.5", "gzip")
    0.0
    """
    qualities = _qualities(header)
    return qualities.get(coding, qualities.get("*", 0.0))


def prefers_openmetrics(accept: str) -> bool:
    """Return whether a scraper accepts OpenMetrics and refuses the text format 0.0.4.

    A client that accepts both gets the text: it has the same content (no exemplars, no timestamps), and the counters
    that keep dcgm-exporter's names, without ``_total``, are counters in it, while OpenMetrics has to call them unknown.
    """
    qualities = _qualities(accept)
    wildcard = qualities.get("*/*", 0.0)
    plain = qualities.get("text/plain", qualities.get("text/*", wildcard))
    return not plain and qualities.get(OPENMETRICS, 0.0) > 0


def _qualities(header: str) -> dict[str, float]:
    """Return the quality, 1 by default, by name in lower case; the best one of a name that comes twice."""
    qualities: dict[str, float] = {}
    for entry in header.split(","):
        name, *parameters = (part.strip().lower() for part in entry.split(";"))
        if name:
            qualities[name] = max(qualities.get(name, 0.0), _quality(parameters))
    return qualities


def _quality(parameters: list[str]) -> float:
    for parameter in parameters:
        key, _, value = parameter.partition("=")
        if key.strip() == "q":
            try:
                return min(max(float(value), 0.0), 1.0)
            except ValueError:
                return 0.0  # not a number: not accepted
    return 1.0
