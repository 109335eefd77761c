"""A simulated node under the NIC collector, with files that can fail, hang and record what was opened."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from pyrometer_exporters.framework.collector import Context
from pyrometer_exporters.framework.metrics import Down, Sample, samples_in
from pyrometer_exporters.node.nic import collector, device
from pyrometer_exporters.node.nic.collector import NicCollector
from pyrometer_exporters.node.nic.sysfs import Files
from pyrometer_simulator.sysfs import SysfsTree

PATIENCE_SECONDS = 60.0


class ManualClock:
    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def wall(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


class FaultyFiles(Files):
    """Paths are given by their end, such as ``mlx5_0/ports/1/state``."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.reads: list[str] = []
        self.errors: dict[str, int] = {}
        self.texts: dict[str, bytes] = {}
        self.hangs: dict[str, threading.Event] = {}
        self.slow: dict[str, float] = {}
        self.paths: dict[int, str] = {}
        self._lock = threading.Lock()

    def open(self, path: str) -> int:
        with self._lock:
            self.opened.append(path)
        descriptor = super().open(path)  # may hang: without the lock
        with self._lock:
            self.paths[descriptor] = path
        return descriptor

    def close(self, descriptor: int) -> None:
        with self._lock:
            del self.paths[descriptor]
        super().close(descriptor)

    def pread(self, descriptor: int, size: int, offset: int, /) -> bytes:
        path = self.paths[descriptor]
        self.reads.append(path)
        for end, event in list(self.hangs.items()):
            if path.endswith(end):
                event.wait(30)
        time.sleep(max((seconds for part, seconds in self.slow.items() if part in path), default=0.0))
        for end, number in self.errors.items():
            if end in path:
                raise OSError(number, os.strerror(number))
        for end, text in self.texts.items():
            if path.endswith(end):
                return text[offset : offset + size]
        return super().pread(descriptor, size, offset)


class Scrape:
    """The result of one collection."""

    def __init__(self, found: list[Sample | Down]) -> None:
        self.samples = samples_in(found)
        self.downs = {item.part: item.reason for item in found if isinstance(item, Down)}
        self._values = {(s.family.name, s.labels): s.value for s in self.samples}
        assert len(self._values) == len(self.samples), "a series was given twice"

    def value(self, name: str, *labels: str) -> float | None:
        return self._values.get((f"pyrometer_nic_{name}", labels))

    def events(self, device: str = "mlx5_0", port: str = "1") -> float | None:
        return self.value("link_down_events_total", device, port)

    def info(self, device: str) -> dict[str, str]:
        return next(
            dict(zip(s.family.labels, s.labels, strict=True))
            for s in self.samples
            if s.family.name == "pyrometer_nic_info" and s.labels[0] == device
        )

    def devices(self) -> set[str]:
        return {s.labels[0] for s in self.samples}


class Node:
    """A simulated node and the collector on it."""

    def __init__(self, folder: Path, **tree: Any) -> None:
        self.tree = SysfsTree(folder / "node", **tree)
        self.sysfs = self.tree.sysfs
        self.state: Path | None = folder / "state"
        self.state.mkdir()
        self.clock = ManualClock()
        self.files = FaultyFiles()
        self.flags: dict[str, Any] = {}
        self.every_time = True
        self.kernel: Any = None
        self._collector: NicCollector | None = None

    @property
    def nic(self) -> Any:
        return self.tree.nic("mlx5_0")

    def context(self) -> Context:
        return Context(
            flags=argparse.Namespace(**self.flags),
            clock=self.clock,
            sysfs=self.sysfs,
            procfs=self.tree.procfs,
            rings=Path("/nonexistent"),
            state=self.state,
        )

    def scrape(self, seconds: float | None = None) -> Scrape:
        """Collect, with deadlines that no busy machine misses; tests of files that hang give their own."""
        if self._collector is None:
            self._collector = NicCollector(self.context(), self.files, lambda: self.kernel, every_time=self.every_time)
        with contextlib.ExitStack() as stack:
            if seconds is None:
                stack.enter_context(mock.patch.object(collector, "DEVICE_SECONDS", PATIENCE_SECONDS))
                stack.enter_context(mock.patch.object(device, "HUNG_SECONDS", PATIENCE_SECONDS))
            return Scrape(list(self._collector.collect(time.monotonic() + (seconds or 2 * PATIENCE_SECONDS))))

    def device(self, name: str) -> Any:
        """The collector's own object for a device."""
        assert self._collector is not None
        return self._collector._devices[name]

    def stop(self) -> None:
        """The exporter ends; the next scrape starts another."""
        if self._collector is not None:
            self._collector.close()
        self._collector = None


@contextlib.contextmanager
def _made(**tree: int) -> Iterator[Node]:
    """In memory where there is room: hundreds of small files a test."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        made = Node(Path(folder), **tree)
        yield made
        for event in made.files.hangs.values():
            event.set()
        made.stop()


@pytest.fixture
def node() -> Iterator[Node]:
    """Two HCAs and an Ethernet interface."""
    with _made(hcas=2, gpus=0, ethernet=1) as made:
        yield made


@pytest.fixture
def recorded_node(node: Node, tmp_path: Path) -> Node:
    """Return a node with the devices of recorded.txt."""
    node.sysfs = tmp_path / "recorded"
    lines = Path(__file__).with_name("recorded.txt").read_text(encoding="utf-8").splitlines()
    for name, link, text in (re.split(r"( -> |:)", line, maxsplit=1) for line in lines if line[0] != "#"):
        path = node.sysfs / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if link == " -> ":
            path.symlink_to(text)
            path.resolve().mkdir(parents=True)
        else:
            path.write_text(text.removeprefix(" ") + "\n", encoding="utf-8")
    return node


@pytest.fixture(scope="module")
def one_node() -> Iterator[Node]:
    """As ``node``, for all tests of a file."""
    with _made(hcas=2, gpus=0, ethernet=1) as made:
        yield made


@pytest.fixture
def four_nics() -> Iterator[Node]:
    """Four HCAs of one kind."""
    with _made(hcas=4, gpus=0, ethernet=0) as made:
        yield made


@pytest.fixture
def bare_node() -> Iterator[Node]:
    """A node without any device."""
    with _made(hcas=0, gpus=0, ethernet=0) as made:
        yield made
