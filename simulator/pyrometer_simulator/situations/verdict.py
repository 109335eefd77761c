"""Which alerts came of recorded series, when and until when: asked of the real promtool."""

from __future__ import annotations

import json
import math
import re
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pyrometer_simulator.situations.site import CLUSTER, Series
from pyrometer_simulator.stack.promtool import groups_of, objections, that_answer

RULES = Path(__file__).resolve().parents[3] / "alert_rules"
# Anything in a rule that can be a metric's name.
_NAME = re.compile(r"[A-Za-z_:][\w:]*")
_NO_METRIC = re.compile(r'"(?:[^"\\]|\\.)*"|#[^\n]*|\{[^{}]*\}|\[[^\[\]]*\]')
_INNERMOST = re.compile(r"\(([^()]*)\)")
_OR = re.compile(r"\bor\b")
_RESTRICTION = re.compile(r"\b(?:and|unless)\b")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_SAMPLE = re.compile(r"\{([^{}]*)\} ([0-9.E+-]+)")
_ERROR = ", err: "
_ANSWER = re.compile(r'cluster=\\?"[^"]*-(\d+)\\?".*?kind!=\\?"(\w+)\\?".*?got: (.*)')


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
    """Holds the alerts, without their texts, and the recordings that these use, in their groups."""

    def __init__(self, folder: Path = RULES) -> None:
        every = [_without_texts(group) for path in sorted(folder.glob("*.rules.yaml")) for group in groups_of(path)]
        # Recordings that others use come first, as they do after a minute in a Prometheus that runs.
        self._groups = sorted(that_answer(every, ["ALERTS"]), key=_has_alert)
        self.metrics = frozenset(name for group in self._groups for rule in group["rules"] for name in _names(rule))
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


def evaluate(promtool: Path, rules: Rules, cases: Sequence[Case], most_series: float = math.inf) -> list[list[Fired]]:
    """Evaluate cases in one run of promtool; return each one's alerts, the earliest first.

    Cases of the same intervals are clusters of one Prometheus, which no rule mixes
    (``tests/alert_rules/test_rule_clusters.py``): most of what promtool does is to evaluate rules that have no answer,
    which it does once for all of them. It evaluates no rule over more than 10,000 samples: cases with more than
    ``most_series`` together are evaluated apart.

    Raises:
        RuntimeError: promtool could not evaluate the rules.
        ValueError: a series has no cluster, which is what its alert is recognised by.
    """
    answers: list[dict[str, dict[str, float]]] = [{} for _ in cases]
    with tempfile.TemporaryDirectory(prefix="pyrometer-rules-") as folder:
        files = [_written(Path(folder), rules, together) for together in _together(cases, most_series)]
        answer = objections(promtool, "test", "rules", *files)
    found = _ANSWER.findall(answer.replace("\n        exp: nil\n       ", ""))
    if answer and (not found or _ERROR in answer):
        raise RuntimeError(answer[answer.find(_ERROR) - 500 :][:2000])
    for number, kind, samples in found:
        answers[int(number)][kind] = {labels: float(value) for labels, value in _SAMPLE.findall(samples)}
    return [_fired(answer) for answer in answers]


def _together(cases: Sequence[Case], most_series: float) -> Iterator[dict[int, Case]]:
    """Yield cases by number: those of the same intervals, as long as they have few enough series together."""
    alike: dict[tuple[int, int], dict[int, Case]] = {}
    for number, case in enumerate(cases):
        together = alike.setdefault((case.interval, case.rules_interval), {})
        if together and sum(len(other.series) for other in (*together.values(), case)) > most_series:
            yield dict(together)
            together.clear()
        together[number] = case
    yield from alike.values()


def _written(folder: Path, rules: Rules, cases: Mapping[int, Case]) -> Path:
    """Write a test of cases with the same intervals, by their numbers, and the rules that these can make fire."""
    first, any_case = next(iter(cases.items()))
    groups = rules.that_use({_metric(series) for case in cases.values() for series, _ in case.series})
    document = {
        "rule_files": [f"{first}.rules.yaml"],
        "group_eval_order": [group["name"] for group in groups],
        "evaluation_interval": f"{any_case.rules_interval}s",
        "tests": [
            {
                "interval": f"{any_case.interval}s",
                "input_series": [series for number, case in cases.items() for series in _input(number, case)],
                "promql_expr_test": [question for number, case in cases.items() for question in _asked(number, case)],
            }
        ],
    }
    # JSON is YAML.
    (folder / f"{first}.rules.yaml").write_text(json.dumps({"groups": groups}), encoding="utf-8")
    path = folder / f"{first}.test.yaml"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def _input(number: int, case: Case) -> Iterable[dict[str, str]]:
    for series, values in case.series:
        own = series.replace(f'cluster="{CLUSTER}"', f'cluster="{_cluster(number)}"')
        if own == series:
            msg = f"{series} is not of the cluster {CLUSTER}"
            raise ValueError(msg)
        yield {"series": own, "values": values}


def _cluster(number: int) -> str:
    return f"{CLUSTER}-{number}"


def _asked(number: int, case: Case) -> Iterable[dict[str, Any]]:
    """Yield the questions about a case's alerts at its end: since when, until when, how often."""
    step, window = f"{case.rules_interval}s", f"{int(case.lasts) + case.rules_interval}s"
    firing = 'alertstate="firing",alertname!="Watchdog"'
    alerts = f'ALERTS{{{firing},cluster="{_cluster(number)}",kind!="%s"{case.only}}}'
    first = alerts % "first"
    questions = (
        f"min_over_time(timestamp({first})[{window}:{step}])",
        f"max_over_time(timestamp({alerts % 'last'})[{window}:{step}])",
        f"count_over_time(({alerts % 'times'} unless {alerts % 'times'} offset {step})[{window}:{step}])",
    )
    # No answer is expected, so that promtool prints the one that it got.
    return ({"expr": expr, "eval_time": f"{int(case.lasts)}s", "exp_samples": []} for expr in questions)


def _fired(answer: dict[str, dict[str, float]]) -> list[Fired]:
    found = []
    for text, first in answer.get("first", {}).items():
        labels = dict(_LABEL.findall(text))
        name, severity = labels.pop("alertname"), labels.pop("severity", "")
        labels.pop("alertstate")
        labels["cluster"] = CLUSTER
        if "times" not in answer:
            msg = "promtool refused a question: too many alerts over too long a time (Case.only)"
            raise RuntimeError(msg)
        times = int(answer["times"].get(text, 1))
        found.append(Fired(name, severity, tuple(sorted(labels.items())), first, answer["last"][text], times))
    return sorted(found, key=lambda each: (each.first, each))


def _without_texts(group: dict[str, Any]) -> dict[str, Any]:
    """Return a group without annotations: promtool would fill them in at each evaluation, and nobody reads them."""
    return group | {"rules": [{key: rule[key] for key in rule if key != "annotations"} for rule in group["rules"]]}


def _names(rule: dict[str, Any]) -> set[str]:
    return set(_NAME.findall(rule["expr"]))


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
