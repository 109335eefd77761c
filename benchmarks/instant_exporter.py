"""The node exporter over a library of instant_driver.py: ``instant_exporter.py LIBRARY FASTER [the exporter's flags]``.

A program of its own, so that nothing of the simulator is in the exporter's memory.
"""

from __future__ import annotations

import ctypes
import sys

import pynvml
from faster import faster

from pyrometer_exporters.node.main import main as node_exporter


def main() -> int:
    library, times, *flags = sys.argv[1:]
    faster(float(times))
    pynvml.nvmlLib = ctypes.CDLL(library)
    return node_exporter(flags)


if __name__ == "__main__":
    sys.exit(main())
