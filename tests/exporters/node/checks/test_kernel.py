"""The check of the kernel's log: what it names, and how grave."""

from __future__ import annotations

from typing import Any

import pytest

from pyrometer_exporters.node.checks.check import Verdict
from pyrometer_exporters.node.checks.subjects import kernel
from pyrometer_exporters.node.checks.subjects.kernel import CHECKS

PCI = "0000:5d:00"
REQUIRED = "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"
NONE = "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"


def verdict(node: Any) -> Any:
    (result,) = node.look("kernel_errors").results
    return result


@pytest.mark.parametrize(
    ("write", "severity", "words"),
    [
        (lambda log: log.xid(PCI, 79, "GPU has fallen off the bus."), "critical", "Xid 79 of 0000:5d:00.0"),
        (lambda log: log.xid(PCI, 95, "Uncontained"), "critical", "Xid 95"),
        (lambda log: log.xid(PCI, 154, REQUIRED), "critical", "Xid 154"),
        (lambda log: log.sxid(3, "0000:c1:00.0", 20034, "LTSSM Fault Up", fatal=True), "critical", "SXid 20034"),
        (lambda log: log.write("EDAC MC0: 1 UE memory read error on DIMM0"), "warning", "EDAC MC0: 1 UE"),
        (lambda log: log.write("nvme nvme4: Disabling device after reset failure: -19"), "warning", "nvme4"),
        (lambda log: log.write("EXT4-fs (md0): Remounting filesystem read-only"), "warning", "md0"),
        (lambda log: log.write("INFO: task UVM GPU1 BH:4567 blocked for more than 120 seconds."), "warning", "UVM"),
        (lambda log: log.write("mlx5_core 0000:5c:00.0: Detected insufficient power on the PCIe slot (27W)."),
         "warning", "insufficient power"),
    ],
)  # fmt: skip
def test_a_gpus_error_is_what_the_catalogue_says_of_it_and_the_rest_a_warning(
    node: Any, write: Any, severity: str, words: str
) -> None:
    write(node.log)
    result = verdict(node)
    assert (result.verdict.state, result.severity) == ("failed", severity)
    assert words in result.verdict.reason


@pytest.mark.parametrize(
    "write",
    [
        lambda log: log.write("a line of every boot"),
        lambda log: log.write("nvme nvme0: Shutdown timeout set to 10 seconds", level=6),
        lambda log: log.xid(PCI, 31, "MMU Fault"),
        lambda log: log.sxid(3, "0000:c1:00.0", 11012, "Ingress ECC soft limit error", fatal=False, link=30),
        lambda log: log.write("EDAC MC0: 1 CE memory read error on DIMM0"),
        lambda log: (log.xid(PCI, 95, "Uncontained"), log.xid(PCI, 154, REQUIRED), log.xid(PCI, 154, NONE)),
        lambda log: (
            log.xid(PCI, 79, "GPU has fallen off the bus."),
            log.sxid(3, "0000:c1:00.0", 20034, "LTSSM Fault Up", fatal=True, link=30),
            log.write("NVRM: loading NVIDIA UNIX x86_64 Kernel Module  570.86.15"),
        ),
    ],
)
def test_what_is_no_loss_or_is_over_passes(node: Any, write: Any) -> None:
    write(node.log)
    assert verdict(node).verdict.state == "ok"


def test_a_lost_gpu_is_one_error_however_often_it_is_called(node: Any) -> None:
    for _ in range(3):
        node.log.fallen_off_bus(PCI, with_xid=False)
    assert verdict(node).verdict.reason == "Xid 79 of 0000:5d:00.0"


def test_a_log_that_is_too_long_to_be_read_is_no_ok(node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "MOST_RECORDS", 1)
    assert verdict(node).verdict.state == "unknown"
    node.log.xid(PCI, 79, "GPU has fallen off the bus.")
    assert verdict(node).verdict.state == "failed"


def test_another_gpu_that_recovered_changes_nothing(node: Any) -> None:
    node.log.xid(PCI, 95, "Uncontained")
    node.log.xid("0000:18:00", 154, NONE)
    assert verdict(node).severity == "critical"


def test_what_a_program_writes_is_not_the_kernels(node: Any) -> None:
    node.log.write("a line of the kernel")
    with node.log.path.open("a") as file:
        file.write("12,9,999999999999,-;NVRM: Xid (PCI:0000:18:00): 79, pid=1, name=x, GPU has fallen off the bus.\n")
    assert verdict(node).verdict.state == "ok"


@pytest.mark.parametrize("text", ["", "Nov 28 18:00:01 gpu-001 kernel: [1.0] NVRM: Xid (PCI:0000:18:00): 79, x\n"])
def test_a_log_that_says_nothing_or_is_none_is_no_ok(node: Any, text: str) -> None:
    node.log.path.write_text(text)
    assert verdict(node).verdict.state == "unknown"
    assert str(node.log.path) in verdict(node).verdict.reason


def test_the_severity_that_a_site_configures_goes_first(node: Any) -> None:
    node.log.xid(PCI, 79, "GPU has fallen off the bus.")
    node.config.write_text("checks: {kernel_errors: {severity: warning}}\n")
    assert verdict(node).severity == "warning"


def test_no_advice_under_a_warning_is_to_drain() -> None:
    assert CHECKS[0].severity == "warning"
    assert "rain" not in CHECKS[0].action
    assert Verdict("ok").severity is None
