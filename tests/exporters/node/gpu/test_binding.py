"""The driver's library as it is called without the binding's Python: the same answers, and the same errors."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml
import pytest

from pyrometer_exporters.node.gpu.binding import Pynvml
from pyrometer_exporters.node.gpu.number_calls import DECODER_UTILISATION, ENCODER_UTILISATION
from pyrometer_exporters.node.gpu.nvml import Handle, NvmlError
from pyrometer_simulator.nvml import SimulatedGpu, SimulatedGpus, installed
from pyrometer_simulator.nvml.features.events import XID_EVENT, report_xid


@pytest.fixture
def gpu(tmp_path: Path) -> Any:
    """A GPU under load, with pynvml initialised over it."""
    gpus = SimulatedGpus(tmp_path / "gpus", count=1)
    gpus[0].load()
    gpus[0].set(encoder=12, decoder=34)
    with installed(tmp_path / "gpus"):
        pynvml.nvmlInit()
        yield gpus[0]


@pytest.fixture
def handle(gpu: SimulatedGpu) -> Handle:
    return Handle(pynvml.nvmlDeviceGetHandleByIndex(0))


def test_the_answers_are_those_of_the_binding(handle: Handle) -> None:
    nvml, rates = Pynvml(), pynvml.nvmlDeviceGetUtilizationRates(handle)
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle, pynvml.nvmlMemory_v2)
    assert nvml.utilisation_percent(handle) == (rates.gpu, rates.memory)
    assert nvml.utilisation_percent(handle)[0] > 0
    assert nvml.memory(handle) == (memory.total, memory.reserved, memory.free, memory.used)
    assert nvml.numbers(handle, [ENCODER_UTILISATION, DECODER_UTILISATION])() == [12, 34]


CALLS: dict[str, Callable[[Pynvml, Handle], object]] = {
    "nvmlDeviceGetUtilizationRates": lambda nvml, handle: nvml.utilisation_percent(handle),
    "nvmlDeviceGetMemoryInfo_v2": lambda nvml, handle: nvml.memory(handle),
    "nvmlDeviceGetMigMode": lambda nvml, handle: nvml.ask("nvmlDeviceGetMigMode", handle),
    "nvmlDeviceGetPowerManagementLimit": lambda nvml, handle: nvml.ask("nvmlDeviceGetPowerManagementLimit", handle),
}


@pytest.mark.parametrize("function", CALLS)
def test_an_error_has_its_reason_and_the_name_of_the_call(function: str, gpu: SimulatedGpu, handle: Handle) -> None:
    gpu.set(errors={function: 15})
    with pytest.raises(NvmlError, match=f"{function} returned 15") as raised:
        CALLS[function](Pynvml(), handle)
    assert raised.value.reason == "gpu_is_lost"


def test_an_event_that_has_not_come_is_none_and_no_error(gpu: SimulatedGpu, handle: Handle) -> None:
    nvml, event_set = Pynvml(), pynvml.nvmlEventSetCreate()
    pynvml.nvmlDeviceRegisterEvents(handle, XID_EVENT, event_set)
    assert nvml.event(event_set, 0) is None
    report_xid(gpu, 79, gpu_instance=3)
    event = nvml.event(event_set, 0)
    assert event is not None
    assert (event.eventType, event.eventData, event.gpuInstanceId) == (XID_EVENT, 79, 3)
    assert nvml.event(event_set, 0) is None


def test_a_set_that_is_none_is_an_error(handle: Handle) -> None:
    with pytest.raises(NvmlError, match="nvmlEventSetWait_v2 returned 2"):
        Pynvml().event(pynvml.c_nvmlEventSet_t(), 0)


@pytest.mark.parametrize(
    ("field", "told", "value", "expected"),
    [
        (3, 0, 12, {3: 12}),  # an ECC counter that is called a double
        (28, 1, 1 << 40, {28: 1 << 40}),  # and one that is called 32 bits wide
        (82, 0, 48, {82: 48}),  # R545's memory temperature: the type was left at 0, which is a double
        (94, 0, 0x3FF8 << 48, {94: 1.5}),  # a double that is one
        (94, 1, 7, {94: 7}),
        (94, 77, 7, {}),  # a type that nobody has heard of
    ],
)
def test_field_value_is_read_as_what_it_is_whatever_type_the_driver_tells(
    monkeypatch: pytest.MonkeyPatch, field: int, told: int, value: int, expected: dict[int, int]
) -> None:
    entries = (pynvml.c_nvmlFieldValue_t * 1)()
    entries[0].fieldId, entries[0].valueType, entries[0].timestamp = field, told, 1
    entries[0].value.ullVal = value  # a union: smaller types are its first bytes
    monkeypatch.setattr(pynvml, "nvmlLib", _Filling(entries))
    assert Pynvml().fields(Handle(object()), [field]) == expected


def test_field_value_that_the_driver_leaves_out_is_not_the_one_of_the_call_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entries = (pynvml.c_nvmlFieldValue_t * 1)()
    entries[0].fieldId, entries[0].valueType, entries[0].timestamp, entries[0].value.ullVal = 94, 3, 1, 7
    nvml, untouched = Pynvml(), (pynvml.c_nvmlFieldValue_t * 0)()
    monkeypatch.setattr(pynvml, "nvmlLib", _Filling(entries))
    assert nvml.fields(Handle(object()), [94]) == {94: 7}
    monkeypatch.setattr(pynvml, "nvmlLib", _Filling(untouched))
    assert nvml.fields(Handle(object()), [94]) == {}


def test_many_different_requests_for_field_values_are_each_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    class Asked:
        def nvmlDeviceGetFieldValues(self, _handle: object, count: Any, values: Any) -> int:  # noqa: N802
            asked.append([(entry.fieldId, entry.scopeId) for entry in values._obj[: count.value]])
            return 0

    monkeypatch.setattr(pynvml, "nvmlLib", Asked())
    nvml = Pynvml()
    for link in range(200):
        nvml.fields(Handle(object()), [94, (161, link)])
    assert asked == [[(94, 0), (161, link)] for link in range(200)]


class _Filling:
    """A library that answers with these entries."""

    def __init__(self, entries: Any) -> None:
        self._entries = entries

    def nvmlDeviceGetFieldValues(self, _handle: object, _count: object, values: Any) -> int:  # noqa: N802
        ctypes.memmove(values._obj, self._entries, ctypes.sizeof(self._entries))
        return 0
