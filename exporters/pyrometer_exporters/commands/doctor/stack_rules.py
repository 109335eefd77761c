"""Judge the rules as they are evaluated: how often, what that costs in seconds, and what the scrapes leave out.

Asked of ``/api/v1/rules`` alone: a restart of Prometheus ends the series of its alerts for minutes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyrometer_exporters.commands.doctor.stack_asking import seconds, some
from pyrometer_kit.finding import Finding
from pyrometer_kit.http_client import get_json

OUR_GROUPS, HEARTBEAT = "pyrometer_", "Watchdog"
SETUP = "docs/howto/existing-stack.md"
# An alert that waits less than its group's interval is late by that interval. Up to here nobody minds.
LATE_SECONDS = 30.0
_LABELS = r'\{(?:"(?:[^"\\]|\\.)*"|[^}"])*\}'
# These need two samples in their window; with one they return nothing.
_TWO = "rate|irate|increase|delta|idelta|deriv|changes|resets|predict_linear"
_RANGE = re.compile(rf"\b(?:{_TWO})\s*\(\s*((?:pyrometer|DCGM)_\w+)\s*(?:{_LABELS})?\s*\[((?:\d+[a-z]+)+)\]")
_WINDOW = re.compile(r"\[((?:\d+[a-z]+)+)[\]:]")
_RECORD = re.compile(r"[a-zA-Z_]\w*(?::\w+)+")
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800, "y": 31_536_000}

Rule = Mapping[str, Any]
Group = Mapping[str, Any]


def groups(url: str) -> list[Group]:
    """Return our groups of rules as the server at ``url`` evaluates them.

    Raises:
        HttpError: there was no usable answer.
    """
    everybodys = get_json(url, "/api/v1/rules")["data"]["groups"]
    return [group for group in everybodys if str(group["name"]).startswith(OUR_GROUPS)]


def findings(ours: Sequence[Group], scraped: float | None) -> Iterator[Finding]:
    """Yield what our rules lack; ``scraped`` is the seconds between two scrapes of our exporters, where known."""
    rules = [rule for group in ours for rule in group["rules"]]
    failing = [f"{rule['name']}: {rule.get('lastError', '')}" for rule in rules if rule.get("health") == "err"]
    if failing:
        what = f"{len(failing)} of {len(rules)} rules fail ({some(failing)})"
        yield Finding("missing", what, "fix each one by its error")
    slow = [group["name"] for group in ours if group.get("evaluationTime", 0) > group.get("interval", 0) > 0]
    if slow:
        what = f"{len(slow)} groups of rules take longer than their interval ({some(slow)})"
        yield Finding("missing", what, "give Prometheus more CPU, or evaluate less often: docs/sizing.md")
    if not failing and not slow:
        yield Finding("ok", f"{len(rules)} rules in {len(ours)} groups are evaluated")
    yield from _pace(ours, scraped)
    yield from _blind(rules, scraped)
    yield from _heartbeat(rules)


def _pace(ours: Sequence[Group], scraped: float | None) -> Iterator[Finding]:
    """Yield how often the alerts are evaluated, and of those that cost much more than they wait, how much."""
    often = Counter(float(group["interval"]) for group in ours if any(map(_alerts, group["rules"])))
    if not often:
        return
    paces = ", ".join(f"{count} each {seconds(pace)}" for pace, count in sorted(often.items()))
    usual = max(often, key=lambda pace: often[pace])
    whole = f", so a fault is an alert after at most {seconds(scraped + usual)} in most groups" if scraped else ""
    yield Finding("ok", f"groups with alerts: {paces}{whole}")
    looks_back = _looks_back([rule for group in ours for rule in group["rules"]])
    late = {
        str(rule["name"]): float(group["interval"])
        for group in ours
        for rule in group["rules"]
        if _alerts(rule)
        and float(group["interval"])
        > max(LATE_SECONDS, float(rule.get("duration", 0)), looks_back[str(rule["name"])] / 2)
    }
    if late:
        worst = max(late.values())
        what = f"{len(late)} alerts come up to {seconds(worst)} late, as rarely as they are evaluated ({some(late)})"
        yield Finding("note", what, "load the rules of this version, whose groups state their intervals")


def _looks_back(rules: Sequence[Rule]) -> dict[str, float]:
    """Return by rule the seconds of its longest window, also in what it takes from records: news of days may wait."""
    found: dict[str, float] = {}
    for rule in rules:
        query = str(rule.get("query", ""))
        windows = [*map(_duration, _WINDOW.findall(query)), *(found.get(name, 0.0) for name in _RECORD.findall(query))]
        found[str(rule["name"])] = max([found.get(str(rule["name"]), 0.0), *windows])
    return found


def _blind(rules: Sequence[Rule], scraped: float | None) -> Iterator[Finding]:
    """Yield the alerts with windows that hold fewer than two scrapes."""
    if scraped is None:
        return
    records: dict[str, str] = {}
    for rule in rules:
        if not _alerts(rule) and (why := _too_short(str(rule.get("query", "")), scraped, records)):
            records[str(rule["name"])] = why
    blind = {
        str(rule["name"]): why
        for rule in rules
        if _alerts(rule) and (why := _too_short(str(rule.get("query", "")), scraped, records))
    }
    if blind:
        name, why = min(blind.items())
        what = (
            f"{len(blind)} alerts can't fire, or see only part of what they are for, at scrapes each {seconds(scraped)}"
            f" ({some(blind)}; {name}: {why})"
        )
        yield Finding(
            "missing", what, "scrape more often, or write the rules for your scrapes: docs/howto/existing-stack.md"
        )


def _too_short(query: str, scraped: float, records: Mapping[str, str]) -> str:
    """Return the first window that holds fewer than two scrapes, here or in what the query takes from records."""
    for name, window in _RANGE.findall(query):
        if not name.startswith("pyrometer_train_batch_") and _duration(window) < 2 * scraped:
            return f"{window} of {name} holds {_duration(window) // scraped:.0f} of the 2 scrapes that it needs"
    return next((records[name] for name in _RECORD.findall(query) if name in records), "")


def _heartbeat(rules: Sequence[Rule]) -> Iterator[Finding]:
    states = [str(rule.get("state", "")) for rule in rules if rule["name"] == HEARTBEAT]
    if not states:
        yield Finding("missing", f"the heartbeat {HEARTBEAT} does not fire", "load alert_rules/stack.rules.yaml too")
    elif "firing" not in states:
        yield Finding("note", f"the heartbeat {HEARTBEAT} is loaded and was not evaluated yet", "ask again in a minute")


def _alerts(rule: Rule) -> bool:
    return rule.get("type") == "alerting"


def _duration(text: str) -> float:
    return sum(int(number) * _UNITS[unit] for number, unit in re.findall(r"(\d+)([a-z]+)", text))
