"""The machine that the demo runs on: what it can't show is said in one line, with the reason."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pyrometer_simulator.demo import own_machine
from pyrometer_simulator.http_server import HttpServer, Response

NOWHERE = "http://127.0.0.1:9/metrics"
METRICS = b"""\
# TYPE pyrometer_down_reason_info gauge
pyrometer_down_reason_info{collector="gpu",part="nvml",reason="no_driver"} 1
pyrometer_down_reason_info{collector="gpu",part="kmsg",reason="no_permission"} 1
pyrometer_down_reason_info{collector="nic",part="wlan0",reason="io_error"} 1
pyrometer_down_reason_info{collector="train",part="rings",reason="no_rings"} 1
# TYPE pyrometer_nic_link_up gauge
pyrometer_nic_link_up{device="eth0",port=""} 1
"""


@pytest.fixture
def kernel_log(tmp_path: Path) -> Path:
    path = tmp_path / "kmsg"
    path.touch()
    return path


@pytest.fixture
def forbidden_log(kernel_log: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As the kernel does where dmesg_restrict is 1: the file's own mode would let everybody read it."""

    def refuse(path: Path, *_: object) -> int:
        raise PermissionError(1, "Operation not permitted", str(path))

    monkeypatch.setattr(os, "open", refuse)
    return kernel_log


def test_a_readable_kernel_log_is_read_and_nothing_is_said(kernel_log: Path) -> None:
    assert own_machine.closed_kernel_log(kernel_log) == ""
    assert own_machine.exporter_flags(kernel_log) == ["--no-collector.checks"]
    assert own_machine.describe_gaps(NOWHERE, kernel_log) == ""


def test_a_forbidden_kernel_log_is_not_asked_for_and_said_with_the_way_out(forbidden_log: Path) -> None:
    assert own_machine.exporter_flags(forbidden_log) == ["--no-collector.checks", "--no-collector.kernel"]
    line = own_machine.describe_gaps(NOWHERE, forbidden_log)
    assert line.startswith(f"not shown of this machine: the kernel log ({forbidden_log}: Operation not permitted; ")
    assert "kernel.dmesg_restrict=0" in line


def test_a_machine_without_a_kernel_log_has_no_way_out(tmp_path: Path) -> None:
    absent = tmp_path / "kmsg"
    assert own_machine.exporter_flags(absent) == ["--no-collector.checks", "--no-collector.kernel"]
    line = own_machine.describe_gaps(NOWHERE, absent)
    assert line == f"not shown of this machine: the kernel log ({absent}: No such file or directory)"


def test_what_the_exporter_cannot_read_is_in_the_same_line(kernel_log: Path) -> None:
    with HttpServer(lambda _: Response(METRICS)) as server:
        line = own_machine.describe_gaps(f"{server.url}/metrics", kernel_log)
    assert line == "not shown of this machine: GPUs (no NVIDIA driver); wlan0 (io_error)"
