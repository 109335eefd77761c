"""Bad contents of files: each costs its own value only, and the output stays valid."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from pyrometer_exporters.framework.exposition import Renderer

# By the end of the file's path. The listed texts must give no value at all; what is in GOOD must give this one.
COUNTER = "mlx5_0/ports/1/counters/symbol_error"
BAD_COUNTERS = [
    b"", b"\n", b" ", b"\t\n", b"\x00", b"\x00\x00\x00\x00", b"N/A", b"N/A (no PMA)\n", b"N/A (not available)\n",
    b"-1\n", b"-0\n", b"+5\n", b"0x10\n", b"0b1\n", b"1e3\n", b"1.5\n", b"1,000\n", b"1_000\n", b"1 2\n",
    b"12abc\n", b"abc12\n", b"NaN\n", b"nan\n", b"inf\n", b"-inf\n", b"Infinity\n", b"null\n", b"None\n",
    b"true\n", b"''\n", b'"5"\n', b"5;\n", b"5:\n", b"= 5\n", b"5\n6\n", b"5\r6\n", b"\xff\xfe\n", b"\x80\n",
    b"\xc3\x28\n", b"\xef\xbb\xbf5\n", "\u0665\n".encode(), "\uff15\n".encode(), "\u00b2\n".encode(),
    "\u2167\n".encode(), b"9" * 21, b"9" * 4096, b"1" * 100 + b"\n", b"18446744073709551616x\n",
    b"99999999999999999999999\n", b"#5\n", b"{5}\n", b"$(reboot)\n", b"5%\n", b"/dev/null\n", b"..\n", b"\\n\n",
    b"\x1b[31m5\n", b"Invalid argument\n", b"cat: Input/output error\n", b"unknown\n", b"Unknown\n", b"disabled\n",
    b"not supported\n", b"<none>\n", b"(null)\n", b"5 Gb/sec\n",
]  # fmt: skip
STATE = "mlx5_0/ports/1/state"
BAD_STATES = [
    b"", b"\n", b"ACTIVE\n", b"ACTIVE: 4\n", b": ACTIVE\n", b"-4: ACTIVE\n", b"4.0: ACTIVE\n", b"4 ACTIVE\n",
    b"0x4: ACTIVE\n", b"four: ACTIVE\n", b"\x00\n", b"\xff: ACTIVE\n", "\u0664: ACTIVE\n".encode(),
    b"4444444444: ACTIVE\n", b"N/A\n", b"4\n", b"??\n",
]  # fmt: skip
RATE = "mlx5_0/ports/1/rate"
BAD_RATES = [
    b"", b"\n", b"Gb/sec\n", b"400\n", b"400Mb/sec\n", b"400 Mb/sec\n", b"-400 Gb/sec (4X NDR)\n", b"0 Gb/sec\n",
    b"0x190 Gb/sec\n", b"4e2 Gb/sec\n", b"inf Gb/sec\n", b"NaN Gb/sec\n", b". Gb/sec\n", b"400. Gb/sec\n",
    b"1 Gb/secs\n", b"9999999999 Gb/sec\n", b"\xff\n",
]  # fmt: skip
SPEED = "net/eth0/speed"
BAD_SPEEDS = [
    b"", b"-1\n", b"0\n", b"4294967295\n", b"100G\n", b"100000Mb/s\n", b"Unknown!\n", b"1e5\n", b"\x00\n",
]  # fmt: skip
FLAGS = "net/eth0/flags"
BAD_FLAGS = [
    b"", b"\n", b"1003\n", b"0x\n", b"0xzz\n", b"UP\n", b"0x1003 0x1\n", b"\xff\n", b"0x123456789\n",
]  # fmt: skip
TEXTS = [
    b"", b"\n", b"\x00", b"\xff\xfe", b'"', b"\\", b"a\nb", b"}" * 300, b"x" * 4096, "\u2028\U0001f525".encode(),
    b"<!channel>",
]  # fmt: skip
IDENTITIES = (
    "mlx5_0/node_guid",
    "mlx5_0/fw_ver",
    "mlx5_0/board_id",
    "mlx5_0/ports/1/link_layer",
    "mlx5_0/ports/1/gids/0",
    "net/ib0/dev_port",
)

GOOD = [
    (COUNTER, b" 5 \n", "symbol_error_total", 5.0),
    (COUNTER, b"00005", "symbol_error_total", 5.0),
    (COUNTER, b"5\n\n\n", "symbol_error_total", 5.0),
    (COUNTER, b"65535\n", "symbol_error_total", 65535.0),
    (STATE, b" 4 : ACTIVE\n", "link_up", 1.0),
    (STATE, b"4:\n", "link_up", 1.0),
    (STATE, b"4: \xff\n", "link_up", 1.0),
    (STATE, b"1: DOWN\n", "link_up", 0.0),
    (STATE, b"9: UNKNOWN\n", "link_up", 0.0),
    (RATE, b"2.5 Gb/sec (1X SDR)\n", "link_rate_bits_per_second", 2.5e9),
    (RATE, b"10 Gb/sec (4X)\n", "link_rate_bits_per_second", 10e9),
    (RATE, b"800 Gb/sec (4X \xff)\n", "link_rate_bits_per_second", 800e9),
]

LISTED = [
    *((COUNTER, text, "symbol_error_total", ("mlx5_0", "1")) for text in BAD_COUNTERS),
    *((STATE, text, "link_up", ("mlx5_0", "1")) for text in BAD_STATES),
    *((RATE, text, "link_rate_bits_per_second", ("mlx5_0", "1")) for text in BAD_RATES),
    *((SPEED, text, "link_rate_bits_per_second", ("eth0", "")) for text in BAD_SPEEDS),
]


@pytest.fixture
def shared(one_node: Any) -> Iterator[Any]:
    """One node for all of these, as a text in a file leaves nothing behind."""
    one_node.files.texts.clear()
    yield one_node
    one_node.files.texts.clear()


@cache
def parsed(text: str) -> tuple[float, ...]:
    """Return the values of a page; many of these are the same to the byte."""
    return tuple(sample.value for family in text_string_to_metric_families(text) for sample in family.samples)


def check(scrape: Any, whole: dict[str, int]) -> None:
    """The output is valid, and all devices but mlx5_0 are complete."""
    text = Renderer().text(scrape.samples).decode()
    values = parsed(text)
    assert len(values) == len(scrape.samples)
    assert all(math.isfinite(value) and value >= 0 for value in values)
    counts = by_device(scrape)
    assert {name: counts.get(name) for name in ("mlx5_1",)} == {name: whole[name] for name in ("mlx5_1",)}
    assert counts.keys() == whole.keys()


def by_device(scrape: Any) -> dict[str, int]:
    counts: dict[str, int] = {}
    for sample in scrape.samples:
        counts[sample.labels[0]] = counts.get(sample.labels[0], 0) + 1
    return counts


def test_at_least_a_hundred_bad_contents_are_tried() -> None:
    assert len(set(LISTED)) + len(BAD_FLAGS) + len(TEXTS) * len(IDENTITIES) >= 100
    assert len(set(BAD_COUNTERS)) == len(BAD_COUNTERS)


@pytest.mark.parametrize(("file", "text", "name", "at"), LISTED)
def test_a_bad_content_gives_no_value(shared: Any, file: str, text: bytes, name: str, at: tuple[str, str]) -> None:
    whole = by_device(shared.scrape())
    shared.files.texts[file] = text
    scrape = shared.scrape()
    assert scrape.value(name, *at) is None
    check(scrape, whole)


@pytest.mark.parametrize(("file", "text", "name", "value"), GOOD)
def test_an_odd_but_good_content_gives_its_value(shared: Any, file: str, text: bytes, name: str, value: float) -> None:
    shared.files.texts[file] = text
    assert shared.scrape().value(name, "mlx5_0", "1") == value


@pytest.mark.parametrize("text", BAD_FLAGS)
def test_flags_that_cannot_be_read_switch_nothing_off(shared: Any, text: bytes) -> None:
    before = shared.scrape().events("eth0", "")
    shared.files.texts[FLAGS] = text
    shared.tree.interface("eth0").flap()
    scrape = shared.scrape()
    assert scrape.value("expected_up", "eth0", "") == 1
    assert scrape.events("eth0", "") == before + 1


@pytest.mark.parametrize("file", IDENTITIES)
@pytest.mark.parametrize("text", TEXTS)
def test_an_identity_of_any_text_leaves_the_output_valid(shared: Any, file: str, text: bytes) -> None:
    whole = by_device(shared.scrape())
    shared.files.texts[file] = text
    scrape = shared.scrape()
    check(scrape, whole)
    assert scrape.value("link_up", "mlx5_0", "1") == 1


FILES = [
    COUNTER, STATE, RATE, SPEED, FLAGS, *IDENTITIES, "net/ib0/carrier_down_count", "net/ib0/ifindex",
    "net/eth0/operstate", "net/eth0/mtu", "net/eth0/statistics/rx_bytes", "mlx5_0/ports/1/phys_state",
    *(f"mlx5_0/ports/1/{name}" for name in (
        "counters/link_downed", "counters/port_rcv_data", "hw_counters/out_of_sequence", "hw_counters/lifespan",
    )),
]  # fmt: skip


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.dictionaries(st.sampled_from(FILES), st.binary(max_size=60)))
def test_any_bytes_in_any_files_leave_the_output_valid_and_the_others_complete(
    shared: Any, texts: dict[str, bytes]
) -> None:
    shared.files.texts.clear()
    whole = by_device(shared.scrape())
    shared.files.texts.update(texts)
    check(shared.scrape(), whole)
    check(shared.scrape(), whole)
