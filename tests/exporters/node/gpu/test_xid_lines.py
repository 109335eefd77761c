"""The driver's lines in the kernel's log, those of all its generations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrometer_exporters.node.gpu.xid.lines import LineParser, XidEvent, pci_key

PCI = "0000:18:00.0"


def _event(text: str) -> XidEvent | None:
    return LineParser().feed(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "NVRM: Xid (PCI:0000:18:00): 79, pid=1234, name=python, GPU has fallen off the bus.",
            XidEvent(PCI, 79, "kernel_log", pid="1234", process="python", message="GPU has fallen off the bus."),
        ),
        (
            "NVRM: Xid (PCI:0000:18:00 GPU-I:05 GPU-CI:00): 31, pid=7, name=python, Ch 00000008, intr 0. MMU Fault",
            XidEvent(
                PCI, 31, "kernel_log", gpu_instance="5", compute_instance="0", pid="7", process="python",
                message="Ch 00000008, intr 0. MMU Fault",
            ),
        ),
        (
            "NVRM: Xid (PCI:0000:18:00 GPU-I:05): 94, Contained: SM (0x1). RST: No, D-RST: No",
            XidEvent(PCI, 94, "kernel_log", gpu_instance="5", message="Contained: SM (0x1). RST: No, D-RST: No"),
        ),
        (
            "NVRM: Xid (PCI:0000:18:00): 94, pid='1234', name=python, Contained: CE User Channel (0x9). RST: No",
            XidEvent(
                PCI, 94, "kernel_log", pid="1234", process="python", message="Contained: CE User Channel (0x9). RST: No"
            ),
        ),
        (
            "NVRM: Xid (PCI:0000:18:00): 13, pid='<unknown>', name=<unknown>, Graphics Exception",
            XidEvent(PCI, 13, "kernel_log", message="Graphics Exception"),
        ),
        (
            "NVRM: Xid (PCI:0000:18:00): 13, pid=<unknown>, name='<unknown>', Graphics Exception",
            XidEvent(PCI, 13, "kernel_log", message="Graphics Exception"),
        ),
        (
            "NVRM: Xid (PCI:0000:18:00): 43, pid=12, Ch 00000010",
            XidEvent(PCI, 43, "kernel_log", pid="12", message="Ch 00000010"),
        ),
        (
            "NVRM: Xid (PCI:0000:18:00): 45, pid=9, name=python, Ch 00000010 caused by previous Xid 79",
            XidEvent(
                PCI, 45, "kernel_log", pid="9", process="python", caused_by="79",
                message="Ch 00000010 caused by previous Xid 79",
            ),
        ),
        (
            "NVRM: Xid (PCI:0000:18:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
            XidEvent(
                PCI, 154, "kernel_log",
                message="GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
            ),
        ),
        ("NVRM: Xid (PCI:18:00): 62", XidEvent(PCI, 62, "kernel_log")),
        ("NVRM: Xid (0000:03:00): 79, GPU gone", XidEvent("0000:03:00.0", 79, "kernel_log", message="GPU gone")),
        ("NVRM: Xid (PCI:0001:AF:00.0): 999, new", XidEvent("0001:af:00.0", 999, "kernel_log", message="new")),
        (
            "NVRM: GPU 0000:18:00.0: GPU has fallen off the bus.",
            XidEvent(PCI, 79, "bus_loss", message="GPU has fallen off the bus"),
        ),
        (
            "NVRM: GPU at 0000:18:00.0 has fallen off the bus.",  # up to R440 or so
            XidEvent(PCI, 79, "bus_loss", message="GPU has fallen off the bus"),
        ),
        (
            "NVRM: Xid (PCI:0000:18:00): 45, pid=12542, name=VLLM::Worker, channel 0x00000002",
            XidEvent(PCI, 45, "kernel_log", pid="12542", process="VLLM::Worker", message="channel 0x00000002"),
        ),
        (
            "NVRM: Xid (PCI:0000:18:00): 79, pid=1582259, name=nvc:[driver], GPU has fallen off the bus.",
            XidEvent(
                PCI, 79, "kernel_log", pid="1582259", process="nvc:[driver]", message="GPU has fallen off the bus."
            ),
        ),
        (
            "NVRM: The NVIDIA GPU 0000:18:00.0\nNVRM: fallen off the bus and is not responding to commands.",
            XidEvent(PCI, 79, "bus_loss", message="GPU has fallen off the bus"),
        ),
    ],
)  # fmt: skip
def test_a_line_is_an_event(text: str, expected: XidEvent) -> None:
    assert _event(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  590.48.01",
        "NVRM: GPU at PCI:0000:18:00: GPU-4cf8db2d-06d0-7d70-e1c7-d8d0a1a5b0a8",
        "NVRM: A GPU crash dump has been created. If possible, please run nvidia-bug-report.sh as root.",
        "NVRM: fallen off the bus and is not responding to commands.",  # of a GPU that no line named
        "python[12]: NVRM: Xid (PCI:0000:18:00): 79, quoted",
        "NVRM: Xid (PCI:nonsense): 79, x",
        "NVRM: Xid (PCI:0000:18:00): no number",
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
    ],
)
def test_other_lines_are_none(text: str) -> None:
    assert _event(text) is None


def test_a_loss_told_on_three_lines_is_of_the_gpu_that_the_first_names_and_told_once() -> None:
    parser = LineParser()
    lines = [
        "NVRM: The NVIDIA GPU 0000:2a:00.0",
        "usb 1-1: something between",
        "NVRM: (PCI ID: 10de:2330) installed in this system has",
        "NVRM: fallen off the bus and is not responding to commands.",
        "NVRM: fallen off the bus and is not responding to commands.",
    ]
    found = [event for event in map(parser.feed, lines) if event]
    assert [(event.pci, event.xid, event.source) for event in found] == [("0000:2a:00.0", 79, "bus_loss")]


@pytest.mark.parametrize(
    ("written", "key"),
    [
        ("18:00", PCI),
        ("0000:18:00", PCI),
        ("00000000:18:00.0", PCI),
        ("0001:AF:1f.7", "0001:af:1f.7"),
        ("00010000:18:00", "10000:18:00.0"),
    ],
)
def test_all_spellings_of_an_address_are_one(written: str, key: str) -> None:
    assert pci_key(written) == key


@given(st.text())
def test_nothing_makes_it_fail(text: str) -> None:
    parser = LineParser()
    for head in ("", "NVRM: ", "NVRM: Xid (PCI:0000:18:00): 13, ", "NVRM: Xid (PCI:0000:18:00): 13, pid="):
        parser.feed(head + text)


@given(
    st.tuples(st.integers(0, 0xFFFF), st.integers(0, 0xFF), st.integers(0, 0x1F)), st.integers(0, 99999),
    st.none() | st.tuples(st.integers(0, 14), st.integers(0, 7)), st.tuples(
        st.none() | st.integers(1, 1 << 22), st.from_regex(r"[\w./:-]{1,15}", fullmatch=True)
    ), st.none() | st.integers(0, 200),
)  # fmt: skip
def test_what_the_drivers_format_string_prints_is_understood(
    pci: tuple[int, int, int],
    xid: int,
    mig: tuple[int, int] | None,
    process: tuple[int | None, str],
    previous: int | None,
) -> None:
    address = "{:04x}:{:02x}:{:02x}".format(*pci)
    where = f"PCI:{address}" + (f" GPU-I:{mig[0]:02} GPU-CI:{mig[1]:02}" if mig else "")
    pid, name = process
    who = f"pid={pid}, name={name}, " if pid else ""
    cause = f" caused by previous Xid {previous}" if previous is not None else ""
    found = _event(f"NVRM: Xid ({where}): {xid}, {who}Some text{cause}")
    assert found is not None
    assert (found.pci, found.xid) == (f"{address}.0", xid)
    assert (found.gpu_instance, found.compute_instance) == ((str(mig[0]), str(mig[1])) if mig else ("", ""))
    assert (found.pid, found.process) == ((str(pid), name) if pid else ("", ""))
    assert found.caused_by == ("" if previous is None else str(previous))
