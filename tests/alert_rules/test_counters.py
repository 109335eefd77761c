"""Alerts on counters hear what came before the first scrape: each uses the recorded pattern of gpu.rules.yaml."""

import re
from pathlib import Path
from typing import Any

import pytest

from pyrometer_simulator.stack.promtool import groups_of

ROOT = Path(__file__).resolve().parents[2]
RULES: list[dict[str, Any]] = [
    rule
    for path in sorted((ROOT / "alert_rules").glob("*.rules.yaml"))
    for group in groups_of(path)
    for rule in group["rules"]
]
BY_RECORD: dict[str, list[str]] = {}
for _rule in RULES:
    if "record" in _rule:
        BY_RECORD.setdefault(_rule["record"], []).append(_rule["expr"])

# Counters whose alerts need no memory of the time before the series, and why.
WITHOUT = {
    # A state that goes on counting while it lasts is heard at the next scrape.
    r"pyrometer_gpu_clock_event_seconds_total": "time under a state",
    r"pyrometer_nic_.*|node_(infiniband|network)_.*": "rates and repeated losses, counted while the port is watched",
    r"pyrometer_train_.*": "a run's own steps, from its first on",
    r"pyrometer_run_seconds_total": "shares of time",
    r"pyrometer_ufm_.*": "shares of a log's lines",
    # They begin at 0 with their process, which is scraped from its first second.
    r"prometheus_.*|alertmanager_.*": "Prometheus about itself",
}
COUNTED = re.compile(r"(?:increase|rate|irate|delta)\(\s*(\w+)|(\w+_total)\{?[^}]*\}? offset")


def expanded(expr: str, seen: frozenset[str] = frozenset()) -> str:
    """Return an expression and those of all records that it uses."""
    names = {
        name for name in BY_RECORD if name not in seen and re.search(rf"(?<![\w:]){re.escape(name)}(?![\w:])", expr)
    }
    return "\n".join([expr, *(expanded(each, seen | names) for name in sorted(names) for each in BY_RECORD[name])])


def counters_without_memory(expr: str) -> set[str]:
    """Return the counters in an expression that has no `:before10m` of them."""
    text = expanded(expr)
    counted = {first or second for first, second in COUNTED.findall(text)} - {""}
    memories = "\n".join(
        expr for name in BY_RECORD if name.endswith(":before10m") and name in text for expr in BY_RECORD[name]
    )
    return {
        name for name in counted if name not in memories and not any(re.fullmatch(pattern, name) for pattern in WITHOUT)
    }


@pytest.mark.parametrize("rule", [rule for rule in RULES if "alert" in rule], ids=lambda rule: rule["alert"])
def test_an_alert_on_a_counter_hears_what_came_before_the_first_scrape(rule: dict[str, Any]) -> None:
    assert counters_without_memory(rule["expr"]) == set()


def test_the_gate_finds_a_counter_without_the_pattern() -> None:
    assert counters_without_memory("increase(pyrometer_gpu_xid_critical_errors_total[10m]) > 0") == {
        "pyrometer_gpu_xid_critical_errors_total"
    }


def test_no_exception_is_left_over() -> None:
    text = "\n".join(rule["expr"] for rule in RULES)
    assert [pattern for pattern in WITHOUT if not re.search(rf"\b(?:{pattern})", text)] == []
