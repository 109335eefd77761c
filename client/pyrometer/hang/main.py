"""The command ``pyrometer-hang``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from pyrometer._command_line import add_version_flag
from pyrometer.hang.blame import examine
from pyrometer.hang.dump import RANK_OF_NAME, BadDumpError, read_dump
from pyrometer.hang.records import Dump
from pyrometer.hang.report import _printable, explain


def main(argv: Sequence[str] | None = None) -> int:
    """Explain the dumps in a directory. Return 0 if a rank is named, 1 if none, 2 if there is no dump to read."""
    parser = argparse.ArgumentParser(
        prog="pyrometer-hang",
        description="Name the rank that a hung job waits for, from the dumps of PyTorch's Flight Recorder.",
    )
    add_version_flag(parser)
    parser.add_argument("directory", metavar="DIRECTORY", help="where the dumps of all ranks are")
    directory = parser.parse_args(argv).directory
    dumps: dict[int, Dump] = {}
    try:
        names = sorted(name for name in os.listdir(directory) if RANK_OF_NAME.search(name))
    except OSError as error:
        sys.stderr.write(f"pyrometer-hang: {directory}: {error.strerror}\n")
        return 2
    for name in names:
        try:
            dump = read_dump(os.path.join(directory, name))
            dumps[dump.rank] = dump
        except (BadDumpError, OSError) as error:
            sys.stderr.write(f"pyrometer-hang: {name}: {_printable(str(error))}\n")
    if not dumps:
        sys.stderr.write(
            f"pyrometer-hang: {directory}: no dumps found; their names must end in the rank, as in nccl_trace_rank_0\n"
        )
        return 2
    ranks = list(dumps.values())
    hang = examine(ranks)
    sys.stdout.write("\n".join(explain(ranks, hang)) + "\n")
    return 0 if hang.named else 1
