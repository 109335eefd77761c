"""``pyrometer-check`` on a simulated NVIDIA driver, and on file systems that hang.

    python -m pyrometer_simulator.check --gpus FILE --hang /data -- --json --path.sysfs=...

FILE is made by :class:`pyrometer_simulator.nvml.SimulatedGpus`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyrometer_exporters.commands.check.main import main as pyrometer_check
from pyrometer_simulator.host_files import FileSystems
from pyrometer_simulator.nvml import installed


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with the flags after ``--``; return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m pyrometer_simulator.check", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--gpus", type=Path, metavar="FILE", help="state of the simulated GPUs")
    parser.add_argument("--hang", action="append", default=[], metavar="MOUNT", help="a file system that hangs")
    parser.add_argument("--full", action="append", default=[], metavar="MOUNT", help="a file system that is full")
    parser.add_argument("check", nargs="*", metavar="-- FLAGS", help="flags of pyrometer-check")
    flags = parser.parse_args(argv)
    replaced: dict[str, Any] = {"statvfs": FileSystems(flags.hang, flags.full).statvfs, "clock_state": lambda: 0}
    if flags.gpus is None:
        return pyrometer_check(flags.check, replaced)
    with installed(flags.gpus):
        return pyrometer_check(flags.check, replaced)


if __name__ == "__main__":
    sys.exit(main())
