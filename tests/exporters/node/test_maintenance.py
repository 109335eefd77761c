"""A file takes the node out of service, for a day at most."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pyrometer_exporters.framework.collector import Context
from pyrometer_exporters.framework.exposition import Renderer
from pyrometer_exporters.framework.metrics import Sample
from pyrometer_exporters.node.maintenance import COLLECTOR

NOW = 1_800_000_000.0


class FixedClock:
    ahead = 0.0

    def wall(self) -> float:
        return NOW + self.ahead

    def monotonic(self) -> float:
        return NOW


def context(state: Path | None, *flags: str) -> Context:
    parser = argparse.ArgumentParser()
    COLLECTOR.add_flags(parser)
    return Context(parser.parse_args(flags), FixedClock(), Path(), Path(), Path(), state)


def values(context: Context) -> dict[tuple[str, ...], float]:
    return {each.labels: each.value for each in COLLECTOR.build(context).collect(NOW) if isinstance(each, Sample)}


def put(path: Path, age: float) -> None:
    path.write_text("new riser\n")
    os.utime(path, (NOW - age, NOW - age))


def test_a_node_is_in_maintenance_while_its_file_is_there(tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    assert values(context(tmp_path)) == {("file",): 0}
    put(tmp_path / "maintenance", 3600)
    assert values(context(tmp_path)) == {("file",): 1}
    samples = [item for item in COLLECTOR.build(context(tmp_path)).collect(NOW) if isinstance(item, Sample)]
    golden(Renderer().text(samples).decode(), "golden/maintenance.txt")


def test_a_file_that_was_forgotten_counts_for_a_day(tmp_path: Path) -> None:
    put(tmp_path / "maintenance", 86400)
    assert values(context(tmp_path)) == {("file",): 0}
    assert values(context(tmp_path, "--collector.maintenance.limit=90000")) == {("file",): 1}


def test_the_file_can_be_elsewhere_and_without_a_folder_nothing_is_said(tmp_path: Path) -> None:
    put(tmp_path / "drained", 5)
    assert values(context(None, f"--collector.maintenance.file={tmp_path / 'drained'}")) == {("file",): 1}
    assert values(context(None)) == {}


def test_a_file_that_cannot_be_looked_at_is_no_answer(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    blocked = replace(context(None, f"--collector.maintenance.file={tmp_path / 'file/below'}"))
    (down,) = COLLECTOR.build(blocked).collect(NOW)
    assert getattr(down, "reason", None) == "enotdir"


def test_a_limit_that_is_no_number_is_refused() -> None:
    with pytest.raises(SystemExit):
        context(None, "--collector.maintenance.limit=soon")


@pytest.mark.parametrize("jump", [5 * 3600.0, -5 * 3600.0])
def test_a_clock_that_is_set_ends_no_maintenance(tmp_path: Path, jump: float) -> None:
    put(tmp_path / "maintenance", 86400 - 3600)
    clock = FixedClock()
    collector = COLLECTOR.build(replace(context(tmp_path), clock=clock))
    for clock.ahead in (0.0, jump):
        (sample,) = collector.collect(NOW)
        assert getattr(sample, "value", None) == 1
