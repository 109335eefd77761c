"""GPM, the profiling counters that NVML itself can read from Hopper on: samples, and metrics between two of them.

A sample is an opaque object of the library, filled by nvmlGpmSampleGet; nvmlGpmMetricsGet computes metrics from two of
them without touching the GPU. Samples are kept from one scrape to the next, so that no scrape has to wait.
"""

from __future__ import annotations

import contextlib
import ctypes
import struct
from collections.abc import Sequence
from itertools import compress
from typing import Any, cast

import pynvml

from pyrometer_exporters.node.gpu.nvml import Handle, Nvml, NvmlError, optional
from pyrometer_exporters.node.gpu.rate_window import RateWindow
from pyrometer_exporters.node.gpu.subject import OpenGpu

# c_nvmlGpmMetric_t: metricId, nvmlReturn, value, and three pointers to names that nobody reads here. Read by column:
# field by field through ctypes is slow for sixty metrics.
_ENTRY = struct.Struct("=IId24x")
_set = ctypes.Structure.__setattr__
_VERSION = 1  # NVML_GPM_METRICS_GET_VERSION


class Gpm:
    """The samples of one GPU, or of one of its MIG instances.

    An NvmlError from here is about the GPU as a whole; any other failure leaves values out.
    """

    def __init__(self) -> None:
        self._nvml: Nvml | None = None
        self._handle: Handle | None = None
        self._generation = 0
        self._instance: int | None = None
        self._supported = False
        self._samples: RateWindow[Any] = RateWindow()
        self._spare: list[Any] = []
        self._request: Any = None
        self._asked: Sequence[int] = ()
        self._answers = (0, 0)
        """Where in the request the answers lie: their address and how many bytes."""
        self._heads: list[int] = []
        """The first eight bytes of each answer: metric and code."""
        self._metrics: list[int] = []
        self._good: list[bool] = []
        """Of each answer, whether it has a value."""
        self._last: dict[int, float] | None = None

    def open(self, gpu: OpenGpu, instance: int | None = None) -> bool:
        """Reset for a newly opened GPU or MIG instance. Return whether it supports GPM.

        Calls nvmlGpmQueryDeviceSupport.
        """
        self.release(gpu.generation)
        nvml, handle = gpu.nvml, gpu.handle
        self._nvml, self._handle, self._instance, self._generation = nvml, handle, instance, gpu.generation
        support = optional(lambda: nvml.ask("nvmlGpmQueryDeviceSupport", handle))
        self._supported = support is not None and bool(support.isSupportedDevice)
        return self._supported

    def release(self, generation: int) -> None:
        """Return all samples to the library (nvmlGpmSampleFree).

        Not those of another connection than ``generation``, the present one: whether they went with it, NVML doesn't
        say, and to give back twice what is gone would end the process; a few KiB for each time are the lesser evil.
        """
        for sample in (*self._samples.forget(), *self._spare):
            if generation == self._generation:
                self._free(sample)
        self._spare, self._last = [], None

    def read(self, now: float, metrics: Sequence[int]) -> dict[int, float] | None:
        """Return the values of these metric ids between an earlier sample and now; unavailable ones are left out.

        Returns None while there is no earlier sample, and the same values again within 100 ms.
        ``metrics`` should be the same object every time.
        """
        nvml = self._nvml
        if nvml is None or not self._supported:
            return None
        if self._samples.too_early(now):
            return self._last
        sample = optional(lambda: self._taken(nvml))
        if sample is None:
            return None
        before = self._samples.before(now)
        metrics_now = None if before is None else self._between(nvml, before[1], sample, metrics) or {}
        unneeded = self._samples.keep(now, sample)
        if unneeded is not None:
            self._spare.append(unneeded)
        self._last = metrics_now
        return metrics_now

    def _taken(self, nvml: Nvml) -> Any:  # noqa: ANN401  an opaque pointer
        sample = self._spare.pop() if self._spare else nvml.ask("nvmlGpmSampleAlloc")
        try:
            if self._instance is not None:
                return nvml.ask("nvmlGpmMigSampleGet", self._handle, self._instance, sample)
            return nvml.ask("nvmlGpmSampleGet", self._handle, sample)
        except NvmlError:
            self._spare.append(sample)
            raise

    def _between(
        self,
        nvml: Nvml,
        before: Any,  # noqa: ANN401
        sample: Any,  # noqa: ANN401
        metrics: Sequence[int],
    ) -> dict[int, float] | None:
        if self._request is None or self._asked is not metrics:
            self._request, self._asked = _request(metrics), metrics
            # Once, as the binding's structures run Python for each member.
            self._answers = ctypes.addressof(self._request.metrics), self._request.numMetrics * _ENTRY.size
        request = self._request
        _set(request, "sample1", before)
        _set(request, "sample2", sample)
        if optional(lambda: nvml.ask("nvmlGpmMetricsGet", request)) is None:
            return None
        answered = memoryview(ctypes.string_at(*self._answers))
        heads = answered.cast("Q")[:: _ENTRY.size // 8].tolist()
        if heads != self._heads:  # hardly ever: which metrics a GPU has stays as it is
            self._heads = heads
            split = [struct.unpack("=II", struct.pack("=Q", head)) for head in heads]
            self._metrics, self._good = [metric for metric, _ in split], [code == 0 for _, code in split]
        values: Sequence[float] = answered.cast("d")[1 :: _ENTRY.size // 8].tolist()
        by_metric: dict[int, float] = dict(compress(zip(self._metrics, values, strict=True), self._good))
        # A metric that is not a number (unequal to itself, as the sum then is) is one that wasn't counted.
        total = sum(by_metric.values())
        return by_metric if total == total else {m: value for m, value in by_metric.items() if value == value}  # noqa: PLR0124

    def _free(self, sample: Any) -> None:  # noqa: ANN401
        with contextlib.suppress(NvmlError):  # the memory is the library's; there is nothing else to be done with it
            if self._nvml is not None:
                self._nvml.ask("nvmlGpmSampleFree", sample)


def _request(metrics: Sequence[int]) -> Any:  # noqa: ANN401
    request = pynvml.c_nvmlGpmMetricsGet_t()
    entries = cast("ctypes.Array[ctypes.Structure]", request.metrics)  # pynvml has no types
    wanted = metrics[: len(entries)]  # an older binding has room for fewer
    request.version, request.numMetrics = _VERSION, len(wanted)
    for entry, metric in zip(entries, wanted, strict=False):
        entry.metricId = metric
    return request
