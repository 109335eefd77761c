"""The program ``pyrometer-node-exporter``: one per GPU node."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from pyrometer_exporters import node
from pyrometer_exporters.framework.collector import FlagGroup, discover
from pyrometer_exporters.framework.deprecation import DEPRECATED
from pyrometer_exporters.framework.service import Exporter, run
from pyrometer_exporters.node.profiles import MINIMAL, STANDARD

_FULL = "full"
PROFILES = {"minimal": MINIMAL, "standard": STANDARD, _FULL: None}


def _add_flags(flags: FlagGroup) -> None:
    flags.add_argument(
        "--metrics.profile",
        dest="metrics.profile",
        choices=list(PROFILES),
        default=_FULL,
        help="series on /metrics: minimal has what alerts and the Overview need, standard what all of our boards and "
        "rules need, full everything; /batches always has everything (default: %(default)s)",
    )
    flags.add_argument(
        "--metrics.deprecated",
        dest="metrics.deprecated",
        action="store_true",
        help="serve the metrics, too, that docs/metrics.md marks as deprecated; the next minor release has neither",
    )


def left_out(flags: argparse.Namespace) -> frozenset[str]:
    """Return the names of our own collectors' families that these flags leave out; a site's own are all served."""
    names = frozenset(family.name for spec in discover(node) for family in spec.families)
    chosen = PROFILES[getattr(flags, "metrics.profile")] or names - DEPRECATED
    return names - chosen - (DEPRECATED if getattr(flags, "metrics.deprecated") else frozenset())


NODE_EXPORTER = Exporter(
    prog="pyrometer-node-exporter",
    title="Pyrometer node exporter",
    package=node,
    listen="127.0.0.1:9935",
    add_flags=_add_flags,
    left_out=left_out,
    custom_group="pyrometer_exporters.node_collectors",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the node exporter; the exit status."""
    return run(NODE_EXPORTER, argv)


if __name__ == "__main__":
    sys.exit(main())
