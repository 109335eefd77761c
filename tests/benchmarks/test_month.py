"""The benchmark of a month counts unjust alerts, and faults that were not heard."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from pyrometer_simulator.situations.verdict import Fired

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def month(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import bench_month

    yield bench_month
    del sys.modules["bench_month"]


def fired(name: str, node: str, first: float, *, severity: str = "critical", episodes: int = 1) -> Fired:
    return Fired(name, severity, (("cluster", "c1"), ("node", node)), first, first + 60, episodes)


def test_a_fault_has_to_be_heard_once_and_in_time(month: ModuleType) -> None:
    window = month.Window("faults", faults=[month.Heard("NicLinkDown", "gpu-001", 300.0, 330.0)])
    told = fired("NicLinkDown", "gpu-001", 600)
    assert month.judged(window, [told], 15) == ([], [])
    continued = told._replace(episodes=2, last=told.first + month.REOPEN_SECONDS)
    assert month.judged(window, [continued], 15) == ([], [])
    for wrong in ([], [continued._replace(last=continued.last + 1)], [told, told], [told._replace(first=900)]):
        unjust, missed = month.judged(window, wrong, 15)
        assert (unjust, len(missed)) == ([], 1)


def test_a_critical_alert_of_another_node_is_unjust_and_a_warning_is_not(month: ModuleType) -> None:
    window = month.Window("faults", faults=[month.Heard("NicLinkDown", "gpu-001", 300.0, 330.0)])
    found = [fired("NicLinkDown", "gpu-001", 600), fired("NicLinkDown", "gpu-002", 600)]
    unjust, missed = month.judged(window, [*found, fired("NodeExporterDown", "gpu-003", 0, severity="warning")], 15)
    assert (len(unjust), missed) == (1, [])
    assert "gpu-002" in unjust[0]


def test_the_month_has_all_faults_and_every_sampled_node(month: ModuleType) -> None:
    windows = month.month(argparse.Namespace(sample=20, faults=30, nodes=50, seed=1))
    assert sum(len(window.faults) for window in windows) == 30
    for kind in ("reboots, rolling", "new drivers, rolling, of drained nodes"):
        assert sum(window.nodes for window in windows if window.kind == kind) == 50
    lost = [window for window in windows if window.kind == "power lost"]
    assert [window.nodes + sum(window.copies.values()) for window in lost] == [511, 511]
