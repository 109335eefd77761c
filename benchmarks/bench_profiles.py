"""Measure what each profile of the node exporter costs: series and bytes of the real exporter on a simulated node.

    .venv/bin/python benchmarks/bench_profiles.py

One node with 8 GPUs, 8 HCAs and 8 ranks at work (recorded_cluster.py), scraped with each --metrics.profile. Bytes are
those of an answer in the text format, as it is and compressed as Prometheus asks for it. The second table is arithmetic
for docs/scale.md: these samples, and the cost of each as bench_scale.py measured it (docs/sizing.md). Ends with
status 1 where a profile is not smaller than the next.
"""

from __future__ import annotations

import gzip
import re
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import exit_on_signals
from recorded_cluster import GPUS, record

from pyrometer_exporters.node.main import PROFILES

# docs/sizing.md: series that rules and the cluster exporter add for each node, and what a series and a sample cost.
RULES_OWN = 3130 - 2760
PROMETHEUS = {"memory": 2.8e3, "disk": 2.8, "cpu": (4.4e-6, 6.8e-6)}
VICTORIA = {"memory": 1.0e3, "disk": 1.6, "cpu": (4.8e-6 + 2.4e-6 + 0.2e-6,) * 2}
INTERVAL, FLEET, DAYS = 15, 100_000, 30
DOLLARS = 0.08  # a GB and month of a cloud's SSD volume, list price assumed on 2026-11-24
SAMPLE = re.compile(r"^\w+(?:\{.*\})? \S+$", re.MULTILINE)
OF_A_GPU = re.compile(r'^\w+\{.*\b(?:gpu|uuid|UUID)="')


@dataclass(frozen=True)
class Cost:
    """Samples of a scrape, those of GPUs among them, and the bytes of the answer."""

    samples: int
    of_gpus: int
    plain: int
    compressed: int


def measured(profile: str) -> Cost:
    """Return what a scrape with a profile costs."""
    with tempfile.TemporaryDirectory(prefix="pyrometer-profiles-") as folder:
        text = record(Path(folder), f"--metrics.profile={profile}")
    lines = SAMPLE.findall(text)
    of_gpus = sum(OF_A_GPU.match(line) is not None for line in lines)
    body = text.encode()
    return Cost(len(lines), of_gpus, len(body), len(gzip.compress(body, 6)))


def main() -> int:
    """Print a row for each profile; return the exit status."""
    exit_on_signals()
    costs = {profile: measured(profile) for profile in PROFILES}
    print("| profile | series a node | a GPU | of GPUs, each | bytes | compressed | bytes a sample, compressed |")
    print("|---|---|---|---|---|---|---|")
    for profile, cost in costs.items():
        bytes_each = f"{cost.plain / cost.samples:.0f}, {cost.compressed / cost.samples:.1f}"
        each = f"{cost.samples / GPUS:.0f} | {cost.of_gpus / GPUS:.0f}"
        print(f"| {profile} | {cost.samples:,} | {each} | {cost.plain:,} | {cost.compressed:,} | {bytes_each} |")
    print_fleet(costs)
    sizes = [cost.samples for cost in costs.values()]
    return 0 if sizes == sorted(set(sizes)) else 1


def print_fleet(costs: Mapping[str, Cost]) -> None:
    """Print what a fleet of FLEET GPUs needs with each profile."""
    nodes = FLEET / GPUS
    rows: dict[str, list[str]] = {}
    for cost in costs.values():
        series = nodes * (cost.samples + RULES_OWN)
        samples = series / INTERVAL
        found = {
            "series": f"{series / 1e6:.1f} million",
            "samples/s": f"{samples / 1e6:.2f} million",
            "series a GPU": f"{series / FLEET:.0f}",
            "scraped, bytes/s a GPU": f"{cost.compressed / INTERVAL / GPUS:.0f}",
            "scraped, MB/s": f"{cost.compressed / INTERVAL * nodes / 1e6:.1f}",
        }
        for name, store in (("Prometheus", PROMETHEUS), ("VictoriaMetrics", VICTORIA)):
            found |= _needs(name, store, series, samples)
        for what, text in found.items():
            rows.setdefault(what, []).append(text)
    print(f"\n| {FLEET:,} GPUs, each {INTERVAL} s | {' | '.join(costs)} |\n|---|{'---|' * len(costs)}")
    for what, texts in rows.items():
        print(f"| {what} | {' | '.join(texts)} |")


def _needs(name: str, store: Mapping[str, Any], series: float, samples: float) -> dict[str, str]:
    least, most = (samples * seconds for seconds in store["cpu"])
    gigabytes = samples * 86_400 * DAYS * store["disk"] / 1e9
    month = gigabytes * DOLLARS
    return {
        f"{name}: memory, with half as much again": f"{1.5 * series * store['memory'] / 1e9:.0f} GB",
        f"{name}: CPU": f"{least:.1f} cores" if least == most else f"{least:.1f} to {most:.1f} cores",
        f"{name}: disk, bytes/s a GPU": f"{samples * store['disk'] / FLEET:.0f}",
        f"{name}: disk, {DAYS} days": f"{gigabytes / 1e3:.1f} TB",
        f"{name}: that disk, a month; a GPU": f"${month:,.0f}; {100 * month / FLEET:.1f} cents",
    }


if __name__ == "__main__":
    sys.exit(main())
