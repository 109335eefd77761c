"""Makes the modules of fakes beside it importable as `alerting_*` (the tests have no packages); the common fixtures."""

from __future__ import annotations

import importlib.util
import logging
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from pyrometer_alerting.channel.slack import WebSlack
from pyrometer_alerting.incidents import deliveries
from pyrometer_alerting.incidents.storage.store import Store
from pyrometer_simulator.slack import FakeSlack
from pyrometer_simulator.slack_channel import RateLimits

if TYPE_CHECKING:
    from alerting_fakes import Bench, FakeClock
    from alerting_running import Running
    from alerting_talking import Talking


def _load(name: str, file: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(file))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(name, module)
    spec.loader.exec_module(module)
    return module


_module = _load("alerting_fakes", "fakes.py")
_load("alerting_situations", "situations.py")
_load("alerting_real", "real.py")
_load("alerting_upstream", "upstream.py")
_load("alerting_policy_fakes", "policy_fakes.py")
_load("alerting_chaos", "chaos.py")
_load("alerting_chaos_replicas", "chaos_replicas.py")
_load("alerting_two", "two.py")
_load("alerting_partition", "partition.py")
_running = _load("alerting_running", "running.py")
_talking = _load("alerting_talking", "talking.py")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/alerting/golden")


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """A service that runs inside a test sets up the log of the whole process."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture(autouse=True)
def _answers_after_the_delivery_was_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine needs longer than the service waits; tests look at the result right after the answer."""
    monkeypatch.setattr(deliveries, "ANSWER_SECONDS", 20.0)


@pytest.fixture
def clock() -> FakeClock:
    return _module.FakeClock()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path / "store")
    yield opened
    opened.close()


@pytest.fixture
def slack() -> Iterator[FakeSlack]:
    limits = RateLimits(post_per_second=1000, post_burst=1000, tier3_per_minute=60000, tier3_burst=1000)
    with FakeSlack(channel_names=["gpu-alerts"], token="xoxb-test", limits=limits) as fake:
        yield fake


@pytest.fixture
def bench(store: Store, slack: FakeSlack, clock: FakeClock) -> Bench:
    # The fake's `ts` is real time: the clock must agree with it, as Slack's does with ours.
    clock.time = time.time()
    return _module.Bench(store, slack, clock)


@pytest.fixture
def running(tmp_path: Path, slack: FakeSlack) -> Iterator[Running]:
    with _running.Running(Store(tmp_path / "s"), WebSlack("xoxb-test", slack.url)) as it:
        yield it


@pytest.fixture
def talking(tmp_path: Path, slack: FakeSlack) -> Iterator[Talking]:
    it = _talking.Talking(tmp_path, slack)
    yield it
    it.service.stop()
