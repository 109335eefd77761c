"""Records of /dev/kmsg, as the kernel's own documentation has them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrometer_exporters.node.kernel.kmsg import Record, parse
from pyrometer_simulator.kmsg import KernelLog


@pytest.mark.parametrize(
    ("line", "record"),
    [
        (
            b"7,160,424069,-;pci_root PNP0A03:00: host bridge",
            Record(7, 160, 0.424069, "pci_root PNP0A03:00: host bridge"),
        ),
        (
            b"6,339,5140900,-;NET: Registered protocol family 10",
            Record(6, 339, 5.1409, "NET: Registered protocol family 10"),
        ),
        (
            b"30,340,5690716,-;udevd[80]: starting version 181",
            Record(6, 340, 5.690716, "udevd[80]: starting version 181", facility=3),
        ),
        (b"3,1,7,-,caller=T1234;later kernels say who", Record(3, 1, 7e-6, "later kernels say who")),
        (b"6,2,8,c;part of a line", Record(6, 2, 8e-6, "part of a line")),
        (b"4,3,9,-;two\\x0alines \\xc3", Record(4, 3, 9e-6, "two\nlines \xc3")),
        (b"4,4,9,-;", Record(4, 4, 9e-6, "")),
        (b"4,4,9,-;a;b,c;d", Record(4, 4, 9e-6, "a;b,c;d")),
    ],
)
def test_a_record_is_read(line: bytes, record: Record) -> None:
    assert parse(line) == record


@pytest.mark.parametrize(
    "line",
    [
        b" SUBSYSTEM=acpi",
        b" DEVICE=+acpi:PNP0A03:00",
        b"",
        b"[  12.3] text",
        b"-1,2,3,-;x",
        b"1,2;x",
        b"1,2,3,-",
        b"x,2,3,-;x",
    ],
)
def test_what_is_no_record_is_passed_over(line: bytes) -> None:
    assert parse(line) is None


@given(st.binary())
def test_nothing_makes_it_fail(line: bytes) -> None:
    parse(line)


@given(st.text(st.characters(codec="utf-8", max_codepoint=0xFF)), st.integers(0, 7))
def test_what_the_simulated_kernel_writes_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, text: str, level: int
) -> None:
    path: Path = tmp_path_factory.mktemp("log") / "kmsg"
    KernelLog(path, lambda: 12.5).write(text, level)
    (line,) = path.read_bytes().splitlines()
    expected = "".join(chr(byte) for byte in text.encode())  # the kernel escapes byte by byte
    assert parse(line) == Record(level, 0, 12.5, expected)
