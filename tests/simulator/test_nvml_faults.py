"""The simulated driver's ways to be ill, through pynvml's own wrappers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pynvml
import pytest

from pyrometer_simulator.nvml import FakeLibrary, SimulatedGpus, installed

# The throttle counters' and power-smoothing settings' first field ids, by driver; None where there are none.
RENUMBERED = {
    "535.183.01": (None, None),
    "550.54.15": (None, None),
    "570.86.15": (None, 251),
    "575.51.03": (251, 256),
    "580.65.06": (251, 256),
    "580.82.07": (269, 251),
    "590.48.01": (269, 251),
    "610.43": (269, 251),
    "615.71": (269, 251),
}


class Node:
    def __init__(self, gpus: SimulatedGpus, library: FakeLibrary) -> None:
        self.gpus = gpus
        self.library = library


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    gpus = SimulatedGpus(tmp_path / "gpus", count=2)
    with installed(gpus.path) as library:
        pynvml.nvmlInit()
        yield Node(gpus, library)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def _temperature(index: int) -> int:
    return int(pynvml.nvmlDeviceGetTemperatureV(pynvml.nvmlDeviceGetHandleByIndex(index), 0))


@pytest.mark.parametrize("code", [*range(1, 31), 999])
def test_every_code_can_be_had_from_one_gpu_alone(node: Node, code: int) -> None:
    node.gpus[1].fail(code)
    with pytest.raises(pynvml.NVMLError) as error:
        _temperature(1)
    assert error.value.value == code
    assert _temperature(0) == 31


def test_a_hung_call_is_in_flight_until_the_gpu_recovers(node: Node) -> None:
    handle = pynvml.nvmlDeviceGetHandleByIndex(1)
    node.gpus[1].hang()
    thread = threading.Thread(target=pynvml.nvmlDeviceGetPowerUsage, args=(handle,))
    thread.start()
    wait_until(lambda: node.gpus[1].stuck == 1)
    assert node.library.in_flight == 1
    node.gpus[1].recover()
    thread.join(5)
    assert node.library.in_flight == 0


def test_a_shutdown_under_a_call_is_noticed(node: Node) -> None:
    handle = pynvml.nvmlDeviceGetHandleByIndex(1)
    node.gpus[1].hang()
    thread = threading.Thread(target=pynvml.nvmlDeviceGetPowerUsage, args=(handle,))
    thread.start()
    wait_until(lambda: node.gpus[1].stuck == 1)
    pynvml.nvmlShutdown()
    assert node.library.unsafe_shutdowns == 1
    node.gpus[1].recover()
    thread.join(5)


def test_the_library_is_detached_by_as_many_shutdowns_as_there_were_inits(node: Node) -> None:
    pynvml.nvmlInit()
    pynvml.nvmlShutdown()
    assert pynvml.nvmlDeviceGetCount() == 2
    pynvml.nvmlShutdown()
    with pytest.raises(pynvml.NVMLError_Uninitialized):
        pynvml.nvmlDeviceGetCount()


def test_a_lost_gpu_comes_back_and_a_hidden_one_with_the_next_init(node: Node) -> None:
    node.gpus[1].lose()
    with pytest.raises(pynvml.NVMLError_GpuIsLost):
        _temperature(1)
    node.gpus[1].recover()
    assert _temperature(1) == 31
    node.gpus[0].hide()
    assert pynvml.nvmlDeviceGetCount() == 2
    pynvml.nvmlShutdown()
    pynvml.nvmlInit()
    assert pynvml.nvmlDeviceGetCount() == 1


def test_the_librarys_version_is_told_though_init_fails(node: Node) -> None:
    pynvml.nvmlShutdown()
    node.gpus.upgrade_library("13.595.45.04")
    with pytest.raises(pynvml.NVMLError_LibRmVersionMismatch):
        pynvml.nvmlInit()
    assert pynvml.nvmlSystemGetNVMLVersion() == "13.595.45.04"


@pytest.mark.parametrize("driver", RENUMBERED)
def test_field_ids_mean_what_they_mean_on_that_driver(tmp_path: Path, driver: str) -> None:
    counters, smoothing = RENUMBERED[driver]
    seconds = [1000.0]
    gpus = SimulatedGpus(tmp_path / "gpus", count=1, driver=driver, monotonic=lambda: seconds[0])
    gpus[0].throttle("hw_thermal")
    with installed(gpus.path, lambda: seconds[0]):
        pynvml.nvmlInit()
        seconds[0] += 0.01
        values = pynvml.nvmlDeviceGetFieldValues(pynvml.nvmlDeviceGetHandleByIndex(0), list(range(251, 274)))
    answered = {value.fieldId: value.value.ullVal for value in values if value.nvmlReturn == 0}
    counting = set(range(counters, counters + 3)) if counters else set()
    assert set(answered) == counting | (set(range(smoothing, smoothing + 18)) if smoothing else set())
    if counters:
        assert answered[counters + 1] == pytest.approx(10_000_000, rel=1e-3)  # hw_thermal, in ns
        assert answered[counters] == answered[counters + 2] == 0


def test_a_card_that_is_exchanged_is_another_one_without_the_old_ones_faults(node: Node) -> None:
    slot, other = node.gpus
    before = slot.uuid, other.uuid
    slot.set(sram_exceeded=1)
    slot.lose()
    slot.exchange()
    assert slot.uuid != before[0]
    assert other.uuid == before[1]
    assert slot.get("sram_exceeded") is None
    assert pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(0)) == slot.uuid
