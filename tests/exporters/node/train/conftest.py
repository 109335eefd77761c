"""Rings with chosen times, and a clock that does what it is told."""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pyrometer import ring
from pyrometer_exporters.framework.collector import Context
from pyrometer_exporters.node.train import collector as collector_module
from pyrometer_exporters.node.train import ring_folder
from pyrometer_exporters.node.train.collector import TrainCollector
from pyrometer_exporters.node.train.points import PointStore
from pyrometer_exporters.node.train.tracker import Tracker
from pyrometer_exporters.node.users import Users

META = {
    "run": "llama", "attempt": 0, "rank": 0, "local_rank": 0, "world_size": 8, "reporting": True, "first_step": 100,
    "warmup_steps": 2, "tokens_per_step": 1_000_000, "flops_per_token": 6e9, "peak_flops": None, "model": "llama-8b",
    "convention": "palm", "dtype": "bf16", "gpu_model": "NVIDIA H100 80GB HBM3", "recompute": "none", "job_id": "77",
    "gpu": "0", "uuid": "GPU-1", "stage": "0", "replica": "0", "global_batch_size": 512, "micro_batch_size": 1,
    "sequence_length": 4096,
}  # fmt: skip


class Clock:
    """Monotonic time moves by ``advance`` only, the wall clock can be set besides."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.offset = 1_790_000_000.0

    def wall(self) -> float:
        return self.now + self.offset

    def monotonic(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


class Ring:
    """A ring written by hand, as a rank would, with the lock that shows that the rank lives."""

    def __init__(self, folder: Path, name: str, clock: Clock, *, version: int = 2, **meta: Any) -> None:
        folder.mkdir(exist_ok=True)
        self.clock = clock
        self.path = folder / f"{name}.ring"
        data = json.dumps({**META, **meta}).encode()
        self.fd = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        fcntl.flock(self.fd, fcntl.LOCK_EX)
        os.pwrite(self.fd, data, ring.META_OFFSET)
        magic, self.record_slots = {
            1: (ring.MAGIC_V1, ring.RECORD_SLOTS_V1), 2: (ring.MAGIC, ring.RECORD_SLOTS),
        }[version]  # fmt: skip
        os.ftruncate(self.fd, ring.HEADER_BYTES + ring.CAPACITY * 8 * self.record_slots)
        os.pwrite(self.fd, struct.pack("<4q", magic, int(clock.now * 1e9), 1, len(data)), 0)
        self.count = 0
        self.total = 0

    def slot(self, number: int, value: float, form: str = "q") -> None:
        os.pwrite(self.fd, struct.pack(f"<{form}", value), 8 * number)

    def text(self, number: int, text: str) -> None:
        """Write a short text from a slot on."""
        os.pwrite(self.fd, text.encode() + b"\0", 8 * number)

    def step(self, start: float, end: float, flags: int = 0, **values: float) -> None:
        self.clock.now = max(self.clock.now, end)
        at = ring.FIRST_RECORD_SLOT + (self.count % ring.CAPACITY) * self.record_slots
        self.count += 1
        for place, name, flag, form in (
            (ring.TOKENS, "tokens", ring.FLAG_TOKENS, "q"), (ring.FLOPS, "flops", ring.FLAG_FLOPS, "d"),
            (ring.LOSS, "loss", ring.FLAG_LOSS, "d"), (ring.GRAD_NORM, "grad_norm", ring.FLAG_GRAD_NORM, "d"),
            (ring.GLOBAL_BATCH_SIZE, "global_batch_size", ring.FLAG_GLOBAL_BATCH_SIZE, "q"),
            (ring.SEQUENCE_LENGTH, "sequence_length", ring.FLAG_SEQUENCE_LENGTH, "q"),
            (ring.RECOMPUTE_NUMBER, "recompute", ring.FLAG_RECOMPUTE, "q"),
            (ring.STEPS, "steps", ring.FLAG_STEPS, "q"), (ring.STEP, "number", ring.FLAG_STEPS, "q"),
            (ring.REPORTED_FLOPS, "reported_flops", ring.FLAG_REPORTED_FLOPS, "d"),
            (ring.REPORTED_MFU, "reported_mfu", ring.FLAG_REPORTED_MFU, "d"),
        ):  # fmt: skip
            if name in values:
                flags |= flag
                self.slot(at + place, values[name], form)
        begin, finish = int(start * 1e9), int(end * 1e9)
        for place, value in ((ring.SEQUENCE, self.count), (ring.START, begin), (ring.END, finish), (ring.FLAGS, flags)):
            self.slot(at + place, value)
        self.total += finish - begin
        self.slot(ring.STEP_STARTED_SLOT, begin)
        self.slot(ring.STEP_TOTAL_SLOT, self.total)
        self.slot(ring.COUNT_SLOT, self.count)

    def crash(self) -> None:
        """The process is gone, and its lock with it."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def close(self) -> None:
        """The run has ended well."""
        self.slot(ring.STATE_SLOT, ring.CLOSED)
        self.crash()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "rings"


@pytest.fixture
def rings(folder: Path, clock: Clock) -> Iterator[Callable[..., Ring]]:
    """Make rings; each is the newest at its time."""
    made: list[Ring] = []

    def make(name: str = "r0", **meta: Any) -> Ring:
        made.append(Ring(folder, name, clock, **meta))
        return made[-1]

    yield make
    for one in made:
        one.crash()


@pytest.fixture
def context(tmp_path: Path, folder: Path, clock: Clock) -> Context:
    (tmp_path / "state").mkdir(exist_ok=True)
    return Context(argparse.Namespace(), clock, Path("/sys"), Path("/proc"), folder, tmp_path / "state")


@pytest.fixture(autouse=True)
def only_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector_module, "POLL_SECONDS", 3600.0)
    monkeypatch.setattr(Users, "name", lambda _self, _uid: "ada")  # whoever runs the tests
    monkeypatch.setattr(ring_folder, "LONG_SECONDS", 60.0)  # a busy machine may take long to list even a few files


@pytest.fixture
def collector(context: Context) -> Iterator[TrainCollector]:
    made = TrainCollector(context)
    yield made
    made.close()


@pytest.fixture
def store() -> PointStore:
    return PointStore()


@pytest.fixture
def tracker(folder: Path, clock: Clock, store: PointStore) -> Iterator[Tracker]:
    folder.mkdir(exist_ok=True)
    made = Tracker(folder, clock, store)
    yield made
    made.close()
