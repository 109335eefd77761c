"""The real doctor on a simulated NVIDIA driver.

    python -m pyrometer_simulator.doctor --gpus FILE -- --json

FILE is made by :class:`pyrometer_simulator.nvml.SimulatedGpus`, or by ``python -m pyrometer_simulator.node --make``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from pyrometer_exporters.commands.doctor.main import main as doctor
from pyrometer_simulator.nvml import installed


def main(argv: Sequence[str] | None = None) -> int:
    """Run the doctor with the flags after ``--``; return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m pyrometer_simulator.doctor", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--gpus", type=Path, required=True, metavar="FILE", help="state of the simulated GPUs")
    parser.add_argument("doctor", nargs="*", metavar="-- FLAGS", help="flags of the doctor")
    flags = parser.parse_args(argv)
    with installed(flags.gpus):
        return doctor(flags.doctor)


if __name__ == "__main__":
    sys.exit(main())
