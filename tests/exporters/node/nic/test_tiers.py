"""Files are read as often as their tier says, and the age of what is served is told."""

from __future__ import annotations

import errno
import threading
from typing import Any

import pytest

from pyrometer_exporters.node.nic.tiers import COUNTERS, LINK, TierCache


@pytest.fixture
def paced(node: Any) -> Any:
    node.every_time = False
    return node


def reads(node: Any, end: str) -> int:
    """How often the next scrape reads a file."""
    before = sum(path.endswith(end) for path in node.files.reads)
    node.scrape()
    return sum(path.endswith(end) for path in node.files.reads) - before


@pytest.mark.parametrize(
    ("file", "interval"),
    [
        ("mlx5_0/ports/1/state", 5),
        ("mlx5_0/ports/1/counters/link_downed", 5),
        ("mlx5_0/ports/1/counters/port_xmit_data", 5),
        ("eth0/carrier_down_count", 5),
        ("eth0/operstate", 5),
        ("mlx5_0/ports/1/counters/symbol_error", 30),
        ("mlx5_0/ports/1/hw_counters/out_of_sequence", 30),
        ("eth0/statistics/rx_bytes", 30),
        ("mlx5_0/fw_ver", 300),
        ("mlx5_0/ports/1/link_layer", 300),
    ],
)
def test_a_file_is_read_once_in_its_interval(paced: Any, file: str, interval: int) -> None:
    assert reads(paced, file) == 1
    paced.clock.now += 0.8 * interval
    assert reads(paced, file) == 0
    paced.clock.now += 0.2 * interval
    assert reads(paced, file) == 1


def test_two_scrapers_share_one_read_of_the_device(paced: Any) -> None:
    first = paced.scrape()
    read = len(paced.files.reads)
    second = paced.scrape()
    assert paced.files.reads[read:] == []
    assert [(s.family.name, s.labels, s.value) for s in first.samples] == [
        (s.family.name, s.labels, s.value) for s in second.samples
    ]


@pytest.mark.parametrize("file", ["net/ib0/statistics/rx_bytes", "net/ib0/mtu", "mlx5_0/ports/1/rate"])
def test_scrapes_in_between_do_not_make_a_file_be_read_more_often(paced: Any, file: str) -> None:
    paced.scrape()
    before = len([path for path in paced.files.reads if path.endswith(file)])
    for _ in range(25):
        paced.clock.now += 1
        paced.scrape()
    assert len([path for path in paced.files.reads if path.endswith(file)]) == before


def test_the_age_of_each_tier_is_told(paced: Any) -> None:
    paced.scrape()
    paced.clock.now += 12
    scrape = paced.scrape()
    ages = {tier: scrape.value("read_age_seconds", "mlx5_0", tier) for tier in ("5s", "30s", "300s")}
    assert ages == {"5s": 0, "30s": 12, "300s": 12}


def test_a_value_that_cannot_be_read_again_is_absent(paced: Any) -> None:
    assert paced.scrape().value("symbol_error_total", "mlx5_0", "1") == 0
    paced.files.errors["mlx5_0/ports/1/counters/symbol_error"] = errno.EIO
    paced.clock.now += 30
    assert paced.scrape().value("symbol_error_total", "mlx5_0", "1") is None


def test_a_device_that_hangs_serves_no_earlier_values(paced: Any) -> None:
    paced.scrape()
    release = paced.files.hangs["infiniband/mlx5_0/ports/1/counters/symbol_error"] = threading.Event()
    paced.clock.now += 30
    scrape = paced.scrape(seconds=4)
    release.set()
    assert scrape.value("symbol_error_total", "mlx5_0", "1") is None
    assert scrape.value("link_up", "mlx5_0", "1") == 1


def test_a_flap_within_a_tiers_interval_is_not_lost(paced: Any) -> None:
    paced.scrape()
    paced.nic.flap()
    assert paced.scrape().events() == 0
    paced.clock.now += 5
    assert paced.scrape().events() == 1


def test_a_device_made_anew_is_asked_at_once(paced: Any) -> None:
    paced.scrape()
    paced.tree.reload_driver("mlx5_0")
    paced.nic.count("symbol_error", 8)
    assert paced.scrape().value("symbol_error_total", "mlx5_0", "1") == 8


def test_a_renamed_interface_is_read_at_once(paced: Any) -> None:
    paced.scrape()
    (paced.sysfs / "class/net/ib0").rename(paced.sysfs / "class/net/ibs1")
    assert paced.scrape().info("mlx5_0")["netdev"] == "ibs1"


def test_a_value_that_a_read_does_not_ask_for_is_dropped() -> None:
    kept = TierCache()
    for now in (0.0, 1.0):
        kept.begin(now)
        kept.get(LINK, "a", lambda: 1)
        if now == 0.0:
            kept.get(COUNTERS, "b", lambda: 2)
        kept.begin(2.0)
    assert kept.get(COUNTERS, "b", lambda: 3) == 3
    assert kept.ages() == {COUNTERS: 0.0}
