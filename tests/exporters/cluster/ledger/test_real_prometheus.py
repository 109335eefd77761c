"""The ledger's questions, asked of a real Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyrometer_exporters.cluster.ledger.history import Ledger
from pyrometer_kit.prometheus import HttpPrometheus
from pyrometer_simulator.stack import Stack
from pyrometer_simulator.stack.prometheus import holding


def _lines(recorded: Any, until: int) -> Iterator[str]:
    """Everything that a world's Prometheus has, as OpenMetrics."""
    world = recorded.world
    since = world.processes[0].born - 60_000
    series = recorded._batches(since, until) + recorded._ranks(since, until)
    series += [({"__name__": "pyrometer_exporter_build_info", "exporter": "pyrometer-node-exporter"}, at, 1.0)
               for at in recorded._scrapes(since, until) if world.scraped(at)]  # fmt: skip
    info = {"__name__": "pyrometer_train_run_info", "run": "llama-8b", "attempt": "0", "world_size": "8"}
    series += [(info, at, 1.0) for at in recorded._scrapes(since, until) if world.scraped(at)]
    by_name: dict[str, list[str]] = {}
    for labels, at, value in sorted(series, key=lambda item: (sorted(item[0].items()), item[1])):
        name = labels["__name__"]
        rest = ",".join(f'{key}="{text}"' for key, text in labels.items() if key != "__name__")
        by_name.setdefault(name, []).append(f"{name}{{{rest}}} {value} {at / 1000:.3f}")
    for name, lines in by_name.items():
        yield from (f"# TYPE {name} unknown", *lines)


@pytest.fixture
def prometheus(stack: Stack, tmp_path: Path, audit: Any, world: Any) -> Iterator[tuple[HttpPrometheus, Any]]:
    """A Prometheus with the history of a run: checkpoints, a crash, rework, an outage."""
    world.start(20_000)
    for _ in range(3):
        for _ in range(200):
            world.step(1000)
        world.part_between_steps("checkpoint", 20_000)
    world.crash(500, 90_000)
    world.start(30_000, world.number - 100)
    world.outage(200_000)
    for _ in range(500):
        world.step(1000)
    recorded = audit(world).prometheus
    recorded.now = world.now + 120_000
    with holding(stack, tmp_path, _lines(recorded, recorded.now)) as url:
        yield HttpPrometheus(url), world


def test_a_real_prometheus_gives_the_same_books(prometheus: tuple[HttpPrometheus, Any]) -> None:
    asked, world = prometheus
    ledger = Ledger(world.processes[0].born - 3_600_000)
    ledger.turn(asked, (world.now + 120_000) / 1000, "")
    book = ledger.books["llama-8b", ""]
    assert book.lengths == {**dict.fromkeys(book.lengths, 0), **world.truth}
    assert book.tokens == pytest.approx(1000 * 4096)
    assert sum(book.lengths.values()) == book.settled - book.started
