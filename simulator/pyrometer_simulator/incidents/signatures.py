"""Serve `pyrometer_run_signature` for worlds as the alerting service would: a look at each curve every minute."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from pyrometer_alerting.diagnosis.batches import run_of
from pyrometer_alerting.diagnosis.examination import examine
from pyrometer_kit.prometheus import HttpPrometheus
from pyrometer_simulator.incidents.remote_write import Batch, write
from pyrometer_simulator.incidents.watch import PresentPrometheus, VirtualClock
from pyrometer_simulator.incidents.world import World

NAME = "pyrometer_run_signature"
EVERY_SECONDS = 60.0
BEFORE_SECONDS = 120.0  # before the fault: what the curve shows earlier alerts nobody


def write_signatures(url: str, worlds: Iterable[World]) -> None:
    """Write the series of these worlds, whose batches are in the Prometheus at an address."""
    prometheus = HttpPrometheus(url, 60.0)
    batch = Batch()
    for world in worlds:
        _add(batch, world, looks_of(prometheus, world))
    if batch.samples:
        write(url, batch)
    prometheus.close()


def looks_of(prometheus: HttpPrometheus, world: World) -> dict[float, Mapping[str, float]]:
    """Return the confidences by the time of each look; empty where the run has no curve."""
    layout = world.layout
    clock = VirtualClock(max(world.at - BEFORE_SECONDS, world.begin + EVERY_SECONDS))
    present = PresentPrometheus(prometheus, clock, layout.interval, layout.cluster)
    looks: dict[float, Mapping[str, float]] = {}
    while clock.now < world.end:
        run = run_of(present, layout.cluster, layout.run, clock.now)
        found = examine(present, run, clock.now)
        looks[clock.now] = found.verdict.confidences if found is not None and found.verdict is not None else {}
        clock.now += EVERY_SECONDS
    return looks


def _add(batch: Batch, world: World, looks: Mapping[float, Mapping[str, float]]) -> None:
    """Add the newest look's confidences at each scrape."""
    layout = world.layout
    target = {"cluster": layout.cluster, "instance": "monitoring:9937", "job": "alerting", "run": layout.run}
    names = sorted({name for look in looks.values() for name in look})
    scrapes = world.grid[world.grid > min(looks, default=np.inf)]
    if not names or not len(scrapes):
        return
    moments = np.array(sorted(looks))
    newest = np.searchsorted(moments, scrapes - 0.5, side="right") - 1
    shown = [looks[float(moments[max(place, 0)])] for place in newest]
    values = np.array([[look.get(name, np.nan) for name in names] for look in shown])
    batch.add_target([{**target, "__name__": NAME, "signature": name} for name in names], scrapes, values)
