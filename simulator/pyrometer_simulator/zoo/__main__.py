"""Play the zoo: ``python -m pyrometer_simulator.zoo [--alerts] [--write FILE] [MACHINES ...]``."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from pyrometer_simulator.situations.verdict import Rules
from pyrometer_simulator.stack import find_stack
from pyrometer_simulator.zoo.page import page
from pyrometer_simulator.zoo.player import Played, descriptions, play, take_alerts


def main(argv: Sequence[str] | None = None) -> int:
    """Play machines; return 1 if a healthy one is accused or a loss is not named."""
    parser = argparse.ArgumentParser(
        prog="python -m pyrometer_simulator.zoo", description=(__doc__ or "").partition(":")[0]
    )
    parser.add_argument("machines", nargs="*", metavar="MACHINES", help="names of folders; all machines without")
    parser.add_argument("--alerts", action="store_true", help="evaluate the rules over the week, too (minutes)")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the generated page, of all machines")
    flags = parser.parse_args(argv)
    logging.disable(logging.WARNING)  # what a machine doesn't have is told at each start of its exporter
    chosen = [each for each in descriptions() if not flags.machines or each.folder.name in flags.machines]
    rules = Rules() if flags.alerts else None
    promtool = find_stack(lambda line: print(line, file=sys.stderr)).promtool if flags.alerts else None
    every = []
    for description in chosen:
        played = play(description, wanted=None if rules is None else rules.metrics)
        if rules is not None and promtool is not None:  # each apart: promtool needs a gigabyte for a large one
            take_alerts(promtool, rules, [played])
        every.append(played)
        _say(played)
    if flags.write and not flags.machines:
        flags.write.write_text(page(every), encoding="utf-8")
    wrong = sum(bool(played.wrong or played.missed) for played in every)
    print(f"{len(every)} machines, {sum(len(played.losses) for played in every)} losses, {wrong} machines not right")
    return int(bool(wrong))


def _say(played: Played) -> None:
    name = played.machine.folder.name
    print(f"{name}: {len(played.wrong)} wrong, {len(played.losses)} lost, {len(played.missed)} missed", flush=True)
    print("".join(f"  WRONG {text}\n" for text in played.wrong), end="")
    print("".join(f"  MISSED {loss.what}: {'; '.join(loss.said) or 'nothing'}\n" for loss in played.missed), end="")


if __name__ == "__main__":
    sys.exit(main())
