"""Which alerts came of recorded series, when and until when: asked of the real promtool."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pyrometer_simulator.situations.site import Series
from pyrometer_simulator.stack.promtool import groups_of, objections

RULES = Path(__file__).resolve().parents[3] / "alert_rules"
# Anything in a rule that can be a metric's name.
_NAME = re.compile(r"[A-Za-z_:][\w:]*")
_NO_METRIC = re.compile(r'"(?:[^"\\]|\\.)*"|#[^\n]*|\{[^{}]*\}|\[[^\[\]]*\]')
_INNERMOST = re.compile(r"\(([^()]*)\)")
_OR = re.compile(r"\bor\b")
_RESTRICTION = re.compile(r"\b(?:and|unless)\b")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_SAMPLE = re.compile(r"\{([^{}]*)\} ([0-9.E+-]+)")
_ANSWER = re.compile(r'case!=\\?"(\d+)\\?".*?kind!=\\?"(\w+)\\?".*?got: (.*)')


class Fired(NamedTuple):
    """One alert that fired, by its labels; times are seconds after the first scrape."""

    name: str
    severity: str
    labels: tuple[tuple[str, str], ...]
    first: float
    last: float
    episodes: int
    """How often it began to fire."""

    @property
    def where(self) -> str:
        """The labels in one line, without those that every alert has."""
        return " ".join(value for name, value in self.labels if name not in ("cluster", "component"))


class Case(NamedTuple):
    """Series to evaluate: scraped and evaluated so often, for so long, in seconds.

    Attributes:
        only: which alerts are asked for, as further matchers of ALERTS. promtool answers no question of more than
            10,000 samples: of hundreds of alerts over an hour.
    """

    series: Sequence[Series]
    interval: int
    rules_interval: int
    lasts: float
    only: str = ""


class Rules:
    """All groups of rules that alerts need: those with alerts, and those whose recordings these use."""

    def __init__(self, folder: Path = RULES) -> None:
        every = [group for path in sorted(folder.glob("*.rules.yaml")) for group in groups_of(path)]
        needed = [group for group in every if _has_alert(group)]
        while more := [group for group in every if group not in needed and _records(group) & _used(needed)]:
            needed += more
        # Recordings that others use come first, as they do after a minute in a Prometheus that runs.
        self._groups = sorted(needed, key=_has_alert)
        self.metrics = frozenset(_used(self._groups))
        """Every word of the rules: the names of the metrics that they use are among them."""

    def that_use(self, metrics: Collection[str]) -> list[dict[str, Any]]:
        """Return the groups without the rules that come to nothing where only these metrics exist."""
        present = set(metrics)
        rules = [rule for group in self._groups for rule in group["rules"]]
        live: list[dict[str, Any]] = []
        while more := [rule for rule in rules if rule not in live and _can_answer(rule, present)]:
            live += more
            present |= {rule["record"] for rule in more if "record" in rule}
        groups = [group | {"rules": [rule for rule in group["rules"] if rule in live]} for group in self._groups]
        return [group for group in groups if group["rules"]]


def evaluate(promtool: Path, rules: Rules, cases: Sequence[Case]) -> list[list[Fired]]:
    """Evaluate cases in one run of promtool; return each one's alerts, the earliest first.

    Raises:
        RuntimeError: promtool could not evaluate the rules.
    """
    answers: list[dict[str, dict[str, float]]] = [{} for _ in cases]
    with tempfile.TemporaryDirectory(prefix="pyrometer-rules-") as folder:
        files = [_written(Path(folder), rules, number, case) for number, case in enumerate(cases)]
        answer = objections(promtool, "test", "rules", *files)
    found = _ANSWER.findall(answer.replace("\n        exp: nil\n       ", ""))
    if answer and not found:
        raise RuntimeError(answer[-2000:])
    for number, kind, samples in found:
        answers[int(number)][kind] = {labels: float(value) for labels, value in _SAMPLE.findall(samples)}
    return [_fired(answer) for answer in answers]


def _written(folder: Path, rules: Rules, number: int, case: Case) -> Path:
    """Write a case's test and the rules that it can make fire; each case for itself, as it needs a few of them."""
    groups = rules.that_use({_metric(series) for series, _ in case.series})
    document = {
        "rule_files": [f"{number}.rules.yaml"],
        "group_eval_order": [group["name"] for group in groups],
        "evaluation_interval": f"{case.rules_interval}s",
        "tests": [_test(number, case)],
    }
    # JSON is YAML.
    (folder / f"{number}.rules.yaml").write_text(json.dumps({"groups": groups}), encoding="utf-8")
    path = folder / f"{number}.test.yaml"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def _test(number: int, case: Case) -> dict[str, Any]:
    end, step = f"{int(case.lasts)}s", f"{case.rules_interval}s"
    window = f"{int(case.lasts) + case.rules_interval}s"
    alerts = f'ALERTS{{alertstate="firing",alertname!="Watchdog",case!="{number}",kind!="%s"{case.only}}}'
    first = alerts % "first"
    questions = (
        f"min_over_time(timestamp({first})[{window}:{step}])",
        f"max_over_time(timestamp({alerts % 'last'})[{window}:{step}])",
        f"count_over_time(({alerts % 'times'} unless {alerts % 'times'} offset {step})[{window}:{step}])",
    )
    return {
        "interval": f"{case.interval}s",
        "input_series": [{"series": series, "values": values} for series, values in case.series],
        # No answer is expected, so that promtool prints the one that it got.
        "promql_expr_test": [{"expr": expr, "eval_time": end, "exp_samples": []} for expr in questions],
    }


def _fired(answer: dict[str, dict[str, float]]) -> list[Fired]:
    found = []
    for text, first in answer.get("first", {}).items():
        labels = dict(_LABEL.findall(text))
        name, severity = labels.pop("alertname"), labels.pop("severity", "")
        labels.pop("alertstate")
        if "times" not in answer:
            msg = "promtool refused a question: too many alerts over too long a time (Case.only)"
            raise RuntimeError(msg)
        times = int(answer["times"].get(text, 1))
        found.append(Fired(name, severity, tuple(sorted(labels.items())), first, answer["last"][text], times))
    return sorted(found, key=lambda each: (each.first, each))


def _names(rule: dict[str, Any]) -> set[str]:
    texts = (rule["expr"], *rule.get("annotations", {}).values())
    return {name for text in texts for name in _NAME.findall(text)}


def _used(groups: Iterable[dict[str, Any]]) -> set[str]:
    return {name for group in groups for rule in group["rules"] for name in _names(rule)}


def _records(group: dict[str, Any]) -> set[str]:
    return {rule["record"] for rule in group["rules"] if "record" in rule}


def _can_answer(rule: dict[str, Any], metrics: Collection[str]) -> bool:
    words = needed_words(rule["expr"])
    return not words.isdisjoint(metrics) or not words.isdisjoint({"vector", "absent", "absent_over_time", "ALERTS"})


def needed_words(expr: str) -> set[str]:
    """Return the words of an expression of which at least one has to be a metric that exists for it to have an answer.

    Operands after ``and`` or ``unless`` only take series away, so they are left out; matchers and windows too.

    >>> sorted(needed_words('sum by (node) (a{b="c"}[5m] unless d) or e and on (node) f'))
    ['a', 'by', 'e', 'node', 'sum']
    """
    flat = _NO_METRIC.sub(" ", expr)
    while "(" in flat:  # the innermost parentheses first
        flat = _INNERMOST.sub(lambda match: f" {_first_operands(match[1])} ", flat)
    return set(_NAME.findall(_first_operands(flat)))


def _first_operands(flat: str) -> str:
    return " ".join(_RESTRICTION.split(branch, maxsplit=1)[0] for branch in _OR.split(flat))


def _metric(series: str) -> str:
    return series.partition("{")[0]


def _has_alert(group: dict[str, Any]) -> bool:
    return any("alert" in rule for rule in group["rules"])
