"""The program ``pyrometer-cluster-exporter``: one per cluster, on the monitoring host."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from pyrometer_exporters import cluster
from pyrometer_exporters.framework.collector import FlagGroup
from pyrometer_exporters.framework.service import Exporter, run
from pyrometer_kit.prometheus import DEFAULT_URL, prometheus_url


def _add_flags(parser: FlagGroup) -> None:
    parser.add_argument("--prometheus.url", dest="prometheus.url", type=prometheus_url, default=DEFAULT_URL,
        metavar="URL", help="the Prometheus that scrapes the nodes (default: %(default)s)")  # fmt: skip


CLUSTER_EXPORTER = Exporter(
    prog="pyrometer-cluster-exporter",
    title="Pyrometer cluster exporter",
    package=cluster,
    listen="127.0.0.1:9936",
    add_flags=_add_flags,
    custom_group="pyrometer_exporters.cluster_collectors",
    reads_node=False,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the cluster exporter and return the exit status."""
    return run(CLUSTER_EXPORTER, argv)


if __name__ == "__main__":
    sys.exit(main())
