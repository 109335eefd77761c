"""Counters of 32 bits go on after they start again at 0."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pyrometer_exporters.node.nic.counters import HARDWARE, PMA
from pyrometer_exporters.node.nic.link_down import Widening

WRAPS = next(counter for counter in HARDWARE if counter.bits == 32)
PINS = next(counter for counter in PMA if counter.file == "port_xmit_wait")
NAME = "local_ack_timeout_errors_total"


def test_a_wrap_goes_on_counting(node: Any) -> None:
    node.nic.hw_counters.set("local_ack_timeout_err", 2**32 - 10)
    assert node.scrape().value(NAME, "mlx5_0", "1") == 2**32 - 10
    node.nic.hw_counters.set("local_ack_timeout_err", 5)
    assert node.scrape().value(NAME, "mlx5_0", "1") == 2**32 + 5


def test_a_wrap_is_remembered_over_a_restart(node: Any) -> None:
    node.nic.hw_counters.set("local_ack_timeout_err", 2**32 - 10)
    node.scrape()
    node.nic.hw_counters.set("local_ack_timeout_err", 5)
    node.scrape()
    node.stop()
    assert node.scrape().value(NAME, "mlx5_0", "1") == 2**32 + 5


def test_a_wrap_while_the_exporter_was_down_goes_on_counting(node: Any) -> None:
    node.nic.hw_counters.set("local_ack_timeout_err", 2**32 - 10)
    node.scrape()
    node.stop()
    node.nic.hw_counters.set("local_ack_timeout_err", 5)
    assert node.scrape().value(NAME, "mlx5_0", "1") == 2**32 + 5


def test_resets_are_told_apart(node: Any) -> None:
    def resets() -> dict[str, float | None]:
        scrape = node.scrape()
        reasons = ("wrap", "cleared", "reboot", "driver_reload")
        return {reason: scrape.value("resets_total", "mlx5_0", "1", reason) for reason in reasons}

    node.nic.count("symbol_error", 7)
    node.nic.count("link_downed", 7)
    node.nic.hw_counters.set("local_ack_timeout_err", 2**32 - 10)
    assert resets() == {"wrap": 0, "cleared": 0, "reboot": 0, "driver_reload": 0}
    node.nic.hw_counters.set("local_ack_timeout_err", 5)
    assert resets() == {"wrap": 1, "cleared": 0, "reboot": 0, "driver_reload": 0}
    node.nic.clear()
    assert resets() == {"wrap": 1, "cleared": 1, "reboot": 0, "driver_reload": 0}
    node.tree.reload_driver("mlx5_0")
    assert resets() == {"wrap": 1, "cleared": 1, "reboot": 0, "driver_reload": 1}
    node.tree.reboot()
    assert resets() == {"wrap": 1, "cleared": 1, "reboot": 1, "driver_reload": 1}


def test_a_counter_wider_than_the_table_says_was_cleared() -> None:
    widening = Widening()
    widening.value(WRAPS, 2**40)
    assert widening.value(WRAPS, 3) == 3


def test_a_cleared_counter_is_served_as_the_device_shows_it(node: Any) -> None:
    node.nic.hw_counters.set("local_ack_timeout_err", 1000)
    node.scrape()
    node.nic.hw_counters.set("local_ack_timeout_err", 3)
    assert node.scrape().value(NAME, "mlx5_0", "1") == 3


def test_a_reboot_begins_with_the_devices_own_value(node: Any) -> None:
    node.nic.hw_counters.set("local_ack_timeout_err", 2**32 - 10)
    node.scrape()
    node.nic.hw_counters.set("local_ack_timeout_err", 5)
    node.scrape()
    node.stop()
    node.tree.reboot()
    assert node.scrape().value(NAME, "mlx5_0", "1") == 0


@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 2**30 - 2), max_size=40))
def test_any_steps_below_a_quarter_of_the_range_add_up(start: int, steps: list[int]) -> None:
    widening = Widening()
    first = widening.value(WRAPS, start)
    for total in accumulate(steps):
        assert widening.value(WRAPS, (start + total) % 2**32) == first + total


@given(st.lists(st.integers(0, 2**32 - 1), max_size=40))
def test_a_counter_that_stays_at_its_maximum_is_never_widened(raws: list[int]) -> None:
    widening = Widening()
    assert [widening.value(PINS, raw) for raw in raws] == raws


def test_a_counter_that_reads_the_same_after_a_driver_reload_has_its_wraps_no_more(node: Any) -> None:
    node.nic.hw_counters.set("local_ack_timeout_err", 2**32 - 1)
    node.scrape()
    node.nic.hw_counters.set("local_ack_timeout_err", 5)
    name = "local_ack_timeout_errors_total"
    assert node.scrape().value(name, "mlx5_0", "1") == 2**32 + 5
    node.tree.reload_driver("mlx5_0")
    node.nic.hw_counters.set("local_ack_timeout_err", 5)
    assert node.scrape().value(name, "mlx5_0", "1") == 5
