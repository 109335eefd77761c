"""The simulated kernel log and NVML's events and processes at the C boundary."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest

from pyrometer_simulator.kmsg import KernelLog
from pyrometer_simulator.nvml import SimulatedGpus, installed
from pyrometer_simulator.nvml.features.events import report_xid


def _log(tmp_path: Path) -> KernelLog:
    return KernelLog(tmp_path / "kmsg", lambda: 5140.9)


def test_lines_are_those_of_the_driver(tmp_path: Path) -> None:
    log = _log(tmp_path)
    log.xid("00000000:18:00.0", 79, "GPU has fallen off the bus.", pid=1234)
    log.xid("0000:18:00.0", 31, "MMU Fault", instances=(5, 0), caused_by=13)
    log.not_responding("0000:18:00.0")
    log.sxid(3, "0000:c1:00.0", 20034, "LTSSM Fault Up", fatal=True, link=30)
    sxid = "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, "
    assert log.path.read_text().splitlines() == [
        "3,0,5140900000,-;NVRM: Xid (PCI:0000:18:00): 79, pid=1234, name=python, GPU has fallen off the bus.",
        "3,1,5140900000,-;NVRM: Xid (PCI:0000:18:00 GPU-I:05 GPU-CI:00): 31, MMU Fault caused by previous Xid 13",
        "3,2,5140900000,-;NVRM: The NVIDIA GPU 0000:18:00.0\\x0aNVRM: (PCI ID: 10de:2330) installed in this system has",
        "3,3,5140900000,-;NVRM: fallen off the bus and is not responding to commands.",
        f"3,4,5140900000,-;{sxid}Fatal, Link 30 LTSSM Fault Up",
        f"3,5,5140900000,-;{sxid}Severity 1 Engine instance 30 Sub-engine instance 00",
        f"3,6,5140900000,-;{sxid}Data {{0x50610002, {', '.join(['0x10100030', '0x00000000'] * 2)}, 0x00000000}}",
    ]


def test_numbers_go_on_where_the_file_ends_and_after_it_was_rotated(tmp_path: Path) -> None:
    _log(tmp_path).write("one")
    log = _log(tmp_path)
    log.rotate()
    log.write("two")
    assert log.path.read_text() == "3,1,5140900000,-;two\n"


@pytest.fixture
def gpus(tmp_path: Path) -> Iterator[SimulatedGpus]:
    made = SimulatedGpus(tmp_path / "gpus", count=2)
    with installed(made.path):
        pynvml.nvmlInit()
        yield made


def _listening(gpu: int) -> Any:
    events = pynvml.nvmlEventSetCreate()
    pynvml.nvmlDeviceRegisterEvents(
        pynvml.nvmlDeviceGetHandleByIndex(gpu), pynvml.nvmlEventTypeXidCriticalError, events
    )
    return events


def test_an_xid_waits_in_each_set_that_listens_and_in_no_other(gpus: SimulatedGpus) -> None:
    report_xid(gpus[0], 13)  # before anyone listens
    first, second, other = _listening(0), _listening(0), _listening(1)
    report_xid(gpus[0], 79)
    report_xid(gpus[0], 31, gpu_instance=5, compute_instance=0)
    for events in (first, second):
        found = [pynvml.nvmlEventSetWait_v2(events, 0) for _ in range(2)]
        assert [(e.eventType, e.eventData) for e in found] == [(8, 79), (8, 31)]
        assert [(e.gpuInstanceId, e.computeInstanceId) for e in found] == [(0xFFFFFFFF, 0xFFFFFFFF), (5, 0)]
    for events in (first, other):
        with pytest.raises(pynvml.NVMLError_Timeout):
            pynvml.nvmlEventSetWait_v2(events, 0)


def test_a_wait_ends_with_the_event(gpus: SimulatedGpus) -> None:
    events = _listening(0)
    timer = threading.Timer(0.05, report_xid, (gpus[0], 48))
    timer.start()
    start = time.monotonic()
    assert pynvml.nvmlEventSetWait_v2(events, 30_000).eventData == 48
    assert time.monotonic() - start < 20
    timer.join()
