"""Reports the free space of this node's scratch disk: a collector of a site's own for the node exporter."""

import os
import shutil
from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

SCRATCH = os.environ.get("SCRATCH", "/tmp")  # noqa: S108  the folder to measure, nothing is written there


class ScratchCollector(Collector):
    """Called at each scrape, in a thread of its own."""

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the free bytes."""
        free = GaugeMetricFamily("site_scratch_free_bytes", "Free bytes on the scratch disk.", labels=["path"])
        free.add_metric([SCRATCH], shutil.disk_usage(SCRATCH).free)
        yield free
