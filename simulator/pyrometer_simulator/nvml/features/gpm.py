"""GPM: samples, and metrics between two of them, as nvml.h's nvmlGpm* functions give them from Hopper on.

State: ``gpm={"5": 55.0}`` sets metrics by their id, in NVML's units (percent, MiB/s); None as a value is NaN. By
default they follow the utilisation and the bytes counted; ``gpm_supported`` overrides what the model's name says.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import re
from typing import Any, NamedTuple

from pyrometer_simulator.nvml.abi import INVALID_ARGUMENT, NOT_SUPPORTED, SUCCESS, Body, Library
from pyrometer_simulator.nvml.features import throughput
from pyrometer_simulator.nvml.gpu_state import GpuState

_HAS_GPM = re.compile(r"\b(H20|H100|H200|H800|GH200|B200|B300|GB200|GB300)\b")
_MIB = 1 << 20
_CYCLES_PER_SECOND = 1.98e9
_TRAINING_MILLIWATTS = 650_000
# The share of the utilisation that each unit reaches in the training of a large model.
_SHARES = {
    1: 1.0,
    2: 0.92,
    3: 0.4,
    4: 0.1,
    5: 0.55,
    6: 0.0,
    7: 0.55,
    8: 0.0,
    9: 0.0,
    10: 0.45,
    11: 0.0,
    12: 0.12,
    13: 0.03,
    # An H100's seven video and seven JPEG decoders and its optical flow accelerator are idle in training.
    **dict.fromkeys((*range(30, 37), *range(40, 47), 50), 0.0),
}
_PIPES = {
    250: 5,
    251: 8,
    252: 7,
    253: 9,
    254: 6,
    257: 4,
    258: 11,
    259: 12,
    260: 13,
}  # cycle counters: the metric that gives their share
_LAST_METRIC = {595: 404, 0: 209}  # by driver


class _Sample(NamedTuple):
    at: float
    utilisation: float
    busy_mj: float
    nvlink: tuple[int, int]
    pcie: tuple[int, int]
    links: int
    overrides: dict[str, float | None]


class _Gpm:
    def __init__(self, library: Library) -> None:
        self._library = library
        self._samples: dict[int, _Sample | None] = {}
        self._addresses = itertools.count(0x1000, 0x1000)

    def query(self, gpu: GpuState, out: Any) -> int:  # noqa: ANN401
        out._obj.isSupportedDevice = int(self._supported(gpu))  # noqa: SLF001
        return SUCCESS

    def alloc(self, out: Any) -> int:  # noqa: ANN401
        address = next(self._addresses)
        self._samples[address] = None
        ctypes.c_void_p.from_address(ctypes.addressof(out._obj)).value = address  # noqa: SLF001
        return SUCCESS

    def free(self, sample: Any) -> int:  # noqa: ANN401
        return (
            SUCCESS if self._samples.pop(_address(sample), INVALID_ARGUMENT) != INVALID_ARGUMENT else INVALID_ARGUMENT
        )

    def take(self, gpu: GpuState, sample: Any) -> int:  # noqa: ANN401
        if not self._supported(gpu):
            return NOT_SUPPORTED
        if _address(sample) not in self._samples:
            return INVALID_ARGUMENT
        library = self._library
        self._samples[_address(sample)] = self._now(gpu, library.setting(gpu, "gpm", {}))
        return SUCCESS

    def take_for_instance(self, gpu: GpuState, instance: int, sample: Any) -> int:  # noqa: ANN401
        found = [one for one in self._library.setting(gpu, "mig") or () if one and one["id"] == instance]
        if not found or _address(sample) not in self._samples:
            return INVALID_ARGUMENT
        if not self._supported(gpu):
            return NOT_SUPPORTED
        self._samples[_address(sample)] = self._now(gpu, found[0].get("gpm", {}))
        return SUCCESS

    def _now(self, gpu: GpuState, overrides: dict[str, float | None]) -> _Sample:
        library = self._library
        return _Sample(
            library.monotonic,
            gpu.utilisation(),
            throughput.busy_mj(gpu),
            throughput.nvlink_bytes(library, gpu),
            throughput.pcie_bytes(library, gpu),
            throughput.nvlinks(library, gpu),
            overrides,
        )

    def metrics(self, out: Any) -> int:  # noqa: ANN401
        request = out._obj  # noqa: SLF001
        before, after = (self._samples.get(_address(sample)) for sample in (request.sample1, request.sample2))
        # NVML wants them 100 ms apart.
        if request.version != 1 or before is None or after is None or after.at - before.at < 0.0999:
            return INVALID_ARGUMENT
        last = _LAST_METRIC[595 if self._library.driver_version >= (595,) else 0]
        for entry in request.metrics[: request.numMetrics]:
            value = _value(entry.metricId, before, after) if entry.metricId <= last else None
            entry.nvmlReturn = NOT_SUPPORTED if value is None else SUCCESS
            entry.value = 0.0 if value is None else value
        return SUCCESS

    def _supported(self, gpu: GpuState) -> bool:
        return bool(self._library.setting(gpu, "gpm_supported", _HAS_GPM.search(self._library.model) is not None))


def _address(sample: Any) -> int:  # noqa: ANN401
    return ctypes.cast(sample, ctypes.c_void_p).value or 0


def _value(metric: int, before: _Sample, after: _Sample) -> float | None:
    if str(metric) in after.overrides:
        override = after.overrides[str(metric)]
        return math.nan if override is None else override
    if metric in _SHARES:
        return after.utilisation * _SHARES[metric]
    return _rate(metric, before, after) if metric < 248 else _counter(metric, after)


def _rate(metric: int, before: _Sample, after: _Sample) -> float | None:
    sources = {20: ("pcie", 0), 21: ("pcie", 1), 61: ("nvlink", 0), 60: ("nvlink", 1)}
    if metric not in sources or (metric >= 60 and not after.links):
        return None
    name, direction = sources[metric]
    grown = getattr(after, name)[direction] - getattr(before, name)[direction]
    return float(grown / (after.at - before.at) / _MIB)


def _counter(metric: int, sample: _Sample) -> float | None:
    active = sample.busy_mj / _TRAINING_MILLIWATTS * _CYCLES_PER_SECOND
    if metric in _PIPES:
        return active * _SHARES[_PIPES[metric]]
    if metric >= 261:
        link, direction = divmod(metric - 261, 2)
        return float(sample.nvlink[1 - direction] // sample.links) if link < sample.links else None
    return {248: sample.at * _CYCLES_PER_SECOND, 249: active, 255: sample.pcie[0], 256: sample.pcie[1]}.get(metric)


def functions(library: Library) -> dict[str, Body]:
    """Return the GPM functions; samples belong to the process, so they outlive nvmlShutdown."""
    gpm = _Gpm(library)
    return {
        "nvmlGpmQueryDeviceSupport": library.device_call(gpm.query),
        "nvmlGpmSampleAlloc": gpm.alloc,
        "nvmlGpmSampleFree": gpm.free,
        "nvmlGpmSampleGet": library.device_call(gpm.take),
        "nvmlGpmMigSampleGet": library.device_call(gpm.take_for_instance),
        "nvmlGpmMetricsGet": gpm.metrics,
    }
