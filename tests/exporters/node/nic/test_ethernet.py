"""Values that only the kernel has: driver statistics, FEC, the reason of a link that is down."""

from __future__ import annotations

import argparse
import errno
import struct
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrometer_exporters.framework.collector import Context
from pyrometer_exporters.node.nic import ethernet, netlink
from pyrometer_exporters.node.nic.collector import COLLECTOR
from pyrometer_exporters.node.nic.ethtool import Statistics
from pyrometer_exporters.node.nic.netlink import EthtoolNetlink, Fec, LinkState, answer, attribute, attributes, number
from pyrometer_kit.clock import SystemClock
from pyrometer_simulator.nic_kernel import SimulatedKernel


@pytest.fixture
def kernel(node: Any) -> SimulatedKernel:
    fake = node.kernel = SimulatedKernel()
    return fake


def test_listed_statistics_are_served_and_others_are_not(node: Any, kernel: SimulatedKernel) -> None:
    kernel.known["statistics", "eth0"] = {
        "rx_discards_phy": 7, "tx_pause_storm_error_events": 2, "rx_prio3_pause": 9, "ch0_events": 5,
        "outbound_pci_stalled_wr": 12,
    }  # fmt: skip
    scrape = node.scrape()
    assert scrape.value("driver_counter_total", "eth0", "", "rx_discards_phy") == 7
    assert scrape.value("driver_counter_total", "eth0", "", "rx_prio3_pause") == 9
    assert scrape.value("tx_pause_storm_error_events_total", "eth0", "") == 2
    assert scrape.value("driver_value", "eth0", "", "outbound_pci_stalled_wr") == 12
    assert scrape.value("driver_counter_total", "eth0", "", "ch0_events") is None


def test_an_rdma_ports_interface_is_asked_for_the_port(node: Any, kernel: SimulatedKernel) -> None:
    kernel.known["statistics", "ib0"] = {"rx_symbol_err_phy": 3}
    assert node.scrape().value("driver_counter_total", "mlx5_0", "1", "rx_symbol_err_phy") == 3


def test_fec_is_served(node: Any, kernel: SimulatedKernel) -> None:
    kernel.known["fec", "eth0"] = Fec("rs", 1000, 1)
    scrape = node.scrape()
    assert scrape.value("fec_info", "eth0", "", "rs") == 1
    assert scrape.value("fec_corrected_blocks_total", "eth0", "") == 1000
    assert scrape.value("fec_uncorrectable_blocks_total", "eth0", "") == 1


def test_why_a_link_is_down_is_the_kernels_word(node: Any, kernel: SimulatedKernel) -> None:
    kernel.known["link_state", "ib0"] = kernel.known["link_state", "eth0"] = LinkState("no_cable", 4)
    node.scrape()
    node.nic.down()
    node.tree.interface("eth0").down()
    scrape = node.scrape()
    assert scrape.value("link_down_reason_info", "mlx5_0", "1", "no_cable") == 1
    assert scrape.value("link_last_down_info", "mlx5_0", "1", "no_cable") == 1
    assert scrape.value("link_down_reason_info", "eth0", "", "no_cable") == 1


def test_the_kernel_is_not_asked_why_a_link_is_up(node: Any, kernel: SimulatedKernel) -> None:
    node.scrape()
    assert [what for what, _ in kernel.asked if what == "link_state"] == []


def test_the_physical_count_is_read_where_no_file_counts_losses(node: Any, kernel: SimulatedKernel) -> None:
    node.nic.counters.set("link_downed", 255)
    (node.nic.interface.folder / "carrier_down_count").unlink()
    (node.nic.interface.folder / "carrier_changes").unlink()
    kernel.known["link_state", "ib0"] = LinkState("", 300)
    node.scrape()
    kernel.known["link_state", "ib0"] = LinkState("", 302)
    assert node.scrape().events() == 2


def test_a_kernel_without_answers_costs_nothing_else(node: Any, kernel: SimulatedKernel) -> None:
    scrape = node.scrape()
    assert scrape.downs == {}
    assert scrape.value("link_up", "eth0", "") == 1
    assert {what for what, _ in kernel.asked} == {"statistics", "fec"}


def test_statistics_that_hang_cost_themselves_only(node: Any, kernel: SimulatedKernel) -> None:
    release = node.files.hangs["never"] = threading.Event()

    def hangs(interface: str) -> Mapping[str, int]:
        release.wait(30)
        return {}

    kernel.statistics = hangs  # type: ignore[method-assign]
    scrape = node.scrape(seconds=4)
    release.set()
    assert scrape.value("link_up", "eth0", "") == 1
    assert scrape.value("link_up", "mlx5_0", "1") == 1
    assert scrape.downs == {}


def test_only_this_machines_own_tree_has_the_kernel_asked(tmp_path: Path) -> None:
    for sysfs, asked in ((tmp_path, False), (Path("/sys"), True)):
        context = Context(argparse.Namespace(), SystemClock(), sysfs, tmp_path, tmp_path, None)
        collector = COLLECTOR.build(context)
        assert collector.asks_the_kernel is asked  # type: ignore[attr-defined]
        collector.close()


def test_names_are_listed_once_and_are_ethtools_length() -> None:
    for table in ethernet._BY_PCI_DRIVER.values():
        assert all(len(name) < 32 for name in table)


@pytest.mark.parametrize("interface", [*sorted(path.name for path in Path("/sys/class/net").glob("*")), "nosuch"])
def test_an_interface_of_this_machine_answers_or_says_no(interface: str) -> None:
    """The real ioctl and netlink: numbers or an errno, never nonsense."""
    said_no = {errno.EOPNOTSUPP, errno.ENODEV, errno.EPERM, errno.EAGAIN, errno.ENOENT}
    statistics = errors_as_numbers(lambda: Statistics().statistics(interface))
    if isinstance(statistics, int):
        assert statistics in said_no
    else:
        assert all(name and name.isprintable() and 0 <= value < 2**64 for name, value in statistics.items())
    state = errors_as_numbers(lambda: EthtoolNetlink().link_state(interface))
    assert state in said_no or state.reason in {"", *netlink.REASONS}


def errors_as_numbers(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except OSError as error:
        return error.errno


def message(*parts: bytes, kind: int = 30) -> bytes:
    body = struct.pack("=BBH", 6, 1, 0) + b"".join(parts)
    return struct.pack("=IHHII", 16 + len(body), kind, 0, 1, 0) + body


def test_an_answer_is_read() -> None:
    down = message(attribute(netlink.LINKSTATE_EXT_STATE, b"\x04"), attribute(7, struct.pack("=I", 77)))
    found = answer(down)
    assert found[netlink.LINKSTATE_EXT_STATE] == b"\x04"
    assert number(found[netlink.LINKSTATE_EXT_DOWN_CNT]) == 77
    assert netlink.REASONS[4] == "no_cable"


def test_an_error_is_raised_with_its_number() -> None:
    with pytest.raises(OSError, match="supported") as raised:
        answer(struct.pack("=IHHIIi", 36, 2, 0, 1, 0, -errno.EOPNOTSUPP) + bytes(16))
    assert raised.value.errno == errno.EOPNOTSUPP


@given(st.binary(max_size=200))
def test_any_bytes_are_an_answer_or_an_error(data: bytes) -> None:
    assert all(isinstance(kind, int) for kind, _ in attributes(data))
    try:
        found = answer(data)
    except (OSError, ValueError, OverflowError):
        return
    assert all(number(value) >= 0 for value in found.values())


@given(st.dictionaries(st.integers(1, 100), st.binary(max_size=20), max_size=6))
def test_attributes_read_back(values: dict[int, bytes]) -> None:
    data = b"".join(attribute(kind, value) for kind, value in values.items())
    assert dict(attributes(data)) == values
