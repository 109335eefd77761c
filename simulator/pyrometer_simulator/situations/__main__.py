"""Play situations and report what fires: ``python -m pyrometer_simulator.situations [--write FILE] [WORDS ...]``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from pyrometer_simulator.situations.model import SCRAPE_INTERVALS
from pyrometer_simulator.situations.outcome import all_situations, cells_of, outcomes, page
from pyrometer_simulator.situations.verdict import Rules
from pyrometer_simulator.stack import StackError, find_stack


def main(argv: Sequence[str] | None = None) -> int:
    """Play the situations whose names contain the words; return 1 if one ends differently than it promises."""
    parser = argparse.ArgumentParser(
        prog="python -m pyrometer_simulator.situations", description=(__doc__ or "").partition(":")[0]
    )
    parser.add_argument("words", nargs="*", metavar="WORDS", help="part of a situation's name; all situations without")
    parser.add_argument("--interval", type=int, choices=SCRAPE_INTERVALS, action="append", help="scrape interval, s")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put what was played into the generated page")
    flags = parser.parse_args(argv)
    every = all_situations()
    chosen = [each for each in every if all(word.lower() in each.name.lower() for word in flags.words)]
    try:
        promtool = find_stack(lambda line: print(line, file=sys.stderr)).promtool
    except StackError as error:
        print(f"situations: {error}", file=sys.stderr)
        return 2
    cells = cells_of(flags.write.read_text(encoding="utf-8")) if flags.write and flags.write.exists() else {}
    rules = Rules()
    wrong = 0
    for situation in chosen:
        for outcome in outcomes(promtool, [situation], flags.interval or SCRAPE_INTERVALS, rules):
            cells[situation.name, outcome.interval] = outcome.cell()
            print(f"{situation.name}, every {outcome.interval} s: {outcome.cell()}", flush=True)
            objections = list(outcome.objections())
            wrong += bool(objections)
            print("".join(f"  WRONG: {each}\n" for each in objections), end="", flush=True)
    if flags.write:
        flags.write.write_text(page(every, cells), encoding="utf-8")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
