"""The program ``pyrometer-cluster-exporter``: one per cluster, on the monitoring host."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from pyrometer_exporters import cluster
from pyrometer_exporters.framework.service import Exporter, run

CLUSTER_EXPORTER = Exporter(
    prog="pyrometer-cluster-exporter", title="Pyrometer cluster exporter", package=cluster, listen="127.0.0.1:9936"
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the cluster exporter; the exit status."""
    return run(CLUSTER_EXPORTER, argv)


if __name__ == "__main__":
    sys.exit(main())
