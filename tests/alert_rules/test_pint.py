"""pint (cloudflare/pint) reads all rules where it is on PATH; its most useful checks are also in test_rules.py.

Its module can't be had from every proxy: `git clone https://github.com/cloudflare/pint && go build ./cmd/pint`.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

RULES = Path(__file__).parents[2] / "alert_rules"
RULE_FILES = sorted(RULES.glob("*.rules.yaml"))


class FalseAlarm(NamedTuple):
    """A warning of pint that is wrong: its check, of which rules, in which words, and why it is wrong."""

    check: str
    rules: str
    says: str
    why: str


FALSE_ALARMS = [
    FalseAlarm(
        "rule/dependency", ".*", "recording rule from a different group",
        "one evaluation of lag is meant: groups are apart so that each stays short; docs/situations.md has the delays",
    ),
    FalseAlarm(
        "alerts/template", ".*", "template query syntax error",
        "pint reads the format of printf as the query; Prometheus fills it in first, as promtool's tests show",
    ),
    FalseAlarm(
        "alerts/comparison", ".*", "always firing alert",
        "an alert on a series that exists only while something is wrong needs no comparison; the watchdog always fires",
    ),
    FalseAlarm(
        "promql/impossible", "gpu:pyrometer_gpu_peers:loaded5m", "orphaned label",
        "`or` keeps the labels of either side; `on` only says which series of the right one are left out",
    ),
    FalseAlarm(
        "promql/impossible", "port:pyrometer_fabric_port:place|switch:pyrometer_nic_mass_event:lost", "impossible",
        "without a known switch the label is empty, and both halves of the rule are of the same shape",
    ),
    FalseAlarm(
        "promql/regexp", "domain:pyrometer_gpu_.*", "negative wildcard",
        "it leaves out uuids of zeros and dashes as well as the empty one",
    ),
    FalseAlarm(
        "promql/regexp", "NodeExporterNicFlapping|SwitchHot", "smelly",
        "the kernel and UFM give the name in one label; nobody can break it down before us",
    ),
    FalseAlarm(
        "group/interval", "(fleet_map|nic_history).rules.yaml", "interval too long",
        "once in ten minutes is enough for what is read by last_over_time[6h]: which GPUs there were",
    ),
    FalseAlarm(
        "promql/fragile", "GpuLost", "fragile",
        "both operands are of the same target, so that no restart of Prometheus lets one be there before the other",
    ),
]  # fmt: skip


@cache
def _rules(path: Path) -> list[tuple[int, str]]:
    """Return the line at which each rule begins, and its name."""
    names = re.compile(r"- (?:alert|record): (\S+)")
    lines = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
    return [(number, found[1]) for number, line in lines if (found := names.search(line))]


def _rule_of(problem: dict[str, Any]) -> str:
    last = max(problem["lines"])
    return next((name for begins, name in reversed(_rules(RULES.parent / problem["path"])) if begins <= last), "")


def _is_argued(problem: dict[str, Any], known: FalseAlarm) -> bool:
    return (
        problem["reporter"] == known.check
        and any(re.fullmatch(known.rules, name) for name in (_rule_of(problem), Path(problem["path"]).name))
        and known.says in problem["problem"]
    )


def _problems(pint: str, files: list[Path], report: Path) -> list[dict[str, Any]]:
    names = [str(path.relative_to(RULES.parent)) for path in files]
    # Its status is 1 for any of these.
    command = [pint, "--offline", "--show-duplicates", "lint", "--json", str(report), *names]
    subprocess.run(command, cwd=RULES.parent, capture_output=True, check=False, timeout=120)
    found: list[dict[str, Any]] = json.loads(report.read_text(encoding="utf-8"))
    return found


@pytest.fixture
def pint() -> str:
    """Return where pint is."""
    found = shutil.which("pint")
    if found is None:
        pytest.skip("pint is not on PATH: git clone https://github.com/cloudflare/pint && go build ./cmd/pint")
    return found


def test_pint_says_nothing_but_the_false_alarms_that_are_listed(pint: str, tmp_path: Path) -> None:
    problems = _problems(pint, RULE_FILES, tmp_path / "report.json")
    assert problems
    assert [each for each in problems if not any(_is_argued(each, known) for known in FALSE_ALARMS)] == []
    assert [known for known in FALSE_ALARMS if not any(_is_argued(each, known) for each in problems)] == []


def test_a_false_alarm_is_about_a_rule_that_exists() -> None:
    names = {name for path in RULE_FILES for name in (path.name, *(name for _, name in _rules(path)))}
    assert [known.rules for known in FALSE_ALARMS if not any(re.fullmatch(known.rules, name) for name in names)] == []
