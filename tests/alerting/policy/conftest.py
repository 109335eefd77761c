"""Twenty nodes, one of which fails, and a worker that drains it."""

from __future__ import annotations

from pathlib import Path

import pytest
from alerting_fakes import FakeClock
from alerting_policy_fakes import FileScheduler, Findings, policy, worker_of

from pyrometer_alerting.incidents.storage.store import Store
from pyrometer_alerting.policy.worker import PolicyWorker


@pytest.fixture
def scheduler(tmp_path: Path) -> FileScheduler:
    return FileScheduler(tmp_path / "truth", count=20)


@pytest.fixture
def found() -> Findings:
    return Findings(["n3"])


@pytest.fixture
def worker(store: Store, scheduler: FileScheduler, found: Findings, clock: FakeClock) -> PolicyWorker:
    return worker_of(store, scheduler, found, clock, policy())
