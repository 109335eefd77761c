"""Makes fakes.py importable as `alerting_fakes` (the tests have no packages) and offers the common fixtures."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyrometer_alerting.store import Store
from pyrometer_simulator.slack import FakeSlack
from pyrometer_simulator.slack_channel import RateLimits

_spec = importlib.util.spec_from_file_location("alerting_fakes", Path(__file__).with_name("fakes.py"))
assert _spec is not None
assert _spec.loader is not None
_module = importlib.util.module_from_spec(_spec)
sys.modules.setdefault("alerting_fakes", _module)
_spec.loader.exec_module(_module)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/alerting/golden")


@pytest.fixture
def clock() -> Any:
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
def bench(store: Store, slack: FakeSlack, clock: Any) -> Any:
    # The fake's `ts` is real time: the clock must agree with it, as Slack's does with ours.
    clock.time = time.time()
    return _module.Bench(store, slack, clock)
