"""Starts Thanos or Mimir above a real pair of Prometheis, each of which is away once; what the tests of both share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from pyrometer_simulator.demo.scenario import HOT_CELSIUS, HOT_CLOCK_MHZ
from pyrometer_simulator.pair import above
from pyrometer_simulator.pair.mimir import Mimir
from pyrometer_simulator.pair.pair import NODES, REPLICAS
from pyrometer_simulator.pair.thanos import Thanos
from pyrometer_simulator.stack import StackError, find_stack

WARM_SECONDS = 30.0
# The critical alert compares with five minutes ago, which a young scene does not have.
TOLD_SECONDS = 420.0
Scene = TypeVar("Scene", Thanos, Mimir)


@pytest.fixture(scope="session")
def start_above() -> Callable[..., AbstractContextManager[Any]]:
    """Start Thanos or Mimir (the class) in a folder; each Prometheus is away and then back for so many seconds."""
    return contextmanager(_started)


@pytest.fixture
def tell_alike() -> Callable[[Thanos | Mimir], None]:
    """Check that the pair's alert of a hot GPU and that of the ruler above are the same, and are told once each."""
    return _tell_alike


def _started(make: type[Scene], folder: Path, down: float, back: float) -> Iterator[Scene]:
    name = make.__name__.lower()
    program = above.program(name)
    if program is None:
        pytest.skip(above.missing(name))
    try:
        stack = find_stack(lambda _: None)
    except StackError as error:
        pytest.skip(str(error))
    scene = make(folder, stack, program)
    try:
        time.sleep(WARM_SECONDS)
        for replica in REPLICAS:
            scene.pair.kill(replica)
            time.sleep(down)
            scene.pair.start(replica)
            time.sleep(back)
        yield scene
    finally:
        scene.close()


def _tell_alike(scene: Thanos | Mimir) -> None:
    hot = scene.pair.nodes.nodes[NODES[0]].gpus[3]
    hot.throttle("hw_thermal", sm_clock=HOT_CLOCK_MHZ, temperature=HOT_CELSIUS)
    where = {"alertname": "GpuThrottledThermal", "node": NODES[0], "gpu": "3", "severity": "critical"}
    deadline = time.monotonic() + TOLD_SECONDS
    told = scene.pair.told, scene.told
    while not all(each.find(**where) for each in told) and time.monotonic() < deadline:
        time.sleep(1.0)
    hot.recover()
    ours, theirs = (each.find(**where) for each in told)
    assert len(ours) == 1
    assert theirs == ours
    assert [len(each.begins[ours[0]]) for each in told] == [1, 1]
