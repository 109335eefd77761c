"""A stand-in for torch.cuda with an asynchronous GPU: a queue of kernels, one virtual clock, and nobody who waits."""

from __future__ import annotations

import types
from collections import deque

DEPTH = 1000
"""Kernels that the queue holds; the host waits for a place."""


class Device:
    """A stream and its host. Times in ns; ``now`` is the host's clock, which moves by what the host does."""

    def __init__(self, depth: int = DEPTH) -> None:
        self.now = 1_000_000_000
        self.depth = depth
        self.queue: deque[int] = deque()
        self.busy_until = 0
        self.events = 0
        self.initialized = True
        self.capturing = False
        self.broken = False

    def clock(self) -> int:
        """Return the host's time; each look takes 100 ns."""
        self.now += 100
        return self.now

    def launch(self, ms: float) -> None:
        """Queue a kernel, which takes the host 5 us unless the queue is full."""
        self.now += 5_000
        self.busy_until = max(self.busy_until, self.now) + int(ms * 1e6)
        self.queue.append(self.busy_until)
        while self.queue and self.queue[0] <= self.now:
            self.queue.popleft()
        if len(self.queue) > self.depth:
            self.now = max(self.now, self.queue.popleft())

    def item(self) -> None:
        """Wait for the GPU, as a job does that reads its loss."""
        self.now = max(self.now, self.busy_until)

    def torch(self) -> types.ModuleType:
        """Return a module that has what the client asks of torch."""
        device = self

        class Event:
            def __init__(self, enable_timing: bool = False) -> None:
                assert enable_timing
                device.events += 1
                self.at: int | None = None

            def record(self) -> None:
                if device.broken:
                    raise RuntimeError("CUDA error: an illegal memory access was encountered")
                assert not device.capturing
                device.now += 2_000
                self.at = max(device.now, device.busy_until)

            def query(self) -> bool:
                assert self.at is not None
                return self.at <= device.now

            def elapsed_time(self, other: Event) -> float:
                assert self.query()
                assert other.query(), "this would wait for the GPU"
                assert self.at is not None
                assert other.at is not None
                return (other.at - self.at) / 1e6

            def synchronize(self) -> None:
                raise AssertionError("synchronised")

        def refuse(*_: object) -> None:
            raise AssertionError("synchronised")

        torch = types.ModuleType("torch")
        torch.__dict__["cuda"] = types.SimpleNamespace(
            is_initialized=lambda: device.initialized,
            is_current_stream_capturing=lambda: device.capturing,
            get_device_name=lambda: "NVIDIA H100 80GB HBM3",
            Event=Event,
            synchronize=refuse,
        )
        return torch
