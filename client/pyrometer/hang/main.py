"""The command ``pyrometer-hang``."""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence

from pyrometer._command_line import add_version_flag
from pyrometer.hang.blame import examine
from pyrometer.hang.dump import RANK_OF_NAME, read_dump
from pyrometer.hang.records import Dump
from pyrometer.hang.report import MOST_NAMED, _printable, explain
from pyrometer.hang.watchdog import WatchdogLog

MOST_LINE_CHARS = 1 << 16
FIRST_WORD_SECONDS = 5.0
"""After so long the command says what the dumps read so far say: a thousand take half a minute."""


def main(argv: Sequence[str] | None = None) -> int:
    """Explain the dumps or logs of a hung job; 0 if a rank is named, 1 if none, 2 if there is nothing to read."""
    parser = argparse.ArgumentParser(
        prog="pyrometer-hang",
        description="Name the rank that a hung job waits for, from the dumps of PyTorch's Flight Recorder, or from the "
        "lines of its watchdog in the job's log.",
    )
    add_version_flag(parser)
    parser.add_argument(
        "paths",
        metavar="PATH",
        nargs="+",
        help="a folder with the dumps of all ranks, a dump, or a log; - for a log on stdin",
    )
    paths = parser.parse_args(argv).paths
    dumps: dict[int, Dump] = {}
    log = WatchdogLog()
    for path in paths:
        try:
            with _no_collection():
                _read(path, dumps, log)
        except OSError as error:
            sys.stderr.write(f"pyrometer-hang: {path}: {error.strerror}\n")
            return 2
    for dump in log.dumps():
        dumps.setdefault(dump.rank, dump)
    if not dumps:
        sys.stderr.write(
            f"pyrometer-hang: {', '.join(paths)}: no dumps found (their names must end in the rank, as in "
            "nccl_trace_rank_0), and no lines of PyTorch's NCCL watchdog\n"
        )
        return 2
    ranks = list(dumps.values())
    hang = examine(ranks)
    sys.stdout.write("\n".join(explain(ranks, hang)) + "\n")
    return 0 if hang.named else 1


def _read(path: str, dumps: dict[int, Dump], log: WatchdogLog) -> None:
    """Read a folder of dumps, a dump, or a log."""
    if path == "-":
        log.read(sys.stdin)
    elif os.path.isdir(path):
        names = sorted(name for name in os.listdir(path) if RANK_OF_NAME.search(name))
        soon = time.monotonic() + FIRST_WORD_SECONDS
        for count, name in enumerate(names, 1):
            _add(os.path.join(path, name), dumps)
            if count < len(names) and time.monotonic() > soon:
                soon = float("inf")
                sys.stderr.write(_so_far(count, len(names), dumps))
                sys.stderr.flush()
    elif _is_dump(path):
        _add(path, dumps)
    else:
        with open(path, encoding="utf-8", errors="replace") as file:
            log.read(iter(lambda: file.readline(MOST_LINE_CHARS), ""))


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Look for no garbage: the values of dumps hold no circles, and looking takes a third of the time."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def _so_far(count: int, of: int, dumps: Mapping[int, Dump]) -> str:
    hang = examine(dumps.values())
    named = [str(rank) for rank in hang.named if rank in dumps][:MOST_NAMED]
    ranks = f"the others wait for {', '.join(named)}" if named else "none of them is the one that the others wait for"
    return f"pyrometer-hang: {count:,} of {of:,} dumps are read; so far {ranks}\n"


def _is_dump(path: str) -> bool:
    if not RANK_OF_NAME.search(os.path.basename(path)):
        return False
    with open(path, "rb") as file:
        return file.read(1) in (b"\x80", b"{")


def _add(path: str, dumps: dict[int, Dump]) -> None:
    try:
        dump = read_dump(path)
        dumps[dump.rank] = dump
    except Exception as error:  # noqa: BLE001  a broken file costs its own rank alone
        what = _printable(str(error) or type(error).__name__)
        sys.stderr.write(f"pyrometer-hang: {_printable(os.path.basename(path))}: {what}\n")
