"""The program ``pyrometer-node-exporter``: one per GPU node."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from pyrometer_exporters import node
from pyrometer_exporters.framework.service import Exporter, run

NODE_EXPORTER = Exporter(
    prog="pyrometer-node-exporter",
    title="Pyrometer node exporter",
    package=node,
    listen="127.0.0.1:9935",
    custom_group="pyrometer_exporters.node_collectors",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the node exporter; the exit status."""
    return run(NODE_EXPORTER, argv)


if __name__ == "__main__":
    sys.exit(main())
