"""Evaluate the project's rules over a stretch of time in a Prometheus that already has the metrics.

Each rule is one range query at its group's interval, in the order of what it reads; recorded series are written back
with staleness markers where they end, as the rule manager of Prometheus would have, so that a rule sees at each moment
what it would have seen live. `for` and `keep_firing_for` are applied to the results.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pyrometer_kit.prometheus import HttpPrometheus, Prometheus, PrometheusError, Series
from pyrometer_simulator.incidents.remote_write import STALE, Batch, Floats, write
from pyrometer_simulator.stack.promtool import groups_of

RULES = Path(__file__).parents[3] / "alert_rules"
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
# Boards only, and what reads them; the heartbeat has no part in a diagnosis.
_NOT_READ = ("pyrometer_fleet", "pyrometer_ufm")
Key = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Rule:
    """A rule of a group with an interval in seconds."""

    name: str
    expr: str
    interval: float
    alert: bool
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    hold: float = 0.0
    keep: float = 0.0

    @property
    def reads(self) -> frozenset[str]:
        """The names in its expression: metrics, and words of PromQL, which no metric is called."""
        return frozenset(_NAME.findall(self.expr))


@dataclass(frozen=True)
class Firing:
    """An alert from its first firing evaluation to the one that ends it (infinity: it still fires at the end)."""

    rule: Rule
    labels: Mapping[str, str]
    active: float
    begin: float
    end: float
    values: tuple[tuple[float, float], ...]

    def value_at(self, time: float) -> float:
        """Return its value at a time."""
        known = [value for at, value in self.values if at <= time + 1e-3]
        return known[-1] if known else self.values[0][1]


def load(interval: float, folder: Path = RULES, needed: Iterable[str] = ()) -> list[Rule]:
    """Return the alerts and all recording rules that they or these names need, in the order of evaluation.

    Args:
        interval: least seconds between evaluations of a group.
        folder: where the rules are.
        needed: text in which further recorded names occur.
    """
    rules = [rule for path in sorted(folder.glob("*.rules.yaml")) for rule in _of_file(path, interval)]
    wanted = {name for text in needed for name in _NAME.findall(text)}
    wanted |= {rule.name for rule in rules if rule.alert}
    while more := {name for rule in rules if rule.name in wanted for name in rule.reads} - wanted:
        wanted |= more
    return _ordered([rule for rule in rules if rule.name in wanted and rule.name != "Watchdog"])


def seconds(text: str | None, default: float = 0.0) -> float:
    """Return a duration as the rules spell it (`5m`) in seconds."""
    if not text:
        return default
    return sum(float(number) * _UNITS[unit] for number, unit in re.findall(r"(\d+)([smhd])", text))


def _of_file(path: Path, interval: float) -> Iterator[Rule]:
    for group in groups_of(path):
        if group["name"].startswith(_NOT_READ):
            continue
        every = max(seconds(group["interval"]), interval)
        for raw in group["rules"]:
            yield Rule(
                raw.get("record") or raw["alert"],
                raw["expr"],
                every,
                "alert" in raw,
                raw.get("labels", {}),
                raw.get("annotations", {}),
                seconds(raw.get("for")),
                seconds(raw.get("keep_firing_for")),
            )


def _ordered(rules: Sequence[Rule]) -> list[Rule]:
    """Order by what is read; rules that read each other keep the order of their files."""
    ordered: list[Rule] = []
    left = list(rules)
    while left:
        names = {rule.name for rule in left}
        ready = [rule for rule in left if not (rule.reads & names) - {rule.name}] or left[:1]
        ordered += ready
        left = [rule for rule in left if rule not in ready]
    return ordered


class Evaluation:
    """The rules over one stretch of time, for all clusters that a Prometheus has."""

    def __init__(self, url: str, begin: float, end: float, seconds_per_query: float = 60.0) -> None:
        self._url, self._begin, self._end = url, begin, end
        self._prometheus = HttpPrometheus(url, seconds_per_query)
        self.firings: list[Firing] = []

    def run(self, rules: Sequence[Rule], names: set[str]) -> None:
        """Evaluate rules, of which those are skipped that read nothing of what there is (`names`, which grows).

        Raises:
            PrometheusError: a rule cannot be evaluated.
        """
        for rule in rules:
            if not rule.reads & names and "ALERTS" not in rule.reads:
                continue
            start = np.ceil(self._begin / rule.interval) * rule.interval
            if start + rule.interval > self._end:
                continue
            try:
                result = self._prometheus.range(rule.expr, start, self._end, rule.interval)
            except PrometheusError as error:
                raise PrometheusError(f"{rule.name}: {error}", error.reason) from None
            times = np.arange(start, self._end + 1e-3, rule.interval)
            batch = Batch()
            for series in result:
                labels = {name: value for name, value in series.labels.items() if name != "__name__"}
                if rule.alert:
                    self._alert(batch, rule, labels, series, times)
                else:
                    record(batch, {**labels, **rule.labels, "__name__": rule.name}, series, times)
            if batch.samples:
                write(self._url, batch)
                names.add(rule.name)

    def _alert(self, batch: Batch, rule: Rule, labels: dict[str, str], series: Series, times: Floats) -> None:
        every = {**labels, **rule.labels, "alertname": rule.name}
        points = {round(at, 3): value for at, value in series.points if not math.isnan(value)}
        firing = np.full(len(times), np.nan)
        for begin, end, active in spells(rule, list(points), times):
            inside = (times >= begin - 1e-3) & (times < end - 1e-3)
            firing[inside] = 1.0
            values = tuple((at, value) for at, value in points.items() if active - 1e-3 <= at < end)
            self.firings.append(Firing(rule, every, active, begin, end, values))
        batch.add_target([{**every, "__name__": "ALERTS", "alertstate": "firing"}], times, firing[:, None])


def record(batch: Batch, labels: Mapping[str, str], series: Series, times: Floats) -> None:
    """Add a recorded series, with a marker at each evaluation that no longer has it."""
    values = np.full(len(times), np.nan)
    places = np.round((np.array([at for at, _value in series.points]) - times[0]) / (times[1] - times[0])).astype(int)
    numbers = np.array([value for _at, value in series.points])
    # A result that is not a number is one, though: only what is absent ends a series.
    values[places] = numbers
    present = np.zeros(len(times), bool)
    present[places] = True
    ended = ~present[1:] & present[:-1]
    values[1:][ended] = STALE
    kept = present.copy()
    kept[1:] |= ended
    batch.add(labels, times[kept], values[kept])


def spells(rule: Rule, active: Sequence[float], times: Floats) -> Iterator[tuple[float, float, float]]:
    """Yield (begin, end, active since) of each firing of an alert whose expression holds at these times."""
    holding, since, begin, last = set(active), None, None, 0.0
    for now in (round(float(each), 3) for each in times):
        if now in holding:
            since = now if since is None else since
            last = now
            if begin is None and now - since >= rule.hold:
                begin = now
        elif begin is not None and since is not None and now - last >= rule.keep:
            yield begin, now, since
            since, begin = None, None
        elif begin is None:
            since = None
    if begin is not None and since is not None:
        yield begin, float("inf"), since


class Annotations:
    """Render the templates of annotations as far as messages of incidents need them: a subset of Go's templates."""

    _PIECE = re.compile(r"\{\{-?\s*(.*?)\s*-?\}\}", re.DOTALL)

    def __init__(self, prometheus: Prometheus) -> None:
        self._prometheus = prometheus

    def render(self, template: str, labels: Mapping[str, str], value: float, at: float) -> str:
        """Return the text at a time; what is in `with` and `range` is left out, and their `else` as well."""
        out: list[str] = []
        shown: list[tuple[bool, bool]] = []  # (shown, one branch was)
        place = 0
        for piece in self._PIECE.finditer(template):
            if all(now for now, _was in shown):
                text = self._trimmed(template, place, piece.start())
                out.append(text.rstrip() if piece.group().startswith("{{-") else text)
            place = piece.end()
            words = piece.group(1)
            if words.startswith(("if ", "with ", "range ")):
                yes = words.startswith("if ") and self._holds(words[3:], labels, value)
                shown.append((yes, yes or not words.startswith("if ")))
            elif words.startswith("else"):
                _now, was = shown.pop()
                yes = not was and (words == "else" or self._holds(words.removeprefix("else if "), labels, value))
                shown.append((yes, was or yes))
            elif words == "end":
                shown.pop()
            elif all(now for now, _was in shown):
                out.append(self._value(words, labels, value, at))
        out.append(self._trimmed(template, place, len(template)))
        return re.sub(r"\s+", " ", "".join(out)).strip()

    @staticmethod
    def _trimmed(template: str, start: int, end: int) -> str:
        """Return the text between two places, without white space after a dash and two braces."""
        text = template[start:end]
        return text.lstrip() if template[:start].endswith("-}}") else text

    @staticmethod
    def _holds(words: str, labels: Mapping[str, str], value: float) -> bool:
        if words.startswith("$labels."):
            return bool(labels.get(words.removeprefix("$labels."), ""))
        return words.startswith("ne $value 1.0") and value != 1.0

    def _value(self, words: str, labels: Mapping[str, str], value: float, at: float) -> str:
        first, *pipes = [each.strip() for each in words.split("|")]
        if first.startswith("$labels."):
            return labels.get(first.removeprefix("$labels."), "")
        number = value
        if "query" in pipes and (match := re.search(r'"(.*)"', first)):
            answer = self._prometheus.instant(match.group(1).replace("%f", f"{value:f}"), at)
            number = answer[0].points[0][1] if answer else float("nan")
        elif match := re.match(r'printf "(.*?)" \$value$', first):
            return match.group(1).replace("%%", "%") % value
        formats = [re.search(r'printf "(.*?)"', each) for each in pipes]
        for found in formats:
            if found:
                return found.group(1) % number
        return _spoken(value) if "humanizeDuration" in pipes else ""


def _spoken(value: float) -> str:
    minutes, rest = divmod(int(value), 60)
    return f"{minutes}m {rest}s" if minutes else f"{rest}s"


def body(name: str, alerts: Sequence[Mapping[str, Any]]) -> bytes:
    """Return the webhook body that Alertmanager sends for a group."""
    status = "firing" if any(alert["status"] == "firing" for alert in alerts) else "resolved"
    document = {
        "version": "4",
        "groupKey": f'{{}}:{{alertname="{name}"}}',
        "receiver": "pyrometer",
        "status": status,
        "alerts": list(alerts),
        "truncatedAlerts": 0,
        "externalURL": "http://alertmanager:9093",
    }
    return json.dumps(document).encode()
