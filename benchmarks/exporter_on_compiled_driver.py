"""The node exporter on a library of compiled_driver.py: ``exporter_on_compiled_driver.py LIBRARY SPEEDUP [FLAGS]``.

A program of its own, so that nothing of the simulator is in the exporter's memory.
"""

from __future__ import annotations

import ctypes
import sys

import pynvml

from pyrometer_exporters.framework import scheduling
from pyrometer_exporters.node.gpu import field_subject
from pyrometer_exporters.node.main import main as node_exporter
from pyrometer_exporters.node.nic import inventory, sysfs, tiers


def shorten_intervals(speedup: float) -> None:
    """Divide the intervals of everything that is read less often than every scrape.

    Consecutive scrapes without a pause then do the work of scrapes that are ``speedup`` times as far apart.
    """
    tiers.SLACK /= speedup
    sysfs.RELIST_SECONDS /= speedup
    inventory.LOOK_AGAIN_SECONDS /= speedup
    scheduling.APART_SECONDS /= speedup
    field_subject.SELDOM_SECONDS /= speedup


def main() -> int:
    library, speedup, *flags = sys.argv[1:]
    shorten_intervals(float(speedup))
    pynvml.nvmlLib = ctypes.CDLL(library)
    return node_exporter(flags)


if __name__ == "__main__":
    sys.exit(main())
