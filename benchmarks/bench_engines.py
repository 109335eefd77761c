"""Measure the store on SQLite and on PostgreSQL: one commit, and a delivery of 5,000 alerts.

PostgreSQL with fsync, alone and with a standby that must confirm each commit, all of it on this machine's loopback and
disk: a network adds its round trip to each statement.
Run: .venv/bin/python benchmarks/bench_engines.py
"""

from __future__ import annotations

import contextlib
import importlib.util
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyrometer_alerting.intake.intake import Intake
from pyrometer_alerting.intake.webhook import parse
from pyrometer_alerting.render.messages import Style, ThreadReplies
from pyrometer_alerting.state.metrics import Metrics
from pyrometer_alerting.state.postgresql import PostgreSQL, Server, Session, make_tables
from pyrometer_alerting.state.store import Store
from pyrometer_kit.clock import SystemClock
from pyrometer_simulator.postgres import Pair

COMMITS, DELIVERIES, ALERTS = 200, 3, 5000


def fakes() -> Any:  # noqa: ANN401 - a module
    path = Path(__file__).parents[1] / "tests" / "alerting" / "fakes.py"
    spec = importlib.util.spec_from_file_location("alerting_fakes", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["alerting_fakes"] = module
    spec.loader.exec_module(module)
    return module


def on_server(pair: Pair) -> Store:
    server = Server(pair.url)
    session = Session(server).open()
    make_tables(session)
    session.close()
    return Store(PostgreSQL(server, epoch=0))


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def measure(name: str, store: Store, module: Any) -> None:  # noqa: ANN401
    def commit() -> None:
        with store.transaction() as tx:
            tx.save_fact("bench", repr(time.time()))

    commits = sorted(seconds(commit) for _ in range(COMMITS))
    intake = Intake(store, replies=ThreadReplies(Style()), clock=SystemClock(), metrics=Metrics(), diagnoses=False)
    took = []
    for number in range(DELIVERIES):
        alerts = [
            module.raw_alert("NicLinkDown", node=f"n{each // 8}", device=f"mlx5_{each % 8}", cluster=f"c{number}",
                             fingerprint=f"f{number}-{each}", severity="warning")
            for each in range(ALERTS)
        ]  # fmt: skip
        delivery = parse(module.body(*alerts, groupKey=str(number)))
        took.append(seconds(lambda delivery=delivery: intake.apply(delivery)))  # type: ignore[misc]
    p99 = commits[int(0.99 * COMMITS)]
    print(
        f"{name}: a commit {1000 * statistics.median(commits):.1f} ms, 99 % below {1000 * p99:.1f} ms;"
        f" {ALERTS} alerts {statistics.median(took):.2f} s",
        flush=True,
    )
    store.close()


def main() -> int:
    module = fakes()
    with tempfile.TemporaryDirectory() as folder:
        measure("SQLite", Store(Path(folder) / "store"), module)
    for name, standby in (("PostgreSQL", False), ("PostgreSQL with a standby", True)):
        with contextlib.ExitStack() as stack:
            pair = stack.enter_context(Pair(standby=standby, fsync=True))
            measure(name, on_server(pair), module)
    return 0


if __name__ == "__main__":
    sys.exit(main())
