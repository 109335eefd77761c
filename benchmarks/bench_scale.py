"""Measure one store with the rules and boards of a fleet, at several sizes: 2,048 nodes are 16,384 GPUs.

Run: .venv/bin/python benchmarks/bench_scale.py [--sizes 256,512,1024,2048] [--interval 30] [--profile full]
     ... --ask load --store victoria   series, samples/s, memory and CPU alone, also of VictoriaMetrics
     ... --ask rules                   these and each rule

The cluster of recorded_cluster.py with eight runs, and the project's configuration and rules. For each size, one after
another: it is scraped until every rule has been evaluated, gets the past that its rules look back on, is scraped for
--minutes more, and then series, samples/s, memory and CPU are read, every panel of every board is asked, and each rule
with all else at rest (rule_costs.py), whole and in shards (measure_shards.py). A size that needs more memory than the
machine has is left out, and said. --into keeps the figures as JSON, a line for each size.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

from backfill import lookbacks, write_past
from harness import cpu_seconds, exit_on_signals, rss_megabytes
from measure_boards import costs_of_panels
from measure_shards import Split, ways
from measure_shards import measured as shards_measured
from recorded_cluster import CLUSTER, RUN, Answers, lay_out, record, run_names, serve
from rule_costs import Group, groups_in, measured, rest
from stores import Store, disk, prometheus, victoria

from pyrometer_simulator.demo.processes import Processes

ASKED = ("load", "boards", "rules", "shards")
SHARDS = 4  # of nodes; of runs one for each
BYTES_A_SERIES = {"full": 4.5e3 * 3130, "standard": 4.5e3 * 1760, "minimal": 4.5e3 * 1495}  # docs/sizing.md
BYTES_A_SAMPLE = 2.8  # on disk, docs/sizing.md
# The groups that take longer than 1 s alone with 2,048 nodes, the slowest first.
SLOW = (
    "pyrometer_nic_slow", "pyrometer_train_straggler", "pyrometer_fleet_nic", "pyrometer_train_stalled",
    "pyrometer_gpu_memory", "pyrometer_gpu_health", "pyrometer_fleet_deviation", "pyrometer_fleet_xids",
    "pyrometer_fleet_map", "pyrometer_nic_links", "pyrometer_fleet_bands", "pyrometer_gpu", "pyrometer_fleet_train",
    "pyrometer_nic", "pyrometer_fleet_power",
)  # fmt: skip
Row = dict[str, Any]


def memory_left() -> float:
    """Return the bytes that are free for programs."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    (found,) = (line.split()[1] for line in lines if line.startswith("MemAvailable:"))
    return float(found) * 1024


def measure(folder: Path, nodes: int, flags: argparse.Namespace) -> Row:
    """Return the figures of one size."""
    text = record(folder, f"--metrics.profile={flags.profile}")
    lay_out(folder, nodes, flags.interval, serve(Answers(text, nodes, flags.interval, flags.runs)))
    with Processes(folder) as processes:
        store = Store(folder, processes)
        begins = time.time()
        queries = {"prometheus": prometheus, "victoria": victoria}[flags.store](store, flags.interval)
        _say(f"{nodes} nodes: {store.url}, processes {store.pids}")
        time.sleep(flags.settled)
        if not flags.quick and flags.ask != {"load"}:
            exprs = [rule["expr"] for group in groups_in(folder / "rules") for rule in group["rules"]]
            write_past([reach for expr in exprs for reach in lookbacks(expr)], store.url, begins, folder / "data")
        found = _watched(store, flags.minutes * 60)
        found |= {what: store.value(query) for what, query in queries.items()}
        found["disk a day, GB"] = found["samples/s"] * 86_400 * BYTES_A_SAMPLE / 1e9
        if flags.disk:
            found |= disk(store, flags.store)
        found |= _quickly(store, nodes, flags) if flags.quick else _asked(store, nodes, flags)
    found |= {"nodes": nodes, "runs": flags.runs, "profile": flags.profile, "store": flags.store}
    return found | {"interval": flags.interval, "load": os.getloadavg()[1], "at": time.strftime("%Y-%m-%d %H:%M")}


def _asked(store: Store, nodes: int, flags: argparse.Namespace) -> Row:
    """Return what those of boards, rules and shards take that are asked for."""
    found = _boards(store, nodes, flags.tries) if "boards" in flags.ask else {}
    if not flags.ask & {"rules", "shards"}:
        return found
    at = time.time()
    # The last two thirds, and two scrapes at least: each has a group's last evaluation.
    window = max(round(flags.minutes * 40), 2 * flags.interval)
    groups = measured(store, f"{window}s", flags.tries)
    found["groups"] = [vars(group) for group in groups]
    _say(f"{nodes} nodes: rules were asked one by one")
    return found | (_shards(store, flags.runs, (at, flags.tries)) if "shards" in flags.ask else {})


def _quickly(store: Store, nodes: int, flags: argparse.Namespace) -> Row:
    """Return what boards and the groups of SLOW take while nothing is scraped, the groups whole and in shards."""
    at = time.time()
    rest(store)
    return _boards(store, nodes, flags.tries) | _shards(store, flags.runs, (at, flags.tries), SLOW)


def _shards(store: Store, runs: int, asked: tuple[float, int], only: Collection[str] = ()) -> Row:
    chosen = ways(store.folder / "targets/nodes.yaml", SHARDS, run_names(runs))
    found = shards_measured(store.url, store.folder / "rules", chosen, asked, only)
    return {"shards": [vars(each) for each in found]}


def _watched(store: Store, seconds: float) -> Row:
    """Return memory and CPU of the store over so many seconds, and of each of its programs."""
    before, began = {name: cpu_seconds(pid) for name, pid in store.pids.items()}, time.monotonic()
    most = 0.0
    while time.monotonic() - began < seconds:
        time.sleep(2)
        most = max(most, sum(map(rss_megabytes, store.pids.values())))
    passed = time.monotonic() - began
    cores = {name: (cpu_seconds(pid) - before[name]) / passed for name, pid in store.pids.items()}
    memory = {name: rss_megabytes(pid) for name, pid in store.pids.items()}
    programs = {name: [memory[name], cores[name]] for name in store.pids}
    return {"MB": sum(memory.values()), "most MB": most, "cores": sum(cores.values()), "programs": programs}


def _boards(store: Store, nodes: int, tries: int) -> Row:
    """Return the time of all panels by board, the slowest panel and the largest."""
    where = {"cluster": CLUSTER, "node": f"gpu-{nodes // 2:04d}", "run": RUN}
    panels = list(costs_of_panels(store.url, 900, where, tries))
    boards: dict[str, float] = {}
    for panel in panels:
        boards[panel.board] = boards.get(panel.board, 0.0) + panel.milliseconds
    slow, large = max(panels, key=lambda each: each.milliseconds), max(panels, key=lambda each: each.size)
    return {
        "boards": boards,
        "slow panel": [slow.board, slow.panel, slow.milliseconds],
        "large panel": [large.board, large.panel, large.size],
        "panels over 1 s": [[each.board, each.panel, each.milliseconds] for each in panels if each.milliseconds > 1000],
    }


FIGURES = {
    "series": "{series:,.0f}",
    "samples/s": "{samples/s:,.0f}",
    "memory, at most": "{GB:.1f} GB, {most GB:.1f} GB",
    "CPU, rules included": "{cores:.2f} cores",
    "each program": "{each program}",
    "bytes a sample on disk": "{bytes/sample:.2f}",
    "bytes of index a series on disk": "{index bytes/series:.0f}",
    "disk a day": "{disk a day, GB:.1f} GB",
    "slowest scrape": "{slowest scrape, s:.2f} s",
    "missed evaluations": "{missed rule evaluations:.0f}",
    "rule groups while scraping, slowest and all": "{slowest rule group, s:.2f} s, {all rule groups, s:.1f} s",
    "slowest group alone": "{group} {alone:.2f} s",
    "all groups alone, one after another": "{all alone:.1f} s",
    "groups above 1 s alone": "{slow groups}",
    "slowest board, all panels": "{board} {board ms:,.0f} ms",
    "slowest panel": "{panel} {panel ms:,.0f} ms",
    "largest answer": "{size MB:.2f} MB",
    "panels above 1 s": "{slow panels}",
    "load": "{load:.0f}",
}


def table(rows: list[Row]) -> str:
    """Return the sizes side by side."""
    heads = [f"{row['nodes']:,} nodes, {row['profile']}, each {row['interval']} s" for row in rows]
    lines = [f"| | {' | '.join(heads)} |", f"|---|{'---|' * len(rows)}"]
    shown = [_shown(row) for row in rows]
    figures = {what: [_figure(form, row) for row in shown] for what, form in FIGURES.items()}
    lines += [f"| {what} | {' | '.join(cells)} |" for what, cells in figures.items() if set(cells) != {"-"}]
    whole = [(row, head) for row, head in zip(rows, heads, strict=True) if "groups" in row]
    if whole:
        lines += ["", *_groups_table([row for row, _ in whole], [head for _, head in whole])]
    for row, head in zip(rows, heads, strict=True):
        lines += ["", *_shards_table(row, head)] if "shards" in row else []
    return "\n".join(lines)


def _figure(form: str, row: Row) -> str:
    try:
        return form.format(**row)
    except KeyError:  # not asked
        return "-"


def _shown(row: Row) -> Row:
    programs = (f"{name} {memory:,.0f} MB, {cores:.2f} cores" for name, (memory, cores) in row["programs"].items())
    row = row | {"GB": row["MB"] / 1e3, "most GB": row["most MB"] / 1e3, "each program": "; ".join(programs)}
    if "groups" in row:
        over = sorted(row["groups"], key=lambda group: -group["alone"])
        row |= {
            "group": f"`{over[0]['name']}`", "alone": over[0]["alone"],
            "all alone": sum(each["alone"] for each in over),
            "slow groups": ", ".join(f"`{each['name']}`" for each in over if each["alone"] > 1) or "none",
        }  # fmt: skip
    if "boards" not in row:
        return row
    board = max(row["boards"], key=lambda name: row["boards"][name])
    return row | {
        "board": board.removesuffix(".json"), "board ms": row["boards"][board],
        "panel": " ".join(row["slow panel"][:2]), "panel ms": row["slow panel"][2],
        "size MB": row["large panel"][2] / 1e6, "slow panels": len(row["panels over 1 s"]),
    }  # fmt: skip


def _groups_table(rows: list[Row], heads: list[str]) -> list[str]:
    """Return the groups that take 40 ms or more at the last size: CPU and clock alone, and while scraping."""
    by_name = [{group["name"]: Group(**group) for group in row["groups"]} for row in rows]
    last = sorted(by_name[-1].values(), key=lambda group: -group.alone)
    lines = [f"| group: CPU alone, alone, while scraping | {' | '.join(heads)} |", f"|---|{'---|' * len(rows)}"]
    for name in (group.name for group in last if group.alone >= 0.04):
        own = [groups[name] for groups in by_name]
        cells = [f"{one.cpu * 1e3:.0f}, {one.alone * 1e3:.0f}, {one.median * 1e3:.0f} ms" for one in own]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return lines


def _shards_table(row: Row, head: str) -> list[str]:
    """Return what the groups of a size take whole and in shards, the dearest first; and what differs."""
    found = sorted((Split(**each) for each in row["shards"]), key=lambda each: -each.whole)
    lines = [
        f"| {head} | split by | whole | slowest shard | all shards | rules kept whole | values |",
        "|---" * 7 + "|",
    ]
    for each in (each for each in found if each.whole >= 0.1 or each.name in SLOW):
        seconds = each.whole, each.slowest, each.together, each.kept
        times = " | ".join(f"{one * 1000:.0f} ms" for one in seconds)
        lines.append(f"| `{each.name}` | {each.label} | {times} | {each.values:,} |")
    differing = [f"{each.name}: {what}" for each in found for what in each.differing]
    values = sum(each.values for each in found)
    told = f"{len(found)} groups in shards, {values:,} values compared, {len(differing)} differ"
    return [*lines, "", told, *differing[:5]]


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="256,512,1024,2048", help="numbers of nodes (%(default)s)")
    parser.add_argument("--interval", type=int, default=30, help="of scrapes and rules, in seconds (%(default)s)")
    parser.add_argument("--profile", choices=BYTES_A_SERIES, default="full", help="of the exporter (%(default)s)")
    parser.add_argument("--store", choices=("prometheus", "victoria"), default="prometheus", help="(%(default)s)")
    parser.add_argument("--ask", default=",".join(ASKED), help="any of these, with commas; VictoriaMetrics: load")
    parser.add_argument("--disk", action="store_true", help="bytes a sample; truest with --interval 1 --minutes 3")
    parser.add_argument("--runs", type=int, default=8, help="that share the nodes (%(default)s)")
    parser.add_argument("--minutes", type=float, default=3.0, help="of scraping that are measured (%(default)s)")
    parser.add_argument(
        "--settled", type=float, default=150.0, help="seconds until each rule was evaluated, but those of 5 min"
    )
    parser.add_argument("--tries", type=int, default=3, help="of each panel and rule (%(default)s)")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="no past, boards while nothing is scraped, and only the rules that pass 1 s first",
    )
    parser.add_argument("--into", type=Path, help="append the figures to this file")
    parser.add_argument("--show", type=Path, help="print the table of such a file and end")
    flags = parser.parse_args()
    flags.ask = {"load"} if flags.store == "victoria" else set(flags.ask.split(","))
    exit_on_signals()
    if flags.show:
        print(table([json.loads(line) for line in flags.show.read_text().splitlines()]))
        return
    rows = []
    for nodes in map(int, flags.sizes.split(",")):
        needed, left = nodes * BYTES_A_SERIES[flags.profile], memory_left()
        if needed > left:
            _say(f"{nodes} nodes left out: they need {needed / 1e9:.0f} GB, and {left / 1e9:.0f} GB are free")
            continue
        folder = Path(tempfile.mkdtemp(prefix="bench-scale-"))
        try:
            rows.append(measure(folder, nodes, flags))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if flags.into:
            with flags.into.open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
    if not rows:
        sys.exit("no size was measured")
    print(table(rows))
    if any(each["differing"] for row in rows for each in row.get("shards", ())):
        sys.exit("shards and whole groups differ")


if __name__ == "__main__":
    main()
