"""Calls that are bound once: the binding's own numbers, older functions where newer can't answer, errors by call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pynvml
import pytest

from pyrometer_exporters.node.gpu.number_calls import (
    CLOCK_EVENT_REASONS,
    FAN_SPEED,
    MEMORY_CLOCK,
    POWER,
    SM_CLOCK,
    TEMPERATURE,
    NumberCalls,
)
from pyrometer_exporters.node.gpu.nvml import NvmlError
from pyrometer_simulator.nvml import SimulatedGpus, installed

CALLS = [SM_CLOCK, MEMORY_CLOCK, TEMPERATURE, POWER, CLOCK_EVENT_REASONS]


@pytest.fixture
def node(tmp_path: Path) -> Any:
    """A GPU under load, and the library that pynvml has."""
    gpus = SimulatedGpus(tmp_path / "gpus", count=1)
    gpus[0].load()
    with installed(tmp_path / "gpus") as library:
        pynvml.nvmlInit()
        yield gpus[0], library, pynvml.nvmlDeviceGetHandleByIndex(0)


def _by_the_binding(handle: Any) -> list[int]:
    return [
        pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
        pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM),
        pynvml.nvmlDeviceGetTemperatureV(handle, pynvml.NVML_TEMPERATURE_GPU),
        pynvml.nvmlDeviceGetPowerUsage(handle),
        pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle),
    ]


def test_the_numbers_are_those_of_the_binding_at_each_read(node: Any) -> None:
    gpu, _, handle = node
    calls = NumberCalls(handle, CALLS)
    assert calls.read() == _by_the_binding(handle)
    gpu.throttle("hw_thermal", sm_clock=1200, temperature=93)
    assert calls.read()[:3] == [1200, 2619, 93]
    assert calls.read() == _by_the_binding(handle)


@pytest.mark.parametrize("lacks", [TEMPERATURE, CLOCK_EVENT_REASONS])
@pytest.mark.parametrize("bound_before", [False, True])
def test_the_older_function_answers_where_the_newer_is_missing_or_can_not(
    node: Any, lacks: Any, bound_before: bool
) -> None:
    gpu, library, handle = node
    expected, calls = NumberCalls(handle, [lacks]).read(), NumberCalls(handle, [lacks])
    if bound_before:
        gpu.set(errors={lacks.function: 3})
    else:
        library.remove_function(lacks.function)
        calls = NumberCalls(handle, [lacks])
    assert calls.read() == expected


def test_a_structure_that_the_binding_lacks_is_a_function_that_it_lacks(
    node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = NumberCalls(node[2], [TEMPERATURE]).read()
    monkeypatch.delattr(pynvml, "c_nvmlTemperature_v1_t")
    assert NumberCalls(node[2], [TEMPERATURE]).read() == expected


def test_an_error_stands_in_its_call_s_place_and_costs_no_other(node: Any) -> None:
    gpu, _, handle = node
    gpu.set(errors={"nvmlDeviceGetPowerUsage": 999})
    clock, power, fan = NumberCalls(handle, [SM_CLOCK, POWER, FAN_SPEED]).read()
    assert clock == pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)
    assert isinstance(power, NvmlError)
    assert (power.call, power.reason) == ("nvmlDeviceGetPowerUsage", "unknown_error")
    assert isinstance(fan, NvmlError)
    assert fan.about_one_value


def test_without_a_library_each_call_says_so(node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pynvml, "nvmlLib", None)
    (answer,) = NumberCalls(node[2], [SM_CLOCK]).read()
    assert isinstance(answer, NvmlError)
    assert answer.reason == "uninitialized"
