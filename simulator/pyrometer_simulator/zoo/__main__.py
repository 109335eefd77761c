"""Play the zoo: ``python -m pyrometer_simulator.zoo [MACHINES ...]``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from pyrometer_simulator.zoo.player import descriptions, play


def main(argv: Sequence[str] | None = None) -> int:
    """Play the machines with these names; return 1 if a healthy one is accused or a loss is not named."""
    parser = argparse.ArgumentParser(
        prog="python -m pyrometer_simulator.zoo", description=(__doc__ or "").partition(":")[0]
    )
    parser.add_argument("machines", nargs="*", metavar="MACHINES", help="names of folders; all machines without")
    flags = parser.parse_args(argv)
    wrong = 0
    for description in descriptions():
        if flags.machines and description.folder.name not in flags.machines:
            continue
        played = play(description)
        missed = [loss for loss in played.losses if not loss.named]
        print(f"{description.folder.name}: {len(played.wrong)} wrong, {len(played.losses)} lost, {len(missed)} missed")
        print("".join(f"  WRONG {text}\n" for text in played.wrong), end="")
        print("".join(f"  MISSED {loss.what}: {'; '.join(loss.said) or 'nothing'}\n" for loss in missed), end="")
        wrong += bool(played.wrong or missed)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
