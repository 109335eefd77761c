"""``process_*`` metrics of the exporter itself, from prometheus_client, under the names that all dashboards know.

Also the bridge by which any prometheus_client collector can be served beside ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache

from prometheus_client import Metric
from prometheus_client.process_collector import ProcessCollector

from pyrometer_exporters.framework.metrics import Family, MetricType, Sample


def process_samples() -> Iterator[Sample]:
    """CPU seconds, memory, open files and start time of this process, read from /proc/self."""
    yield from bridged(_process_collector().collect())


def bridged(metrics: Iterable[Metric]) -> Iterator[Sample]:
    """The counters and gauges of prometheus_client's metrics as our samples."""
    for metric in metrics:
        for sample in metric.samples:
            # prometheus_client gives a counter's samples a `_created` beside the `_total`: a timestamp, not a count.
            counts = metric.type == "counter" and sample.name.endswith("_total")
            kind: MetricType = "counter" if counts else "gauge"
            names = tuple(sorted(sample.labels))
            family = _family(sample.name, kind, metric.documentation, names)
            yield family.sample(sample.value, *(sample.labels[name] for name in names))


@cache
def _process_collector() -> ProcessCollector:
    return ProcessCollector(registry=None)


@cache
def _family(name: str, kind: MetricType, documentation: str, labels: tuple[str, ...]) -> Family:
    # Families compare by identity, so each must be made once.
    return Family(name, kind, documentation, labels)
