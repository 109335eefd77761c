"""Phrases that the sentences of several subjects share; each is generated from one fact."""

from __future__ import annotations

from pyrometer_alerting.model.fact import Fact
from pyrometer_alerting.model.text import clock_utc, percent


def percent_of(share: float) -> str:
    """Return whole per cent: `98 %`; anything above zero is at least `1 %`."""
    return f"{max(round(100 * share), 1 if share > 0 else 0)} %"


def since(fact: Fact) -> str:
    """Return since when, as exactly as is known."""
    if fact.chronic or fact.began is None:
        return "since before the examined period" if fact.chronic else "now"
    return f"since {clock_utc(fact.began)}"


def share_before(fact: Fact) -> str:
    """Return `, 2 % before the drop`; empty where that is not known."""
    return f", {percent(fact.before)} before the drop" if fact.before is not None else ""


def times(fact: Fact) -> str:
    """Return `once, at 03:12:05 UTC` or `3 times since 03:12:05 UTC`."""
    first = clock_utc(fact.moments[0][0])
    return f"once, at {first}" if fact.count < 2 else f"{fact.count} times since {first}"
