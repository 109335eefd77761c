"""Evaluate the rules of an incident live, as time goes by, and afterwards."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pyrometer_kit.prometheus import HttpPrometheus
from pyrometer_simulator.incidents import __main__ as incidents
from pyrometer_simulator.incidents.metrics import series_of
from pyrometer_simulator.incidents.remote_write import STALE, Batch, Floats, with_markers, write
from pyrometer_simulator.incidents.rules import RULES, Evaluation, load
from pyrometer_simulator.incidents.world import World
from pyrometer_simulator.stack import find_stack
from pyrometer_simulator.stack.prometheus import running

GOOD, LASTS = 170.0, 250.0  # seconds before the fault, which are 200 batches and more; of the whole
FIRING = 'ALERTS{alertstate="firing",severity!~"info|none"}'


class Recording(Batch):
    """Keeps all samples, to be written as time goes by."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[tuple[Mapping[str, str], Floats, Floats]] = []

    def add(self, labels: Mapping[str, str], at: Floats, values: Floats) -> None:
        super().add(labels, at, values)
        self.kept.append((labels, at, values))

    def add_target(self, series: Sequence[Mapping[str, str]], at: Floats, values: Floats) -> None:
        super().add_target(series, at, values)
        marked = with_markers(values)
        for place, labels in enumerate(series):
            column = np.ascontiguousarray(marked[:, place])
            kept = ~np.isnan(column) | (column.view(np.uint64) == np.array([STALE]).view(np.uint64)[0])
            self.kept.append((labels, at[kept], column[kept]))

    def between(self, begin: float, end: float) -> Batch:
        batch = Batch()
        for labels, at, values in self.kept:
            now = (at > begin) & (at <= end)
            batch.add(labels, at[now], values[now])
        return batch


def planted(kind: str, begin: float) -> World:
    world = World(5, kind, "strong", nodes=4, begin=begin)
    world.layout = replace(world.layout, step=0.6)
    world.at, world.end = begin + GOOD, begin + LASTS
    incidents.catalogue().kinds[kind](world)
    return world


def fired(url: str, begin: float, end: float) -> dict[tuple[str, ...], float]:
    """When each alert first fired, by name and part."""
    prometheus = HttpPrometheus(url)
    series = prometheus.range(FIRING, begin, end, 1.0)
    prometheus.close()
    keys = ("alertname", "node", "gpu", "device", "run")
    return {tuple(each.labels.get(key, "") for key in keys): each.points[0][0] for each in series}


def compare(kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Play an incident live and afterwards; fail where the rules fire otherwise. It takes four minutes of real time."""
    shutil.copytree(RULES, folder / "rules", ignore=shutil.ignore_patterns("tests"))
    recording = Recording()
    monkeypatch.setattr("pyrometer_simulator.incidents.metrics.Batch", lambda: recording)
    configuration = folder / "live.yaml"
    configuration.write_text("global: {evaluation_interval: 5s}\nrule_files: [rules/*.rules.yaml]\n", encoding="utf-8")
    flags = (f"--config.file={configuration}", f"--storage.tsdb.path={folder / 'live'}")
    with running(
        find_stack().prometheus, lambda _port: (*flags, "--web.enable-remote-write-receiver"), folder / "log"
    ) as url:
        begin = time.time()
        world = planted(kind, begin)
        series_of(world)
        written = begin - 3600
        while time.time() < world.end:
            now = time.time()
            write(url, recording.between(written, now))
            written = now
            time.sleep(0.25)
        live = fired(url, begin, world.end)
    (folder / "later").mkdir()
    with incidents.prometheus(folder / "later") as url:
        write(url, recording.between(begin - 3600, world.end))
        evaluation = Evaluation(url, begin, world.end)
        evaluation.run(load(5.0), {labels["__name__"] for labels, _at, _values in recording.kept})
        later = fired(url, begin, world.end)
    assert any(key[0] == "TrainMfuDropped" for key in live), live
    assert set(live) == set(later)
    # Each group has its own offset within the interval, an alert may wait for two others, and a busy machine is late.
    assert max(abs(live[key] - later[key]) for key in live) <= 20.0
