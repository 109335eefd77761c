"""A node of the simulated cluster: the real node exporter on a simulated NVIDIA driver.

    python -m pyrometer_simulator.node --gpus FILE -- --web.listen-address=127.0.0.1:9935

FILE is made by :class:`pyrometer_simulator.nvml.SimulatedGpus`; its creator can change the GPUs while this runs.
With ``--make COUNT`` the file is created first, with GPUs under load.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

from pyrometer_exporters.node import users
from pyrometer_exporters.node.checks import collector as checks_collector
from pyrometer_exporters.node.main import main as node_exporter
from pyrometer_simulator.nvml import SimulatedGpus, installed


def main(argv: Sequence[str] | None = None) -> int:
    """Run the node exporter with the flags after ``--``; return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m pyrometer_simulator.node", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--gpus", type=Path, required=True, metavar="FILE", help="state of the simulated GPUs")
    parser.add_argument("--make", type=int, metavar="COUNT", help="create FILE first, with this many GPUs under load")
    parser.add_argument("exporter", nargs="*", metavar="-- FLAGS", help="flags of the node exporter")
    flags = parser.parse_args(argv)
    if flags.make is not None:
        for gpu in SimulatedGpus(flags.gpus, count=flags.make, noise=0.01):
            gpu.load()
    # The checks' own process has the same GPUs.
    simulated_check = (sys.executable, "-m", "pyrometer_simulator.check", f"--gpus={flags.gpus}", "--")
    # Whoever runs the simulation owns what runs on the node.
    name_of = users._name_of(Path("/proc"))  # noqa: SLF001
    with (
        installed(flags.gpus),
        mock.patch.object(checks_collector, "COMMAND", simulated_check),
        mock.patch.object(users, "_name_of", return_value=name_of),
    ):
        return node_exporter(flags.exporter)


if __name__ == "__main__":
    sys.exit(main())
