"""Targets of the node exporter: rings, sysfs, the kernel's log, NCCL RAS."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from pyrometer_simulator.fuzz.target import Check, Target
from pyrometer_simulator.overrides import override

_NOW = 1000.0
_META = {
    "run": "llama", "attempt": 0, "rank": 0, "local_rank": 0, "world_size": 8, "reporting": True, "first_step": 100,
    "warmup_steps": 2, "tokens_per_step": 1_000_000, "flops_per_token": 6e9, "peak_flops": None, "model": "llama-8b",
    "convention": "palm", "dtype": "bf16", "gpu_model": "NVIDIA H100 80GB HBM3", "recompute": "none", "job_id": "77",
    "gpu": "0", "uuid": "GPU-1", "stage": "0", "replica": "0", "global_batch_size": 512, "micro_batch_size": 1,
    "sequence_length": 4096, "source": "client", "expected_mfu": 0.4,
}  # fmt: skip
_LINE = re.compile(rb'(#.*|[a-zA-Z_:]\w*(\{(\w+="([^"\\\n]|\\[\\"n])*",?)*\})? [^ \n]+( [0-9.]+)?)')


class _Clock:
    def monotonic(self) -> float:
        """Return a time that stays."""
        return _NOW

    def wall(self) -> float:
        """Return a time that stays."""
        return 1_790_000_000.0


def _check_page(page: bytes) -> None:
    """Check that every line is a comment or a sample of the text format."""
    wrong = [line for line in page.splitlines() if _LINE.fullmatch(line) is None]
    assert wrong == [], wrong[:3]


def ring(folder: Path, _at_end: ExitStack) -> Check:
    """Build the check of the ring reader, from the file to both pages."""
    from pyrometer import ring as layout  # noqa: PLC0415  watched where they are imported
    from pyrometer_exporters.framework.exposition import Renderer, openmetrics  # noqa: PLC0415
    from pyrometer_exporters.node.train.batches import series_of  # noqa: PLC0415
    from pyrometer_exporters.node.train.collector import description_samples, rank_samples  # noqa: PLC0415
    from pyrometer_exporters.node.train.points import PointStore  # noqa: PLC0415
    from pyrometer_exporters.node.train.tracker import Tracker  # noqa: PLC0415

    rings = folder / "rings"
    rings.mkdir()
    path, clock = rings / "r0.ring", _Clock()
    latest_ms = int(clock.wall() * 1000) + 60_000

    def check(data: bytes) -> None:
        with path.open("wb") as file:
            _write_ring(file.fileno(), data, layout)
        store = PointStore()
        tracker = Tracker(rings, clock, store)
        try:
            tracker.poll()
            tracker.poll()
            ranks = tracker.ranks()
            samples = [one for rank in ranks for one in rank_samples(rank, _NOW, clock.wall() - _NOW)]
            _check_page(Renderer().text([*samples, *(one for rank in ranks for one in description_samples(rank))]))
            pending = store.pending("c", clock.wall())
            assert all(point.timestamp <= latest_ms for of_run in pending.values() for point in of_run.points)
            _check_page(openmetrics(series_of(pending)))
        finally:
            tracker.close()

    return check


def _write_ring(descriptor: int, data: bytes, layout: Any) -> None:  # noqa: ANN401  a module
    """Write a ring: the whole file (mode 0), its description (1), or slots of a good one, two of them a step (2)."""
    mode, rest = (data[0] % 3, data[1:]) if data else (0, b"")
    if mode == 0:
        os.pwrite(descriptor, rest, 0)
        if len(rest) > 2048:
            os.ftruncate(descriptor, layout.FILE_BYTES)
        return
    meta = rest[: layout.META_BYTES] if mode == 1 else json.dumps(_META).encode()
    os.ftruncate(descriptor, layout.FILE_BYTES)
    os.pwrite(descriptor, struct.pack("<4q", layout.MAGIC, int(_NOW * 1e9) - 10**9, 1, len(meta)), 0)
    os.pwrite(descriptor, meta, layout.META_OFFSET)
    _write_slots(descriptor, rest if mode == 2 else b"", layout)


def _write_slots(descriptor: int, rest: bytes, layout: Any) -> None:  # noqa: ANN401
    steps = 4
    for number in range(steps):
        end = int((_NOW - steps + number) * 1e9)
        record = struct.pack("<4q", number + 1, end - 10**9, end, 0)
        os.pwrite(descriptor, record, layout.HEADER_BYTES + number * layout.RECORD_BYTES)
    os.pwrite(descriptor, struct.pack("<3q", steps, int((_NOW - 1) * 1e9), steps * 10**9), 8 * layout.COUNT_SLOT)
    for at in range(0, len(rest) - 8, 9):  # a place among the header's first 32 slots and four records, and its value
        place = rest[at]
        slot = place if place < 32 else layout.FIRST_RECORD_SLOT + (place - 32) % (steps * layout.RECORD_SLOTS)
        os.pwrite(descriptor, rest[at + 1 : at + 9], 8 * slot)


def sysfs_text(_folder: Path, _at_end: ExitStack) -> Check:
    """Build the check of the parsers of single files."""
    from pyrometer_exporters.node.nic import parse  # noqa: PLC0415

    def check(data: bytes) -> None:
        text = data.decode("utf-8", "replace")
        for number in (parse.code(text), parse.number(text), parse.setting(text), parse.rate(text), parse.speed(text)):
            assert number is None or 0 <= number < 1 << 80
        assert parse.admin_up(text) in (True, False, None)
        for found in (parse.guid(text), parse.gid_guid(text), parse.pci_address(text)):
            assert found == "" or re.fullmatch(r"[0-9a-f:.]{7,24}", found), found

    return check


def sysfs_tree(folder: Path, at_end: ExitStack) -> Check:
    """Build the check of the whole NIC collector with one file's content replaced."""
    from pyrometer_exporters.framework.collector import Context  # noqa: PLC0415
    from pyrometer_exporters.framework.exposition import Renderer  # noqa: PLC0415
    from pyrometer_exporters.framework.metrics import samples_in  # noqa: PLC0415
    from pyrometer_exporters.node.nic.collector import NicCollector  # noqa: PLC0415
    from pyrometer_exporters.node.nic.sysfs import Files  # noqa: PLC0415
    from pyrometer_simulator.sysfs import SysfsTree  # noqa: PLC0415

    class Replaced(Files):
        """Answers with the input in place of one file."""

        def __init__(self) -> None:
            self.paths: dict[int, str] = {}
            self.replaced, self.text = "", b""

        @override
        def open(self, path: str) -> int:
            descriptor = super().open(path)
            self.paths[descriptor] = path
            return descriptor

        @override
        def close(self, descriptor: int) -> None:
            del self.paths[descriptor]
            super().close(descriptor)

        @override
        def pread(self, descriptor: int, size: int, offset: int, /) -> bytes:
            if self.replaced and self.paths[descriptor].endswith(self.replaced):
                return self.text[offset : offset + size]
            return super().pread(descriptor, size, offset)

    tree, files = SysfsTree(folder / "node", hcas=1, gpus=0, ethernet=1), Replaced()
    names = sorted(str(path)[-48:] for path in tree.sysfs.rglob("*") if path.is_file())
    context = Context(argparse.Namespace(), _Clock(), tree.sysfs, tree.procfs, folder / "rings", None)
    collector = NicCollector(context, files, lambda: None, every_time=True)
    at_end.callback(collector.close)
    renderer = Renderer()

    def check(data: bytes) -> None:
        if len(data) < 2:
            return
        files.replaced, files.text = names[int.from_bytes(data[:2], "big") % len(names)], data[2:]
        samples = samples_in(collector.collect(time.monotonic() + 5))
        assert len({(one.family.name, one.labels) for one in samples}) == len(samples)
        _check_page(renderer.text(samples))

    return check


def kmsg(_folder: Path, _at_end: ExitStack) -> Check:
    """Build the check of the kernel's log: the record, the kind of event, Xids and SXids."""
    from pyrometer_exporters.node.gpu.xid.lines import LineParser, pci_key  # noqa: PLC0415
    from pyrometer_exporters.node.kernel import events  # noqa: PLC0415
    from pyrometer_exporters.node.kernel.kmsg import parse  # noqa: PLC0415

    def check(data: bytes) -> None:
        parser, reader = LineParser(), events.EventReader()
        for line in data.split(b"\n"):
            record = parse(line)
            if record is None:
                continue
            assert 0 <= record.level <= 7
            assert record.seconds >= 0
            event = reader.feed(record)
            assert event is None or (event.kind in events.KINDS and isinstance(event.part, str))
            switch = events.sxid(record.text)
            assert switch is None or switch.code.isdigit()
            xid = parser.feed(record.text)
            assert xid is None or (pci_key(xid.pci) == xid.pci and 0 <= xid.xid < 100_000)

    return check


def _chunks(data: bytes, size: int) -> Iterator[bytes]:
    return (data[start : start + size] for start in range(0, len(data), size))


def nccl_answer(module: str, _folder: Path, _at_end: ExitStack) -> Check:
    """Build the check of NCCL RAS's JSON or text: the same report in any chunks, or one reason."""
    from pyrometer_exporters.framework.outcome import PartError  # noqa: PLC0415
    from pyrometer_exporters.node.nccl.snapshot import Snapshot  # noqa: PLC0415

    answer = importlib.import_module(f"pyrometer_exporters.node.nccl.{module}")

    def read(data: bytes, size: int) -> Snapshot | str:
        try:
            found: Snapshot = answer.read(_chunks(data, size))
        except PartError as error:
            return error.reason
        found.largest()
        return found

    def check(data: bytes) -> None:
        size = 1 + data[0] if data else 1
        assert read(data[1:], size) == read(data[1:], 65_536)

    return check


_RAS_JSON = (
    b'\x40{"nccl_version": "2.29.1", "communicators": [{"hash": "0xae94", "secondary_hash": "0xb7", "size": 2, '
    b'"ranks": [{"rank": 0, "host": "10.0.0.5", "pid": 77, "cuda_dev": 0, "nvml_dev": 0, "status": {"init_state": 0, '
    b'"async_error": 0, "finalize_called": false, "destroy_flag": false, "abort_flag": false}, "collective_counts": '
    b'{"AllGather": 3, "AllReduce": 7}}], "missing_ranks": [{"rank": 1, "host": "10.0.0.5", "pid": 78, "cuda_dev": 1, '
    b'"nvml_dev": 1, "status": {"unresponsive": true, "considered_dead": false}}]}], "ras": {"timeouts_count": 0}}'
)
_RAS_TEXT = b"""\x40NCCL version 2.27.7+cuda12.9 compiled with CUDA 12.9
  Nodes  Processes         GPUs  Processes     GPUs
      4          8            1         32       32
Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
      0         1         4         8        32        32   RUNNING  MISMATCH
#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different AllReduce operation counts
  30 ranks have launched up to operation 6650
  Rank 2 has launched up to operation 6649 -- GPU 2 (NVML 6) managed by process 483074 on node 172.16.64.210
#0-1 (27a079b828ff1a76) INCOMPLETE
  Missing communicator data from 1 rank
  Rank 3 -- GPU 3 managed by process 483075 on node 172.16.64.210
DEAD
  Process 483075 on node 172.16.64.210 managing GPU 3
"""
_KMSG = (
    b"3,1234,5140900123,-;NVRM: Xid (PCI:0000:18:00): 79, pid=1234, name=python, GPU has fallen off the bus.",
    b"3,1,5,-,caller=T1;nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
    b"3,2,6,-;Out of memory: Killed process 4711 (python) total-vm:1kB\n3,3,7,-;EDAC MC0: 1 UE on DIMM",
    b"3,4,8,-;NVRM: The NVIDIA GPU 0000:18:00.0\n3,5,9,-;NVRM: fallen off the bus and is not responding",
    b"2,6,10,-;mce: [Hardware Error]: CPU 3\n3,7,11,-;pcieport 0000:00:03.0: AER: Uncorrected error received",
)

TARGETS = (
    Target("ring", "ring files that any user of the node may write", ring,
           (b"\x02", b"\x01" + json.dumps(_META).encode(), b"\x02" + struct.pack("<Bq", 9, 1) * 3,
            b"\x00" + struct.pack("<4q", int.from_bytes(b"PYROMTR1", "little"), 1, 1, 2) + bytes(992) + b"{}"),
           (*(f'"{key}"'.encode() for key in _META), b"1e308", b"null", b"-1", b"1" * 30, b"NaN", b"Infinity")),
    Target("sysfs_text", "single files of sysfs, as drivers write them", sysfs_text,
           (b"4: ACTIVE\n", b"400 Gb/sec (4X NDR)\n", b"0x1003\n", b"506b:4b03:005f:a1e2\n", b"400000\n", b"N/A",
            b"fe80:0000:0000:0000:506b:4b03:005f:a1e2\n", b"/sys/devices/pci0000:00/0000:00:03.0/virtio2"),
           (b" Gb/sec", b"0x", b": ", b"-1"), 256),
    Target("sysfs_tree", "one file of the NIC collector's sysfs", sysfs_tree,
           tuple(bytes((0, number)) + b"4: ACTIVE\n" for number in range(0, 160, 8)),
           (b" Gb/sec", b"0x", b": ", b"-1", b"N/A", b"32.0 GT/s PCIe"), 512),
    Target("kmsg", "lines of /dev/kmsg, parts of which processes and devices name", kmsg, _KMSG,
           (b"NVRM: Xid (PCI:", b"SXid (PCI:", b", pid=", b"name=", b"caused by previous Xid ", b"\\x0a", b"-;", b"AER: "),
           1024),
    Target("nccl_json", "JSON answers of NCCL RAS, of whoever listens on its port", partial(nccl_answer, "json_answer"), (_RAS_JSON,),
           (b'"ranks"', b'"missing_ranks"', b'"size"', b'"hash"', b'"status"', b'"collective_counts"', b"1" * 40, b"1e9")),
    Target("nccl_text", "text answers of NCCL RAS, of whoever listens on its port", partial(nccl_answer, "text_answer"), (_RAS_TEXT,),
           (b" -- GPU ", b"managed by process ", b" on node ", b"launched up to operation ", b"INCOMPLETE", b"DEAD")),
)  # fmt: skip
