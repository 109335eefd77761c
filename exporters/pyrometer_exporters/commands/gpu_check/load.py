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
from typing import Any, Protocol

from pyrometer_exporters.commands.gpu_check.place import Place, say

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
    """Run the phases with PyTorch, each once the parent says so."""
    run_phases(CudaLoader(place), phases)


def run_phases(loader: Loader, phases: list[dict[str, Any]]) -> None:
    """Run the phases, each once the parent says so; leave the GPU at the end or when asked to."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
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
        busy_periods = [(at, begin.elapsed_time(end) / 1e3) for at, begin, end in marks]
        # At a duty cycle of 1 the gaps between two periods count as busy where there are none.
        whole = marks[0][1].elapsed_time(marks[-1][2]) / 1e3
        flops = _PRODUCT_FLOPS * count * len(marks)
        return {
            "busy": sum(busy for _, busy in busy_periods) / max(took, whole),
            "flops": flops / took,
            "periods": busy_periods,
        }

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
