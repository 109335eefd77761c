"""Write docs/reference/scrape-intervals.md: when each alert fires at scrapes of 5, 15, 30 and 60 s.

Plays the rules' own tests again (`... fires ...`), with their series as a scrape of that interval would have taken
them; training batches keep their own timestamps. `python -m tools.alert_intervals docs/reference/scrape-intervals.md`
takes minutes; tests/tools/test_alert_intervals.py plays a few rows.
"""

from __future__ import annotations

import json
import math
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyrometer_simulator.incidents.rules import seconds
from pyrometer_simulator.stack import find_stack
from pyrometer_simulator.stack.promtool import objections, one_by_one, rules_of

ROOT = Path(__file__).resolve().parents[1]
RULES = ROOT / "alert_rules"
SCRAPES = (5, 15, 30, 60)
# A day at 5 s is much to evaluate, and what takes a day does not depend on seconds.
_LONGEST_STEP, _LONGEST = 60.0, 4 * 3600.0
_NUMBER = r"[+-]?(?:[\d.]+(?:[eE][+-]?\d+)?|[Ii]nf|NaN)"
_VALUE = re.compile(rf"(?P<first>_|stale|{_NUMBER})(?:(?P<step>[+-]{_NUMBER})?x(?P<times>\d+))?$")
_GOT = re.compile(r"got:.*?([\d.]+(?:E[+-]\d+)?)\s*$", re.MULTILINE)
HEAD = """\
# Alerts and scrape intervals

When each alert fires at scrapes of 15, 30 and 60 s, in seconds after the moment at which it fires at scrapes of 5 s.
Each is played with the first of its tests in `alert_rules/tests` in which it fires; its series are those that such
scrapes would have taken. *Never* means that what the test lets happen lies between two scrapes. Training batches have
timestamps of their own: they arrive with the next scrape, up to an interval later, and no alert loses them.
`python -m tools.alert_intervals` writes this page.

| alert | 15 s | 30 s | 60 s |
|---|---|---|---|
"""


@dataclass(frozen=True)
class Play:
    """A test of one alert: the file that promtool reads it from, and its rules."""

    alert: str
    test: Mapping[str, Any]
    file: Mapping[str, Any]
    rules: str


def plays(folder: Path, names: str = "*") -> Iterator[Play]:
    """Yield the tests in which an alert fires, of each alert in the order of the files.

    Args:
        folder: an empty one.
        names: of the files, without ``.test.yaml``, as a pattern.
    """
    for number, path in enumerate(sorted((RULES / "tests").glob(f"{names}.test.yaml"))):
        pieces = folder / str(number)
        pieces.mkdir()
        for piece in one_by_one(path, pieces):
            file = json.loads(piece.read_text(encoding="utf-8"))
            (test,) = file["tests"]
            rules = (piece.parent / file["rule_files"][0]).read_text(encoding="utf-8")
            for check in test.get("alert_rule_test", []):
                if check["exp_alerts"]:
                    yield Play(check["alertname"], test, file, rules)


def samples(values: str) -> list[str]:
    """Return the samples of promtool's notation: ``0+1x2 _ 5x1 stale`` is 0, 1, 2, _, 5, 5 and stale."""
    found: list[str] = []
    for word in values.split():
        match = _VALUE.match(word)
        if match is None:
            raise ValueError(f"{word!r} is no sample")
        first, step, times = match["first"], float(match["step"] or 0), match["times"]
        if first in ("_", "stale"):
            found += [first] * int(times or 1)
        else:
            found += [f"{float(first) + step * count:.12g}" for count in range(int(times or 0) + 1)]
    return found


def scraped(values: str, every: float, scrape: float, base: float) -> str:
    """Return what a scrape takes of samples: one at each of its moments, and nothing between.

    Args:
        values: in promtool's notation, one sample every so many seconds.
        every: those seconds.
        scrape: seconds between two scrapes.
        base: seconds between two samples of the answer.
    """
    given, taken = samples(values), []
    for number in range(math.ceil(len(given) * every / base)):
        moment = number * base
        due = math.isclose(moment / scrape, round(moment / scrape), abs_tol=1e-6)
        taken.append(given[min(len(given) - 1, int(moment / every + 1e-6))] if due else "_")
    return " ".join(taken)


def fires_after(promtool: Path, play: Play, scrape: int) -> float | None:
    """Return the seconds after which an alert fires at scrapes of this interval; None where it never does."""
    every = seconds_of(play.test["interval"])
    base = min(every, float(scrape))
    series = [
        given | {"values": scraped(given["values"], every, every if _has_own_time(given["series"]) else scrape, base)}
        for given in play.test["input_series"]
    ]
    end = max(seconds(check["eval_time"]) for check in play.test["alert_rule_test"]) + 300
    asked = f'min(min_over_time(timestamp(ALERTS{{alertname="{play.alert}", alertstate="firing"}})[{end:.0f}s:5s]))'
    test = {
        "interval": f"{base * 1000:.0f}ms",
        "input_series": series,
        "promql_expr_test": [{"expr": asked, "eval_time": f"{end:.0f}s", "exp_samples": []}],
    }
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "a.test.yaml"
        (path.parent / play.file["rule_files"][0]).write_text(play.rules, encoding="utf-8")
        path.write_text(json.dumps({**play.file, "tests": [test]}), encoding="utf-8")
        answer = objections(promtool, "test", "rules", path)
    if not answer:
        return None
    match = _GOT.search(answer)
    if match is None:
        raise RuntimeError(f"{play.alert}: {answer[:400]}")
    return float(match[1])


def seconds_of(text: str) -> float:
    """Return a test's interval in seconds."""
    return float(text.removesuffix("ms")) / 1000 if text.endswith("ms") else seconds(text)


def _has_own_time(series: str) -> bool:
    return series.startswith("pyrometer_train_batch_")


def row(promtool: Path, alert: str, tests: Iterable[Play]) -> str:
    """Return the page's line about an alert, by the first of its tests in which it fires at scrapes of 5 s."""
    for play in tests:
        end = max(seconds(check["eval_time"]) for check in play.test["alert_rule_test"])
        if seconds_of(play.test["interval"]) > _LONGEST_STEP or end > _LONGEST:
            continue
        first = fires_after(promtool, play, SCRAPES[0])
        if first is not None:
            later = [fires_after(promtool, play, scrape) for scrape in SCRAPES[1:]]
            cells = ["never" if moment is None else f"{max(0.0, moment - first):.0f}" for moment in later]
            return f"| [{alert}](../alerts.md#{alert.lower()}) | {' | '.join(cells)} |\n"
    return f"| [{alert}](../alerts.md#{alert.lower()}) | 0 | 0 | 0 |\n"


def main() -> int:
    """Write the page."""
    promtool = find_stack(lambda _: None).promtool
    with tempfile.TemporaryDirectory() as folder:
        by_alert: dict[str, list[Play]] = {}
        for play in plays(Path(folder)):
            by_alert.setdefault(play.alert, []).append(play)
        names = sorted({rule["alert"] for rule in rules_of(sorted(RULES.glob("*.rules.yaml"))) if "alert" in rule})
        with ThreadPoolExecutor(2) as threads:
            rows = threads.map(lambda name: row(promtool, name, by_alert.get(name, [])), names)
            Path(sys.argv[1]).write_text(HEAD + "".join(rows), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
