"""The failure matrix of VictoriaMetrics' cluster version: what it loses, doubles or gets wrong while its parts fail.

Run: PATH=FOLDER:$PATH .venv/bin/python benchmarks/bench_victoria_cluster.py [--seconds 60] [--write docs/scale.md]

Two vminsert, two vmselect, three vmstorage with replication 2, vmauth, two vmalert and two vmagent on loopback, with
the flags of compose/compose.scale.yaml; five simulated nodes with the real node exporter, one of which dies at the
start, a run on each other whose batches come in pairs a millisecond apart; a Prometheus beside it. One service of each
kind after the other is killed (started again after 5 s), paused and cut off for --seconds, and the disks of a
vmstorage, a vmagent and a vmselect are full for as long (as root only). A GPU gets too hot during each fault, and every
query of every board is asked during it, and afterwards of both. docs/scale.md has the table.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import sys
import tempfile
import textwrap
import time
from pathlib import Path

from harness import replace_between_marks
from tools.board_lint.asked import asked

from pyrometer_simulator.stack import find_stack
from pyrometer_simulator.victoria.faults import Outcome, Play, matrix, row, table
from pyrometer_simulator.victoria.scene import NODES, VARIABLES, Scene
from pyrometer_simulator.victoria.shipped import missing

FIRST = ("vmagent-0", "vmauth", "vminsert", "vmstorage-0", "vmselect", "vmalert")
MARKS = "<!-- victoria: begin -->", "<!-- victoria: end -->"


def main() -> int:
    """Play and print the table; 1 if anything was lost, twice or wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="how long a pause, a cut or a full disk lasts")
    parser.add_argument("--only", default=",".join(FIRST), help="services, with commas")
    parser.add_argument("--faults", default="none,killed,paused,cut off,full", help="kinds of faults, with commas")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no fault later than this")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the table there, between its two marks")
    flags = parser.parse_args()
    if absent := missing():
        print(absent, file=sys.stderr)
        return 2
    begin = time.time()
    with tempfile.TemporaryDirectory(prefix="pyrometer-victoria-") as folder:
        scene = Scene(Path(folder) / "scene", find_stack())
        try:
            kinds = flags.faults.split(",")
            whole = matrix(flags.only.split(","), scene.cluster.small)
            chosen = [(service, fault) for service, fault in whole if fault in kinds]
            play = Play(scene, flags.seconds, list(asked(VARIABLES)))
            for outcome in play.run(chosen, begin + 60 * flags.minutes):
                print(row(outcome), flush=True)
            outcomes = play.outcomes
            lines = [*table(outcomes), "", *_words(play, chosen[len(outcomes) :])]
            ours, theirs = play.others()
        finally:
            scene.close()
    print("\n".join(lines))
    if flags.write:
        replace_between_marks(flags.write, *MARKS, "\n" + "\n".join(lines) + "\n")
    return 1 if _bad(outcomes) or ours or theirs else 0


def _bad(outcomes: list[Outcome]) -> int:
    return sum(each.lost + each.twice + each.wrong + len(each.problems) for each in outcomes)


def _words(play: Play, left: list[tuple[str, str]]) -> list[str]:
    """Return what belongs below the table."""
    ours, theirs = play.others()
    compared, answered = len(play.boards.compared()), play.boards.answered
    words = (
        f"Played on {time.strftime('%Y-%m-%d', time.gmtime())} ({os.cpu_count()} cores, {platform.machine()}, load "
        f"{os.getloadavg()[2]:.0f}), {len(NODES)} runs. The boards have {len(play.boards.expressions)} queries: "
        f"{compared} are compared, of which {answered} show something; those that differ without a fault: "
        f"{'; '.join(sorted(play.boards.differ)) or 'none'}. Alerts that only VictoriaMetrics told of: "
        f"{', '.join(sorted(ours)) or 'none'}; only Prometheus: {', '.join(sorted(theirs)) or 'none'}."
    )
    if left:
        words += f" Not played for want of time: {', '.join(' '.join(each) for each in left)}."
    return textwrap.wrap(words, 140, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    sys.exit(main())
