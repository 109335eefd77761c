"""The past that boards look back on, for a Prometheus that has just begun: weeks of what its rules record.

Which series, and how far back, is read out of the boards' own queries. Each gets a sample at its rule group's interval,
its value of this moment moved a little; what is rare (Xids, lost links) comes as often as large clusters told of.
"""

from __future__ import annotations

import json
import math
import random
import re
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import yaml

from pyrometer_dashboards.gates.promql import Node, parse
from pyrometer_simulator.fleet.batches import batches
from pyrometer_simulator.fleet.plan import Plan
from pyrometer_simulator.stack import find_stack

ROOT = Path(__file__).resolve().parents[1]
SCRAPE = 15
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
# Of 511 nodes in 30 days. Llama 3 had 419 interruptions on 2,048 nodes in 54 days: 58 here. The jobs' own errors (app)
# are far more; links and memory errors as in the field reports that the rules' comments name.
RARE = {
    'gpu:pyrometer_gpu_xid_errors:new5m{{{part},gpu="{gpu}",uuid="GPU-{node}-{gpu}",xid="79",class="critical"}}': 60,
    'gpu:pyrometer_gpu_xid_errors:new5m{{{part},gpu="{gpu}",uuid="GPU-{node}-{gpu}",xid="31",class="app"}}': 3000,
    'gpu:pyrometer_gpu_ecc_uncorrected:new5m{{{part},gpu="{gpu}"}}': 30,
    'port:pyrometer_nic_link_down_events:new5m{{{part},device="mlx5_{gpu}",port="1"}}': 600,
    "node:up:lost5m{{{part}}}": 120,
}
RARE_SECONDS = 30 * 86400


def looks_back(expr: str, span: int) -> Iterator[tuple[Node, int]]:
    """Each selector of a query, and how far back it reads in s; ``span`` is the range that it is drawn over."""
    for node, under in parse(expr).walk():
        if node.kind == "selector":
            yield node, span + sum(_seconds(each.window) for each in (node, *under))


def _seconds(window: str) -> int:
    """Of "5m" or "30d:5m"."""
    found = re.match(r"(\d+)([smhd])", window)
    return int(found[1]) * UNITS[found[2]] if found else 0


def make_history(queries: Iterable[tuple[str, int]], url: str, plan: Plan, end: float, folder: Path) -> None:
    """Blocks in ``folder`` of all that these queries (text, range in s) look back on, up to ``end``."""
    path, written = folder.with_name("past.om"), 0
    with path.open("w") as file:
        for lines in _history(queries, url, plan, end):
            file.writelines(lines)
            written += len(lines)
        file.write("# EOF\n")
    print(f"{written:,} samples of the boards' history", file=sys.stderr)
    command: list[str | Path] = [
        find_stack().promtool,
        "tsdb",
        "create-blocks-from",
        "openmetrics",
        "--max-block-duration=600h",
        path,
        folder,
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    path.unlink()


def _history(queries: Iterable[tuple[str, int]], url: str, plan: Plan, end: float) -> Iterator[list[str]]:
    intervals = dict(_intervals())
    for series, (value, seconds) in _series(queries, url).items():
        step = intervals.get(series.partition("{")[0], SCRAPE)
        yield [f"{series} {_moved(series, value, at)} {at:.3f}\n" for at in _times(end, seconds, step)]
    yield from ([f"{series} {value} {at:.3f}\n"] for series, value, at in batches(plan, end - 7200, end))
    yield from _rare(plan, end)


def _series(queries: Iterable[tuple[str, int]], url: str) -> dict[str, tuple[float, int]]:
    """Each series that a query looks back on for more than minutes: its value now, and how far. Not what is rare."""
    found: dict[str, tuple[float, int]] = {}
    for selector, seconds in _furthest(queries).items():
        own = selector.partition("{")[0]
        if seconds > 600 and not own.endswith(("new5m", "lost5m")) and not own.startswith("pyrometer_train_batch_"):
            for series, value in _now(url, selector):
                found[series] = (value, max(seconds, found.get(series, (value, 0))[1]))
    return found


def _furthest(queries: Iterable[tuple[str, int]]) -> Mapping[str, int]:
    """Selectors as text, each with the longest look back at it."""
    found: dict[str, int] = {}
    for expr, span in queries:
        for node, seconds in looks_back(expr, span):
            matchers = ",".join(f'{label}{operator}"{value}"' for label, operator, value in node.matchers)
            text = f"{node.name}{{{matchers}}}"
            found[text] = max(found.get(text, 0), seconds)
    return found


def _intervals() -> Iterator[tuple[str, int]]:
    """Recorded names and how often they are recorded, in s."""
    for path in (ROOT / "alert_rules").glob("*.rules.yaml"):
        for group in yaml.safe_load(path.read_text())["groups"]:
            step = _seconds(group.get("interval", f"{SCRAPE}s"))
            yield from ((rule["record"], step) for rule in group["rules"] if "record" in rule)


def _now(url: str, selector: str) -> Iterator[tuple[str, float]]:
    asked = urllib.parse.urlencode({"query": f"last_over_time({selector}[10m])"}).encode()
    with urllib.request.urlopen(f"{url}/api/v1/query", data=asked) as answer:  # noqa: S310  our own loopback address
        result = json.load(answer)["data"]["result"]
    name = selector.partition("{")[0]
    for each in result:
        labels = ",".join(
            f"{label}={json.dumps(value)}" for label, value in each["metric"].items() if label != "__name__"
        )
        yield f"{name}{{{labels}}}", float(each["value"][1])


def _times(end: float, seconds: int, step: int) -> Iterator[float]:
    return (end - seconds + number * step for number in range(seconds // step))


def _moved(series: str, value: float, at: float) -> float:
    """Counters grow, other values wander by a hundredth; 0 and 1 stay."""
    if value in (0, 1) or not math.isfinite(value):
        return value
    if "_total{" in series or series.startswith("run:pyrometer_run_seconds:total{"):
        return round(value * at / (at + 1e6), 3)
    return round(value * (1 + 0.01 * math.sin(at / 97 + len(series))), 4)


def _rare(plan: Plan, end: float) -> Iterator[list[str]]:
    """Events at random moments; nodes that had one are likelier to have the next."""
    dice = random.Random(7)
    names = plan.names()
    for template, times in RARE.items():
        for at in sorted(end - RARE_SECONDS * dice.random() for _ in range(round(times * plan.nodes / 511))):
            node = names[int(plan.nodes * dice.random() ** 2)]
            part = f'cluster="{plan.cluster}",node="{node}"'
            yield [f"{template.format(part=part, node=node, gpu=dice.randrange(8))} 1 {at:.3f}\n"]
