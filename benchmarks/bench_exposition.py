"""Compare our text writer with prometheus_client's for one node's 2,500 samples: CPU per scrape and the ratio.

Run: .venv/bin/python benchmarks/bench_exposition.py
"""

from __future__ import annotations

import gzip
import itertools
import statistics
import time
from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from pyrometer_exporters.framework.exposition import Renderer
from pyrometer_exporters.framework.metrics import Family, Sample, columns_of

FAMILIES, SERIES, REPEATS = 50, 50, 60
HELP = "A value of one part of one device, as a sentence of the usual length, read from where it is."
NAMES = ("gpu", "uuid", "reason")


def labels(n: int) -> tuple[str, str, str]:
    return str(n % 8), f"GPU-8f3a77aa-0000-4444-8888-{n:012d}", "hw_power_brake"


class Theirs(Collector):
    def collect(self) -> Iterable[GaugeMetricFamily]:
        for number in range(FAMILIES):
            family = GaugeMetricFamily(f"pyrometer_bench_{number}_ratio", HELP, labels=NAMES)
            for n in range(SERIES):
                family.add_metric(labels(n), n * 1.5)
            yield family


def read(text: bytes) -> set[tuple[object, ...]]:
    families = text_string_to_metric_families(text.decode())
    return {(s.name, *sorted(s.labels.items()), s.value) for family in families for s in family.samples}


def milliseconds(work: Callable[[], bytes]) -> tuple[float, float]:
    """Return median and 99th percentile of the CPU time of one call."""
    work()
    times = []
    for _ in range(REPEATS):
        start = time.process_time_ns()
        work()
        times.append((time.process_time_ns() - start) / 1e6)
    return statistics.median(times), sorted(times)[int(0.99 * len(times))]


def main() -> None:
    families = [Family(f"pyrometer_bench_{number}_ratio", "gauge", HELP, NAMES) for number in range(FAMILIES)]

    def samples() -> list[Sample]:
        return [family.sample(n * 1.5, *labels(n)) for family in families for n in range(SERIES)]

    renderer = Renderer()
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Theirs())
    ours = renderer.text(samples())
    assert read(ours) == read(generate_latest(registry)), "the same samples"

    kept = samples()
    columns = columns_of(kept)
    values = itertools.cycle([columns.values, tuple(n + (not i % 10) for i, n in enumerate(columns.values))])

    results = {
        "ours, with new samples": milliseconds(lambda: renderer.text(samples())),
        "ours, by column, 1 in 10 changed": milliseconds(lambda: renderer.page(columns._replace(values=next(values)))),
        "ours, the text alone": milliseconds(lambda: renderer.text(kept)),
        "ours, no label text kept": milliseconds(lambda: Renderer().text(kept)),
        "gzip of that": milliseconds(lambda: gzip.compress(ours, 1)),
        "prometheus_client, text": milliseconds(lambda: generate_latest(registry)),
        "prometheus_client, OpenMetrics": milliseconds(lambda: generate_openmetrics(registry)),
    }
    print(f"{FAMILIES * SERIES} samples, {len(ours) / 1000:.0f} kB")
    for name, (median, p99) in results.items():
        print(f"{name:34} median {median:6.2f} ms, p99 {p99:6.2f} ms")
    base = results["ours, with new samples"][0]
    for name in ("prometheus_client, text", "prometheus_client, OpenMetrics"):
        print(f"{name} / ours: {results[name][0] / base:.1f}x")


if __name__ == "__main__":
    main()
