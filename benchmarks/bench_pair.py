"""The failure matrix of two Prometheis with Thanos or Mimir above them: batches lost, twice or wrong, and alerts.

Run: THANOS=path MIMIR=path .venv/bin/python benchmarks/bench_pair.py [--seconds 60] [--write docs/scale.md]

Everything on loopback, with the blocks of docs/howto/thanos.md and docs/howto/mimir.md: two simulated nodes with the
real node exporter, a run on each whose batches come in pairs a millisecond apart, two Prometheis, an Alertmanager. Each
part is killed (started again after 5 s) and paused. A GPU gets too hot meanwhile. docs/scale.md has the table.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

from harness import replace_between_marks

from pyrometer_simulator.failures import heading
from pyrometer_simulator.pair import above, history
from pyrometer_simulator.pair.faults import HEADINGS, Outcome, Play, matrix, row
from pyrometer_simulator.pair.mimir import TRACKED, Mimir
from pyrometer_simulator.pair.thanos import Thanos
from pyrometer_simulator.stack import find_stack

MARKS = "<!-- pair: begin -->", "<!-- pair: end -->"
BUCKET_SECONDS = 200.0


def main() -> int:
    """Play and print the table; 1 if anything was lost, twice or wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="how long a pause lasts")
    parser.add_argument("--only", default="thanos,mimir", help="what stands above, with commas")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the table there, between its two marks")
    flags = parser.parse_args()
    lines, words, bad = heading(HEADINGS), [], False
    for name in flags.only.split(","):
        if above.program(name) is None:
            print(above.missing(name), file=sys.stderr)
            return 2
        outcomes, said = _played(name, flags.seconds)
        lines += [row(name.capitalize(), each) for each in outcomes]
        words.append(said)
        bad |= not all(each.good for each in outcomes)
    today, load = time.strftime("%Y-%m-%d", time.gmtime()), os.getloadavg()[2]
    date = f"Played on {today} ({os.cpu_count()} cores, load {load:.0f})."
    lines += ["", *textwrap.wrap(" ".join((date, *words)), 140, break_long_words=False, break_on_hyphens=False)]
    print("\n".join(lines))
    if flags.write:
        replace_between_marks(flags.write, *MARKS, "\n" + "\n".join(lines) + "\n")
    return int(bad)


def _played(name: str, seconds: float) -> tuple[list[Outcome], str]:
    program = above.program(name) or Path()
    with tempfile.TemporaryDirectory(prefix=f"pyrometer-{name}-") as folder:
        at, stack = Path(folder) / "scene", find_stack()
        scene = Thanos(at, stack, program) if name == "thanos" else Mimir(at, stack, program)
        try:
            outcomes = list(_rows(name, scene, seconds))
            return outcomes, _eaten(scene) if isinstance(scene, Thanos) else _dropped(scene)
        finally:
            scene.close()


def _rows(name: str, scene: Thanos | Mimir, seconds: float) -> Iterator[Outcome]:
    chosen = [each for each in scene.pair.services if each != "other"]
    play = Play(scene.pair, scene.query, seconds)
    for outcome in play.run(matrix(chosen)):
        print(row(name.capitalize(), outcome), file=sys.stderr, flush=True)
        yield outcome


def _eaten(thanos: Thanos) -> str:
    """Return what either deduplication makes of a replica that was away for ten minutes for good."""
    old = history.histories()
    kept, eaten = thanos.lost_by_deduplication(old, BUCKET_SECONDS)
    pairs = [f"{each.count:,} batches {each.every:g} s apart {lost}" for each, lost in zip(old, kept, strict=True)]
    penalised = [f"{lost} of those {each.every:g} s apart" for each, lost in zip(old, eaten, strict=True)]
    return (
        f"Half an hour from Thanos' bucket, of which one replica lacks ten minutes for good: chain loses of "
        f"{' and of '.join(pairs)}; penalty loses {' and '.join(penalised)}."
    )


def _dropped(mimir: Mimir) -> str:
    """Return what the tracker alone would have lost in the same time."""
    until = time.time() - 30.0
    batches = mimir.pair.batches(mimir.query)
    lost, *_ = batches.differences(until, TRACKED)
    return (
        f"In the same time Mimir's tracker alone, without the page's second remote write, lost {lost:,} of "
        f"{sum(batches.trained(until).values()):,} batches."
    )


if __name__ == "__main__":
    sys.exit(main())
