"""Backfill a young Prometheus with the past that queries look back on, extrapolated from its present samples.

The queries of boards and rules determine which series, and how far back. Each series gets a sample at its rule
group's interval or each scrape, with its present value varied a little.
"""

from __future__ import annotations

import itertools
import json
import math
import random
import re
import subprocess
import sys
import urllib.parse
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pyrometer_dashboards.promql import parse
from pyrometer_simulator.fleet.plan import Plan
from pyrometer_simulator.fleet.training_metrics import batches
from pyrometer_simulator.http_call import call
from pyrometer_simulator.stack import find_stack

ROOT = Path(__file__).resolve().parents[1]
SCRAPE = 15
LOOKBACK = 240  # within Prometheus' five minutes
BATCHES = "pyrometer_train_batch_"
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
# Events on 511 nodes in 30 days. Llama 3 had 419 interruptions on 2,048 nodes in 54 days: 58 here. The jobs' own errors
# (app) are far more frequent; links and memory errors are as in the field reports that the rules' comments name.
RARE = {
    'gpu:pyrometer_gpu_xid_errors:new5m{{{part},gpu="{gpu}",uuid="GPU-{node}-{gpu}",xid="79",class="critical"}}': 60,
    'gpu:pyrometer_gpu_xid_errors:new5m{{{part},gpu="{gpu}",uuid="GPU-{node}-{gpu}",xid="31",class="app"}}': 3000,
    'gpu:pyrometer_gpu_ecc_uncorrected:new5m{{{part},gpu="{gpu}"}}': 30,
    'port:pyrometer_nic_link_down_events:new5m{{{part},device="mlx5_{gpu}",port="1"}}': 600,
    "node:up:lost5m{{{part}}}": 120,
}
RARE_SECONDS = 30 * 86400
# The goodput ledger's seconds, recorded every five minutes for every run. Other series with such names are events.
LEDGER = "run:pyrometer_run_seconds:new5m"


@dataclass(frozen=True)
class Reach:
    """How far back a selector is read, in seconds: over ``all_of_it``, or only at its start (an offset)."""

    seconds: int
    all_of_it: bool


def lookbacks(expr: str, span: int = 0) -> Iterator[tuple[str, Reach]]:
    """Yield each selector of a query with its reach; ``span`` is the range in seconds that the query is drawn over."""
    for node, under in parse(expr).walk():
        if node.kind == "selector":
            matchers = ",".join(f'{label}{operator}"{value}"' for label, operator, value in node.matchers)
            windows = span + sum(_seconds(each.window) for each in (node, *under))
            offsets = sum(_seconds(each.offset) for each in (node, *under))
            yield f"{node.name}{{{matchers}}}", Reach(windows + offsets, windows > 0)


def _seconds(window: str) -> int:
    """Return the seconds of a window such as "5m" or "30d:5m"."""
    found = re.match(r"(\d+)([smhd])", window)
    return int(found[1]) * UNITS[found[2]] if found else 0


def write_past(
    reaches: Iterable[tuple[str, Reach]],
    url: str,
    end: float,
    folder: Path,
    more: Iterable[str] = (),
    *,
    thin: int = 0,
) -> None:
    """Write blocks with all samples read up to ``end``, and ``more`` lines; Prometheus loads them in a minute.

    Names with more than ``thin`` series get a sample each LOOKBACK; 0 thins none.
    """
    path, written = folder.with_name("past.om"), 0
    with path.open("w") as file:
        for line in itertools.chain(_past(reaches, url, end, thin), more):
            file.write(line)
            written += 1
        file.write("# EOF\n")
    print(f"{written:,} samples of the past", file=sys.stderr, flush=True)
    command: list[str | Path] = [find_stack().promtool, "tsdb", "create-blocks-from", "openmetrics"]
    subprocess.run([*command, "--max-block-duration=600h", path, folder], check=True, stdout=subprocess.DEVNULL)
    path.unlink()


def _past(reaches: Iterable[tuple[str, Reach]], url: str, end: float, thin: int) -> Iterator[str]:
    intervals, found = dict(_intervals()), _series(reaches, url)
    many = Counter(series.partition("{")[0] for series in found)
    for series, (value, reach) in found.items():
        name = series.partition("{")[0]
        whole = reach.all_of_it and not (thin and many[name] > thin)
        step = intervals.get(name, SCRAPE) if whole else LOOKBACK
        yield from (f"{series} {_moved(series, value, at)} {at:.3f}\n" for at in _times(end, reach.seconds, step))


def _series(reaches: Iterable[tuple[str, Reach]], url: str) -> dict[str, tuple[float, Reach]]:
    """Return series that are read back for minutes or more, with present value and reach; no events, no batches."""
    found: dict[str, tuple[float, Reach]] = {}
    for selector, reach in reaches:
        if reach.seconds > 600 and not _is_told(selector.partition("{")[0]):
            for series, value in _now(url, selector):
                found[series] = (value, _further(reach, found.get(series, (value, reach))[1]))
    return found


def _is_told(name: str) -> bool:
    """Return whether ``events`` makes the series of this name."""
    return name.startswith(BATCHES) or (name.endswith(("new5m", "lost5m")) and name != LEDGER)


def _further(one: Reach, other: Reach) -> Reach:
    return Reach(max(one.seconds, other.seconds), one.all_of_it or other.all_of_it)


def _intervals() -> Iterator[tuple[str, int]]:
    """Yield recorded names with their recording interval in seconds."""
    for group in _groups():
        step = max(SCRAPE, _seconds(group["interval"]))
        yield from ((rule["record"], step) for rule in group["rules"] if "record" in rule)


def _groups() -> Iterator[dict[str, Any]]:
    for path in (ROOT / "alert_rules").glob("*.rules.yaml"):
        yield from yaml.safe_load(path.read_text())["groups"]


def _question(selector: str) -> str:
    """Return the query for a series' present value; of the ledger, whose rule may not have run, its expression."""
    if selector.startswith(f"{LEDGER}{{"):
        return next(str(rule["expr"]) for group in _groups() for rule in group["rules"] if rule.get("record") == LEDGER)
    return f"last_over_time({selector}[10m])"


def _now(url: str, selector: str) -> Iterator[tuple[str, float]]:
    asked = urllib.parse.urlencode({"query": _question(selector)}).encode()
    result = json.loads(call(f"{url}/api/v1/query", asked).body)["data"]["result"]
    for each in result:
        labels = [f"{label}={json.dumps(value)}" for label, value in each["metric"].items() if label != "__name__"]
        yield f"{selector.partition('{')[0]}{{{','.join(labels)}}}", float(each["value"][1])


def _times(end: float, seconds: int, step: int) -> Iterator[float]:
    return (end - seconds + number * step for number in range(seconds // step))


def _moved(series: str, value: float, at: float) -> float:
    """Return a past value: a smaller counter, a recorded value within a hundredth; 0, 1 and settings as they are."""
    if "_total{" in series or series.startswith("run:pyrometer_run_seconds:total{"):
        return round(value * at / (at + 1e6), 3)
    if ":" not in series.partition("{")[0] or value in (0, 1) or not math.isfinite(value):
        return value
    return round(value * (1 + 0.01 * math.sin(at / 97 + len(series))), 4)


def events(plan: Plan, end: float) -> Iterator[str]:
    """Yield two hours of batches, and 30 days of Xids, memory errors and lost links at the rates of large clusters."""
    yield from (f"{series} {value} {at:.3f}\n" for series, value, at in batches(plan, end - 7200, end))
    dice = random.Random(7)
    names = plan.names()
    for template, times in RARE.items():
        for at in sorted(end - RARE_SECONDS * dice.random() for _ in range(round(times * plan.nodes / 511))):
            node = names[int(plan.nodes * dice.random() ** 2)]  # some nodes are worse than others
            part = f'cluster="{plan.cluster}",node="{node}"'
            yield f"{template.format(part=part, node=node, gpu=dice.randrange(8))} 1 {at:.3f}\n"
