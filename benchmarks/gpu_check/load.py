"""A program that puts a known load on the GPU, phase by phase, and reports what it truly was.

Each phase has a kind, ``seconds`` and, for products, a duty cycle and a period: the GPU multiplies for that share of
each period and rests. The truth comes from CUDA's own events. The parent hears of the beginning and the end of each
phase in monotonic seconds, which all processes of a machine share.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

from gpu_check.place import Place, say

PRODUCTS, DEVICE_COPY, HOST_COPY, IDLE = "products", "device copy", "host copy", "idle"
# Rows, and columns of both factors. Half a millisecond on an H100; cut into tiles of 128 x 256, they are a multiple of
# its 132 multiprocessors, so that none waits for the others at the end.
_ROWS, _SIZE = 8448, 4096
_PRODUCT_FLOPS = 2.0 * _ROWS * _SIZE**2
_DEVICE_BYTES, _HOST_BYTES = 1 << 30, 1 << 28
_IN_FLIGHT = 2  # periods that are queued at most: no gap at a duty cycle of 1, and little to wait for at the end


class Loader(Protocol):
    """The work of each kind of phase."""

    def prepare(self) -> None:
        """Get ready: compile kernels, reserve memory."""
        ...

    def run(self, phase: dict[str, Any]) -> dict[str, Any]:
        """Run a phase; return the truth about it."""
        ...

    def end(self) -> None:
        """Leave the GPU as it was."""
        ...


def main(place: Place, *, phases: list[dict[str, Any]]) -> None:
    """Run the phases, each once the parent says so."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    loader: Loader = StandInLoader(place) if place.stand_in else CudaLoader(place)
    try:
        try:
            _run(loader, phases)
        finally:
            # The parent closes our input, sends SIGTERM once and waits. If SIGTERM comes just before this call,
            # SystemExit is raised here, and the outer block still leaves the GPU.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
    finally:
        loader.end()


def _run(loader: Loader, phases: list[dict[str, Any]]) -> None:
    loader.prepare()
    say(ready=True, pid=os.getpid())
    for phase in phases:
        if not sys.stdin.readline():
            return
        say(began=time.monotonic(), name=phase["name"])
        truth = loader.run(phase)
        say(ended=time.monotonic(), name=phase["name"], truth=truth)


class CudaLoader:
    """Runs the phases with PyTorch."""

    def __init__(self, place: Place) -> None:
        self._torch: Any = place.torch()
        if self._torch is None:
            raise SystemExit("no PyTorch with CUDA")

    def prepare(self) -> None:
        """Warm up, and time one product."""
        torch = self._torch
        self._a, self._b = (torch.randn(rows, _SIZE, device="cuda", dtype=torch.bfloat16) for rows in (_ROWS, _SIZE))
        self._c = torch.empty_like(self._a)
        self._multiply(200)
        torch.cuda.synchronize()
        begin, end = self._event(), self._event()
        begin.record()
        self._multiply(500)
        end.record()
        end.synchronize()
        self._seconds_each = begin.elapsed_time(end) / 1e3 / 500

    def run(self, phase: dict[str, Any]) -> dict[str, Any]:
        """Run a phase; return the truth about it."""
        kind, seconds = phase["kind"], phase["seconds"]
        if kind == PRODUCTS:
            return self._products(seconds, phase.get("duty", 1.0), phase.get("period", 0.02))
        if kind == DEVICE_COPY:
            return self._copies(seconds, _DEVICE_BYTES, on_device=True)
        if kind == HOST_COPY:
            return self._copies(seconds, _HOST_BYTES, on_device=False)
        time.sleep(seconds)
        return {"busy": 0.0, "flops": 0.0}

    def end(self) -> None:
        """Do nothing: what is on the GPU goes with the process."""

    def _products(self, seconds: float, duty: float, period: float) -> dict[str, Any]:
        count = round(duty * period / self._seconds_each)
        if not count:
            time.sleep(seconds)
            return {"busy": 0.0, "flops": 0.0}
        marks: list[tuple[float, Any, Any]] = []
        start = time.monotonic()
        while time.monotonic() - start < seconds:
            begin, end = self._event(), self._event()
            begin.record()
            self._multiply(count)
            end.record()
            marks.append((time.monotonic(), begin, end))
            if duty < 1:
                time.sleep(max(0.0, start + len(marks) * period - time.monotonic()))
            elif len(marks) > _IN_FLIGHT:
                marks[-_IN_FLIGHT][2].synchronize()
        marks[-1][2].synchronize()
        took = time.monotonic() - start
        each = [(at, begin.elapsed_time(end) / 1e3) for at, begin, end in marks]
        # At a duty cycle of 1 the gaps between two periods count as busy where there are none.
        whole = marks[0][1].elapsed_time(marks[-1][2]) / 1e3
        flops = _PRODUCT_FLOPS * count * len(marks)
        return {"busy": sum(busy for _, busy in each) / max(took, whole), "flops": flops / took, "periods": each}

    def _copies(self, seconds: float, size: int, *, on_device: bool) -> dict[str, Any]:
        torch = self._torch
        place = {"device": "cuda"} if on_device else {"pin_memory": True}
        source = torch.empty(size, dtype=torch.uint8, **place)
        target = torch.empty(size, dtype=torch.uint8, device="cuda")
        torch.cuda.synchronize()
        start, count = time.monotonic(), 0
        while time.monotonic() - start < seconds:
            target.copy_(source, non_blocking=True)
            count += 1
            if count % 4 == 0:
                torch.cuda.synchronize()
        torch.cuda.synchronize()
        return {"bytes": count * size, "bytes_per_second": count * size / (time.monotonic() - start)}

    def _multiply(self, count: int) -> None:
        for _ in range(count):
            self._torch.matmul(self._a, self._b, out=self._c)

    def _event(self) -> Any:  # noqa: ANN401  torch's
        return self._torch.cuda.Event(enable_timing=True)


class StandInLoader:
    """Sets what the simulated driver answers, as a GPU under this load would."""

    def __init__(self, place: Place) -> None:
        from pyrometer_simulator.nvml import SimulatedGpus  # noqa: PLC0415  only of the stand-in

        self._gpu = SimulatedGpus(place.gpus, create=False)[0]

    def prepare(self) -> None:
        """Appear in the driver's list of processes."""
        self._gpu.set(processes=[[os.getpid(), 1 << 30]], pcie_bytes=[0, 0])

    def end(self) -> None:
        """Disappear from it, and leave the GPU idle."""
        self._gpu.set(processes=None)
        self._rest()

    def run(self, phase: dict[str, Any]) -> dict[str, Any]:
        """Run a phase; return the truth about it."""
        runs: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            PRODUCTS: self._products, DEVICE_COPY: self._device_copy, HOST_COPY: self._host_copy,
        }  # fmt: skip
        truth = runs.get(phase["kind"], self._idle)(phase)
        self._rest()
        return truth

    def _rest(self) -> None:
        self._gpu.recover()
        self._gpu.set(gpm=None)
        self._gpu.idle()

    def _products(self, phase: dict[str, Any]) -> dict[str, Any]:
        duty, seconds = phase.get("duty", 1.0), phase["seconds"]
        self._gpu.load(utilisation=round(100 * duty), power_watts=72 + 628 * duty)
        self._gpu.set(gpm={"2": 100 * duty, "5": 90.0 * duty, "10": 30.0 * duty})
        self._gpu.pulse("power_cap", "hw_slowdown", seconds=0.3, every=1.1)
        periods, start = [], time.monotonic()
        while time.monotonic() - start < seconds:
            began = time.monotonic()
            time.sleep(0.01)
            periods.append((began, time.monotonic() - began))
        return {"busy": duty, "flops": 0.9 * duty * STAND_IN_PEAK, "periods": periods}

    def _device_copy(self, phase: dict[str, Any]) -> dict[str, Any]:
        self._gpu.load()
        self._gpu.set(gpm={"2": 20.0, "5": 0.0, "10": 80.0})
        time.sleep(phase["seconds"])
        return {"bytes_per_second": 0.8 * STAND_IN_BANDWIDTH / 2}

    def _host_copy(self, phase: dict[str, Any]) -> dict[str, Any]:
        start, rate = time.monotonic(), 20e9
        took = 0.0
        while took < phase["seconds"]:
            time.sleep(0.005)
            took = time.monotonic() - start
            self._gpu.set(pcie_bytes=[round(1e6 * took), round(rate * took)])
        return {"bytes": rate * took, "bytes_per_second": rate}

    def _idle(self, phase: dict[str, Any]) -> dict[str, Any]:
        time.sleep(phase["seconds"])
        return {"busy": 0.0, "flops": 0.0}


STAND_IN_PEAK = 989.4e12
STAND_IN_BANDWIDTH = 5120 * 2619e6 * 2 / 8
"""Bytes per second of the simulated H100's memory: bus of 5120 bits, 2619 MHz, two transfers a cycle."""
