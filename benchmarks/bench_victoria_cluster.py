"""The failure matrix of VictoriaMetrics' cluster version: what it loses, doubles or gets wrong while its parts fail.

Run: PATH=FOLDER:$PATH .venv/bin/python benchmarks/bench_victoria_cluster.py [--seconds 15] [--only vmstorage-0,vmauth]

Two vminsert, two vmselect, three vmstorage with replication 2, vmauth, two vmalert and two vmagent on loopback, with
the flags of compose/compose.scale.yaml; four simulated nodes with the real node exporter, a run on each whose batches
come in pairs a millisecond apart; a Prometheus beside it. One service of each kind after the other is killed (started
again after 5 s), paused and cut off for --seconds, and the disk of one vmstorage is full for as long (as root only).
A GPU gets too hot during each fault. docs/scale.md has the table.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from pyrometer_simulator.stack import find_stack
from pyrometer_simulator.victoria.faults import Play, every
from pyrometer_simulator.victoria.scene import Scene
from pyrometer_simulator.victoria.shipped import missing

FIRST = ("vmagent-0", "vmauth", "vminsert", "vmstorage-0", "vmselect", "vmalert")


def main() -> int:
    """Play and print the table; 1 if anything was lost, twice or wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seconds", type=float, default=15.0, help="how long a pause, a cut or a full disk lasts")
    parser.add_argument("--only", default=",".join(FIRST), help="services, with commas")
    parser.add_argument("--faults", default="none,killed,paused,cut off,full", help="kinds of faults, with commas")
    flags = parser.parse_args()
    if absent := missing():
        print(absent, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="pyrometer-victoria-") as folder:
        scene = Scene(Path(folder) / "scene", find_stack())
        try:
            chosen = [
                each for each in every(flags.only.split(","), scene.cluster.small) if each[1] in flags.faults.split(",")
            ]
            print(
                "| component | fault | s | lost | twice | wrong | s blind | s until complete | s alert later | alerts |"
            )
            print("|---|---|---|---|---|---|---|---|---|---|", flush=True)
            play = Play(scene, flags.seconds, lambda line: print(line, flush=True))
            outcomes = play.run(chosen)
            ours, theirs = play.others()
        finally:
            scene.close()
    for outcome in outcomes:
        for problem in outcome.problems:
            print(f"{outcome.component} {outcome.fault}: {problem}")
    print(f"alerts that only VictoriaMetrics told of: {sorted(ours)}; only Prometheus: {sorted(theirs)}")
    bad = sum(outcome.lost + outcome.twice + outcome.wrong + len(outcome.problems) for outcome in outcomes)
    return 1 if bad or ours or theirs else 0


if __name__ == "__main__":
    sys.exit(main())
