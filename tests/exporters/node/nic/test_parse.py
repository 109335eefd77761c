"""Texts of sysfs, as drivers write them and as they don't."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pyrometer_exporters.node.nic import parse


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("4: ACTIVE", 4),
        ("5: ACTIVE_DEFER\n", 5),
        ("7: Phy Test", 7),
        ("9: <unknown>", 9),
        (" 4 : ACTIVE", 4),
        ("4:", 4),
        ("ACTIVE", None),
        ("", None),
        ("-1: X", None),
        ("٤: ACTIVE", None),
    ],
)
def test_a_state_is_its_number(text: str, code: int | None) -> None:
    assert parse.code(text) == code


@pytest.mark.parametrize(
    ("text", "bits"),
    [
        ("400 Gb/sec (4X NDR)", 400_000_000_000),
        ("200 Gb/sec (2X NDR)", 200_000_000_000),
        ("2.5 Gb/sec (1X SDR)", 2_500_000_000),
        ("2.5 Gb/sec", 2_500_000_000),
        ("10 Gb/sec (4X)\n", 10_000_000_000),
        ("25 Gb/sec (1X EDR)", 25_000_000_000),
        ("0 Gb/sec (4X SDR)", 0),
        ("-10 Gb/sec (4X SDR)", None),
        ("400 Mb/sec", None),
        ("Gb/sec", None),
        ("", None),
    ],
)
def test_a_rate_is_exact(text: str, bits: int | None) -> None:
    assert parse.rate(text) == bits


@given(st.integers(0, 10**6), st.integers(0, 9), st.sampled_from(["1X SDR", "4X NDR", "12X"]))
def test_any_rate_reads_back_exactly(whole: int, tenth: int, width: str) -> None:
    assert parse.rate(f"{whole}.{tenth} Gb/sec ({width})\n") == whole * 10**9 + tenth * 10**8


@given(st.integers(0, 2**64 - 1), st.text(" \n\t", max_size=3))
def test_any_count_of_64_bits_reads_back_exactly(value: int, space: str) -> None:
    assert parse.number(f"{space}{value}{space}") == value


@given(st.integers(0, 2**20), st.text(max_size=20))
def test_any_state_reads_back_whatever_its_name(value: int, name: str) -> None:
    assert parse.code(f"{value}: {name}") == value


@pytest.mark.parametrize(
    ("text", "up"), [("0x1003", True), ("0x1002\n", False), ("0X1", True), ("1003", None), ("", None)]
)
def test_flags_tell_whether_an_administrator_wants_it_up(text: str, up: bool | None) -> None:
    assert parse.admin_up(text) is up


@pytest.mark.parametrize(
    ("text", "bits"), [("100000", 10**11), ("-1", None), ("4294967295", None), ("0", None), ("", None)]
)
def test_a_speed_of_unknown_is_none(text: str, bits: int | None) -> None:
    assert parse.speed(text) == bits


def test_guids_of_zeros_are_none() -> None:
    assert parse.guid("0000:0000:0000:0000") == ""
    assert parse.guid("506B:4b03:005f:a1e2\n") == "506b:4b03:005f:a1e2"
    assert parse.gid_guid("fe80:0000:0000:0000:506b:4b03:005f:a1e2") == "506b:4b03:005f:a1e2"
    assert parse.gid_guid("fe80:0000:0000:0000:0000:0000:0000:0000") == ""


def test_the_pci_address_is_that_of_the_function() -> None:
    assert parse.pci_address("/sys/devices/pci0000:15/0000:15:01.0/0000:18:00.0") == "0000:18:00.0"
    assert parse.pci_address("/sys/devices/pci0000:00/0000:00:03.0/virtio2") == "0000:00:03.0"
    assert parse.pci_address("/sys/devices/platform/eth") == ""


PARSERS: list[Callable[[str], object]] = [
    parse.code, parse.number, parse.rate, parse.speed, parse.admin_up, parse.guid, parse.gid_guid, parse.pci_address,
]  # fmt: skip


@given(st.text() | st.binary().map(lambda data: data.decode("utf-8", "replace")))
@example("9" * 10_000)
@example("4: \x00")
def test_no_text_makes_a_parser_fail(text: str) -> None:
    for parser in PARSERS:
        parser(text)
