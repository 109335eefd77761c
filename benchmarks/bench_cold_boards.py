"""Time how long each board takes to be drawn in a browser that never saw Grafana, over a day of 4,088 GPUs.

    GRAFANA_HOME=/usr/share/grafana .venv/bin/python benchmarks/bench_cold_boards.py [--nodes=511] [--write=FILE]

Makes the world of measure_boards.py with a day behind it, then starts a Prometheus on its data that takes in nothing
and a Grafana with the boards, and opens them as `python -m tools.screenshots` does, an empty board before each. With
--data=FOLDER the world is kept there, and taken from there the next time: its making takes longer than a round.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from harness import exit_on_signals
from measure_boards import cluster_with_past
from tools.screenshots.boards import View, pixels, replace_between_marks, timing_table, visit_boards
from tools.screenshots.browser import find_chromium
from tools.screenshots.grafana import board_url, load_board

from pyrometer_dashboards.common import OVERVIEW
from pyrometer_dashboards.main import rendered
from pyrometer_simulator.demo import grafana
from pyrometer_simulator.stack import find_stack
from pyrometer_simulator.stack.prometheus import running

ROOT = Path(__file__).resolve().parents[1]
DAY = 86400
CHOSEN = {"datasource": "prometheus", "cluster": "atlas", "node": "gpu-042", "run": "llama3-70b"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=511)
    parser.add_argument("--warm", type=float, default=240.0, metavar="SECONDS")
    parser.add_argument("--thin", type=int, default=400, help="names with more series have a sample every 4 minutes")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", type=pixels, default="1600x900", metavar="WIDTHxHEIGHT", help="of the window")
    parser.add_argument(
        "--data", type=Path, metavar="FOLDER", help="keep the world there, or take the one that is there"
    )
    parser.add_argument("--boards", nargs="*", metavar="NAME", help="only these, such as node or gpu-matrix")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table there, between its two marks")
    flags = parser.parse_args()
    exit_on_signals()
    boards = {name: text for name, text in rendered().items() if Path(name).stem in (flags.boards or [Path(name).stem])}
    with tempfile.TemporaryDirectory(prefix="pyrometer-cold-") as name:
        folder = flags.data or Path(name)
        end = _world(folder, flags.nodes, flags.warm, flags.thin)
        with _quiet(folder) as prometheus, _grafana(Path(name), prometheus) as url:
            view = View("dark", (f"{(end - DAY) * 1000:.0f}", f"{end * 1000:.0f}"), flags.size, CHOSEN)
            # The server's own first answer is no part of a load.
            load_board(find_chromium(), board_url(url, OVERVIEW, view.theme, view.times, CHOSEN), flags.size)
            visits = []
            for visit in visit_boards(boards, url, [view], None, flags.rounds, below=False, paired=True):
                print(visit.line(), file=sys.stderr, flush=True)
                visits.append(visit)
    table = f"{timing_table(visits, flags.size)}\n"
    if flags.write:
        replace_between_marks(flags.write, table)
    else:
        print(table)
    return 0


def _world(folder: Path, nodes: int, warm: float, thin: int) -> float:
    """Make a cluster's data with a day behind it, unless the folder has one; return when it ends."""
    folder.mkdir(parents=True, exist_ok=True)
    ends = folder / "ends"
    if not ends.exists():
        with cluster_with_past(folder, nodes, warm, DAY, thin):
            end = time.time()
        ends.write_text(str(end))
    return float(ends.read_text())


@contextlib.contextmanager
def _quiet(folder: Path) -> Iterator[str]:
    """Yield the address of a Prometheus that has the data and takes in nothing."""
    config = folder / "quiet.yaml"
    config.write_text("global: {scrape_interval: 15s}\n")
    flags = [f"--config.file={config}", f"--storage.tsdb.path={folder}/data", "--storage.tsdb.retention.time=60d"]
    with running(find_stack().prometheus, lambda _: flags, folder / "log") as url:
        yield url


@contextlib.contextmanager
def _grafana(folder: Path, prometheus: str) -> Iterator[str]:
    found = grafana.find(ROOT, os.environ, docker=False)
    if not isinstance(found, grafana.Installed):
        sys.exit(f"no Grafana here; {grafana.HINT}")
    with grafana.running(found, ROOT, folder, prometheus) as url:
        yield url


if __name__ == "__main__":
    sys.exit(main())
