"""Measure what every panel of every board costs at 4,088 GPUs: series, bytes and milliseconds at Prometheus.

    .venv/bin/python benchmarks/measure_boards.py [--nodes=511] [--write=docs/dashboards.md]

Makes a simulated cluster's last minutes through promtool, starts Prometheus on it with the project's rules, lets it
scrape the cluster for --warm seconds, gives it the weeks before that the boards look back on (backfill.py), and
asks what the boards ask, while it scrapes and evaluates. --prometheus-url asks one that runs already.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import yaml
from backfill import events, lookbacks, write_past
from harness import exit_on_signals, replace_between_marks
from tools.board_lint import finding
from tools.board_lint.interpolation import builtin_variables, interpolate

from pyrometer_dashboards.main import rendered
from pyrometer_simulator.fleet.feed import Feed
from pyrometer_simulator.fleet.openmetrics import write_history
from pyrometer_simulator.fleet.plan import Plan, planted
from pyrometer_simulator.http_call import call
from pyrometer_simulator.http_server import HttpServer
from pyrometer_simulator.stack import find_stack
from pyrometer_simulator.stack.prometheus import running

ROOT = Path(__file__).resolve().parents[1]
# The budget at Prometheus (docs/design.md): of a panel, and of a board above the fold (the first 900 pixels).
PANEL_MS, PANEL_BYTES, FOLD_MS = 1000, 1_500_000, 1000
FOLD_ROWS = 21
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
TRIES = 3
# The scrape interval, and the maximum width of a panel in pixels.
SCRAPE, PIXELS = 15, 1000
# The lines around the table on its page.
MARKS = "<!-- measured: begin -->\n", "<!-- measured: end -->"
# The interval at which Prometheus looks for new blocks in its folder, with a margin.
BLOCKS_SEEN = 75


@dataclass(frozen=True)
class Asked:
    """A query as Grafana would send it: over so many seconds, in steps (0: only at their end)."""

    expr: str
    seconds: int
    step: int


@dataclass(frozen=True)
class Cost:
    board: str
    panel: str
    fold: bool
    series: int
    size: int
    milliseconds: float


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prometheus-url", default="")
    parser.add_argument("--nodes", type=int, default=511)
    parser.add_argument("--warm", type=float, default=240.0, metavar="SECONDS")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table there, between its two marks")
    flags = parser.parse_args()
    exit_on_signals()
    with contextlib.ExitStack() as opened:
        url = flags.prometheus_url or opened.enter_context(_started(flags.nodes, flags.warm))
        table = _table(list(costs_of_panels(url)), flags.nodes)
    if flags.write is None:
        print(table)
    else:
        replace_between_marks(flags.write, *MARKS, f"{table}\n")
    return 0


@contextlib.contextmanager
def _started(nodes: int, warm: float) -> Iterator[str]:
    with (
        tempfile.TemporaryDirectory(prefix="pyrometer-boards-") as name,
        cluster_with_past(Path(name), nodes, warm) as url,
    ):
        yield url


@contextlib.contextmanager
def cluster_with_past(folder: Path, nodes: int, warm: float, over: int = 0, thin: int = 0) -> Iterator[str]:
    """Yield the address of a Prometheus that scrapes a cluster with faults and has the past that boards look back on.

    Args:
        folder: its data and configuration go there.
        nodes: of the cluster.
        warm: seconds of scraping before the past is made of it.
        over: the time range of all boards in seconds; 0 for each board's own.
        thin: names with more series than this get a sample every four minutes of the past; 0 for none.
    """
    stack = find_stack()
    plan = Plan(nodes=nodes, faults=planted(nodes, time.time() - 600))
    begins = time.time() - 960
    _backfill(plan, begins, folder, stack.promtool)
    server = HttpServer(Feed(plan).respond).start()
    flags = partial(_configure, folder, server.server_port)
    with running(stack.prometheus, flags, folder / "log") as url:
        print(f"scraping {nodes} nodes for {warm:.0f} s", file=sys.stderr)
        time.sleep(warm)
        asked = [each for _, _, each in _all_asked(over)]
        reaches = [reach for each in asked for reach in lookbacks(each.expr, each.seconds if each.step else 0)]
        write_past(reaches, url, begins, folder / "data", events(plan, begins), thin=thin)
        time.sleep(BLOCKS_SEEN)
        yield url
    server.stop()


def _backfill(plan: Plan, begins: float, folder: Path, promtool: Path) -> None:
    """Write fifteen minutes of history at 60 s (4 million samples at 511 nodes) for Prometheus to continue."""
    path = folder / "history.om"
    with path.open("w") as file:
        written = write_history(plan, begins, begins + 900, 60, file)
    print(f"{written} samples of history", file=sys.stderr)
    command: list[str | Path] = [promtool, "tsdb", "create-blocks-from", "openmetrics", path, folder / "data"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    path.unlink()


def _configure(folder: Path, feed: int, port: int) -> list[str]:
    """Write the configuration, which names the port, and return Prometheus' flags."""
    own_instance = {"source_labels": ["instance"], "regex": "127.*", "target_label": "instance", "replacement": ""}
    targets = {"honor_labels": True, "static_configs": [{"targets": [f"127.0.0.1:{feed}"]}]}
    targets["metric_relabel_configs"] = [own_instance]
    own = {"job_name": "prometheus", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
    jobs = [{"job_name": "feed", **targets}, {"job_name": "batches", "metrics_path": "/batches", **targets}, own]
    timing = {"scrape_interval": "15s", "scrape_timeout": "14s", "evaluation_interval": "15s"}
    rules = [str(ROOT / "alert_rules" / "*.rules.yaml")]
    (folder / "p.yaml").write_text(yaml.safe_dump({"global": timing, "rule_files": rules, "scrape_configs": jobs}))
    kept = ["--log.level=error", "--storage.tsdb.retention.time=60d"]
    return [f"--config.file={folder}/p.yaml", f"--storage.tsdb.path={folder}/data", *kept]


def costs_of_panels(
    url: str, over: int = 0, where: Mapping[str, str] | None = None, tries: int = TRIES
) -> Iterator[Cost]:
    """Ask what every panel asks, and yield what it costs.

    Args:
        url: of a Prometheus.
        over: the time range of all boards in seconds; 0 for each board's own.
        where: values of the boards' variables, where the cluster is not that of Plan.
        tries: of each query, of which the shortest counts.
    """
    for name, text in rendered().items():
        board = json.loads(text)
        shown = [panel["id"] for panel in finding.visible(board)]
        for panel in finding.panels(board):
            costs = [_cost(url, _asked(board, panel, target, over, where), tries) for target in finding.targets(panel)]
            fold = panel["id"] in shown and panel["gridPos"]["y"] < FOLD_ROWS
            if not costs:  # a panel that is text
                continue
            series, size, spent = (sum(each) for each in zip(*costs, strict=True))
            yield Cost(name.removesuffix(".json"), panel["title"], fold, int(series), int(size), spent)


def _all_asked(over: int = 0) -> Iterator[tuple[str, str, Asked]]:
    """Yield every query of every board, with the board's name and the panel's title; ``over`` replaces its range."""
    for name, text in rendered().items():
        board = json.loads(text)
        for panel in finding.panels(board):
            yield from ((name, panel["title"], _asked(board, panel, target, over)) for target in finding.targets(panel))


def _asked(
    board: finding.Json,
    panel: finding.Json,
    target: finding.Json,
    over: int = 0,
    where: Mapping[str, str] | None = None,
) -> Asked:
    """Return the query over the board's range or the panel's own, in its own steps or one point per pixel."""
    own = panel.get("timeFrom")
    seconds = _seconds(own) if own else over or _seconds(board["time"]["from"].removeprefix("now-"))
    least = _seconds(target.get("interval") or panel.get("interval") or f"{SCRAPE}s")
    step = max(least, seconds // (panel.get("maxDataPoints") or PIXELS))
    filling = builtin_variables(seconds) | {
        "__interval": f"{step}s", "__rate_interval": f"{max(step + SCRAPE, 4 * SCRAPE)}s",
        "cluster": "atlas", "node": "gpu-042", "gpu": ".+", "run": "llama3-70b", "jobs": ".*", "points": "3600",
        "what": "temperature", "arrange": "number", "mfu": "pyrometer_train_batch_mfu_ratio",
        "steps": "pyrometer_train_batch_step",
    }  # fmt: skip
    if seconds > 90000:
        filling["mfu"] = "run:pyrometer_train_batch_mfu_ratio:window1m"
        filling["steps"] = "none"
    filling |= where or {}
    return Asked(interpolate(target["expr"], filling), seconds, step if target.get("range") else 0)


def _seconds(text: str) -> int:
    return 0 if text.endswith("ms") else int(text[:-1]) * SECONDS[text[-1]]


def _cost(url: str, asked: Asked, tries: int) -> tuple[int, int, float]:
    """Return series, bytes and the shortest of so many tries in ms of one query."""
    now = time.time()
    form: dict[str, object] = {"query": asked.expr, "time": now}
    if asked.step:
        form |= {"start": now - asked.seconds, "end": now, "step": asked.step}
    path = f"{url}/api/v1/query{'_range' if asked.step else ''}"
    best, body = min((_ask(path, form) for _ in range(tries)), key=lambda each: each[0])
    return len(json.loads(body)["data"]["result"]), len(body), best


def _ask(url: str, asked: dict[str, object]) -> tuple[float, bytes]:
    start = time.perf_counter()
    body = call(url, urllib.parse.urlencode(asked).encode(), seconds=300).body
    return (time.perf_counter() - start) * 1000, body


def _table(costs: list[Cost], nodes: int) -> str:
    load = os.getloadavg()[0]
    told = (
        f"{nodes} nodes, {nodes * 8:,} GPUs, each board over its own time range; shortest of {TRIES} tries, at a load "
        f"of {load:.1f} on {os.cpu_count()} cores."
    )
    lines = [told, "", "| board | panel | series | kB | ms |", "|---|---|---|---|---|"]
    slow: list[str] = []
    for board in dict.fromkeys(cost.board for cost in costs):
        own = [cost for cost in costs if cost.board == board]
        lines += [f"| {c.board} | {c.panel} | {c.series} | {c.size / 1000:.1f} | {c.milliseconds:.0f} |" for c in own]
        fold, whole = (sum(c.milliseconds for c in own if c.fold or not only) for only in (True, False))
        size = sum(c.size for c in own) / 1000
        lines.append(f"| **{board}** | **above the fold {fold:.0f} ms, in all** | | **{size:.0f}** | **{whole:.0f}** |")
        slow += [board] if fold > FOLD_MS else []
    over = [c for c in costs if c.milliseconds > PANEL_MS or c.size > PANEL_BYTES]
    lines += ["", f"Over the budget of {PANEL_MS} ms and {PANEL_BYTES / 1e6:.1f} MB a panel: {_named(over)}."]
    lines += [f"Over the budget of {FOLD_MS} ms above the fold: {', '.join(slow) or 'none'}."]
    return "\n".join(lines)


def _named(costs: list[Cost]) -> str:
    return ", ".join(f"{c.board} '{c.panel}'" for c in costs) or "none"


if __name__ == "__main__":
    sys.exit(main())
