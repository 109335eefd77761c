"""The collector's output on a healthy node."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pyrometer_exporters.framework.exposition import Renderer
from pyrometer_exporters.node.nic.collector import COLLECTOR
from pyrometer_exporters.node.nic.netlink import Fec
from pyrometer_simulator.nic_kernel import SimulatedKernel

GOLDEN = Path(__file__).with_name("golden")
Golden = Callable[[str, str], None]


def test_the_output_of_a_node_is_the_golden_one(node: Any, golden: Golden) -> None:
    node.scrape()
    node.tree.nic("mlx5_0").flap()
    node.tree.nic("mlx5_0").count("symbol_error", 70_000)
    node.tree.nic("mlx5_0").count("local_ack_timeout_err", 3)
    node.tree.nic("mlx5_0").traffic(1_000_000, 2_000_000)
    node.tree.nic("mlx5_1").down()
    node.tree.interface("eth0").traffic(5_000)
    golden(Renderer().text(node.scrape().samples).decode(), "golden/node.prom")


def test_the_output_of_a_node_in_trouble_is_the_golden_one(node: Any, golden: Golden) -> None:
    """Serve what a healthy node lacks: a card that fell off the bus, a file that fails, heat, FEC and pause storms."""
    node.kernel = SimulatedKernel()
    node.kernel.known["fec", "eth0"] = Fec("rs", 1000, 1)
    storms = {"tx_pause_storm_warning_events": 3, "tx_pause_storm_error_events": 2}
    node.kernel.known["statistics", "eth0"] = storms
    (sensors := node.nic.folder.parents[1] / "hwmon/hwmon5").mkdir(parents=True)
    for name, text in {"name": "mlx5", "temp1_input": 54125, "temp1_label": "asic", "temp1_crit": 105000}.items():
        (sensors / name).write_text(f"{text}\n")
    (node.nic.counters.folder / "port_rcv_discards").write_text("4\n")
    node.files.errors["mlx5_0/ports/1/counters/symbol_error"] = errno.EIO
    node.scrape()
    node.tree.lose("mlx5_1")
    node.clock.now += 5
    node.nic.traffic(10_000_000_000)
    of_a_healthy_node = re.findall(r"^# HELP (\S+)", (GOLDEN / "node.prom").read_text(), re.MULTILINE)
    samples = [sample for sample in node.scrape().samples if sample.family.name not in of_a_healthy_node]
    golden(Renderer().text(samples).decode(), "golden/trouble.prom")


def test_the_output_reads_back_with_the_official_parser(node: Any) -> None:
    samples = node.scrape().samples
    text = Renderer().text(samples).decode()
    parsed = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    assert len(parsed) == len(samples)
    assert {sample.name for sample in parsed} == {sample.family.name for sample in samples}


def test_every_family_that_is_served_is_declared(node: Any) -> None:
    assert {sample.family for sample in node.scrape().samples} <= set(COLLECTOR.families)


def test_family_names_are_unique() -> None:
    names = [family.name for family in COLLECTOR.families]
    assert len(names) == len(set(names))


def test_a_recorded_node_is_read(recorded_node: Any) -> None:
    scrape = recorded_node.scrape()
    assert {s.labels[0] for s in scrape.samples} == {"hfi1_0", "mlx4_0", "mlx5_0", "eth0"}
    assert scrape.downs == {}
    assert scrape.value("link_up", "mlx5_0", "1") == 1
    assert scrape.value("link_rate_bits_per_second", "mlx5_0", "1") == 25e9
    assert scrape.value("link_up", "mlx4_0", "2") == 1
    assert scrape.value("out_of_sequence_packets_received_total", "mlx5_0", "1") is not None
    assert scrape.info("mlx5_0")["firmware"]


def test_the_output_of_the_recorded_machines_is_the_golden_one(recorded_node: Any, golden: Golden) -> None:
    golden(Renderer().text(recorded_node.scrape().samples).decode(), "golden/recorded.prom")


def test_data_words_are_served_as_bytes(node: Any) -> None:
    node.nic.counters.set("port_rcv_data", 10)
    assert node.scrape().value("port_data_received_bytes_total", "mlx5_0", "1") == 40


def test_a_counter_of_64_bits_is_served_exactly(node: Any) -> None:
    node.nic.counters.set("port_xmit_packets", 2**63 - 1)
    assert node.scrape().value("port_packets_transmitted_total", "mlx5_0", "1") == 2**63 - 1


@pytest.mark.parametrize(
    ("file", "counter", "maximum"),
    [
        ("link_downed", "link_downed", 255),
        ("symbol_error", "symbol_error", 65535),
        ("local_link_integrity_errors", "local_link_integrity_errors", 15),
        ("port_xmit_wait", "port_transmit_wait", 2**32 - 1),
    ],
)
def test_a_counter_at_its_maximum_is_called_saturated(node: Any, file: str, counter: str, maximum: int) -> None:
    node.nic.counters.set(file, maximum - 1)
    assert node.scrape().value("counter_saturated", "mlx5_0", "1", counter) == 0
    node.nic.counters.set(file, maximum)
    assert node.scrape().value("counter_saturated", "mlx5_0", "1", counter) == 1


def test_wide_counters_are_not_said_to_saturate(node: Any) -> None:
    node.nic.counters.set("port_xmit_data", 2**64 - 1)
    assert node.scrape().value("counter_saturated", "mlx5_0", "1", "port_data_transmitted_bytes") is None


def test_an_hca_is_identified_by_its_interface_function_and_guid(node: Any) -> None:
    assert node.scrape().info("mlx5_1") == {
        "device": "mlx5_1",
        "port": "1",
        "netdev": "ib1",
        "pci_bus_id": "0000:2b:00.0",
        "guid": "a088:c203:00f1:0001",
        "board": "MT_0000000838",
        "numa_node": "0",
        "gpu": "",
        "link_layer": "InfiniBand",
        "driver": "mlx5_core",
        "firmware": "28.39.2048",
    }


def test_the_interface_of_an_hca_is_not_a_device_of_its_own(node: Any) -> None:
    assert node.scrape().devices() == {"mlx5_0", "mlx5_1", "eth0"}


def test_the_traffic_of_an_hcas_interface_is_served_under_the_hca(node: Any) -> None:
    node.tree.interface("ib0").traffic(77)
    assert node.scrape().value("rx_bytes_total", "mlx5_0", "1") == 77


def test_an_interface_without_rdma_has_no_port(node: Any) -> None:
    scrape = node.scrape()
    assert scrape.info("eth0")["port"] == ""
    assert scrape.value("link_up", "eth0", "") == 1
    assert scrape.value("link_rate_bits_per_second", "eth0", "") == 100e9


def test_a_lost_link_has_no_rate_but_keeps_the_largest_seen(node: Any) -> None:
    node.scrape()
    node.nic.down()
    scrape = node.scrape()
    assert scrape.value("link_up", "mlx5_0", "1") == 0
    assert scrape.value("expected_up", "mlx5_0", "1") == 1
    assert scrape.value("link_rate_bits_per_second", "mlx5_0", "1") is None
    assert scrape.value("link_rate_max_bits_per_second", "mlx5_0", "1") == 400e9


def test_a_link_that_trained_at_a_lower_rate_shows_it(node: Any) -> None:
    node.scrape()
    node.nic.up(gbps=200)
    scrape = node.scrape()
    assert scrape.value("link_rate_bits_per_second", "mlx5_0", "1") == 200e9
    assert scrape.value("link_rate_max_bits_per_second", "mlx5_0", "1") == 400e9


@pytest.mark.parametrize(
    ("state", "up"),
    [
        ("0: NOP", 0),
        ("1: DOWN", 0),
        ("2: INIT", 0),
        ("3: ARMED", 0),
        ("4: ACTIVE", 1),
        ("5: ACTIVE_DEFER", 1),
        ("9: X", 0),
    ],
)
def test_only_active_and_active_defer_are_up(node: Any, state: str, up: int) -> None:
    node.nic.port.set("state", state)
    assert node.scrape().value("link_up", "mlx5_0", "1") == up


def test_a_port_that_was_never_active_is_not_expected_up(node: Any) -> None:
    node.nic.down()
    assert node.scrape().value("expected_up", "mlx5_0", "1") == 0


def test_a_driver_that_reports_a_constant_link_gets_no_link_metrics(node: Any) -> None:
    driver = node.nic.folder / "../../driver"
    driver.unlink()
    driver.symlink_to("../../../bus/pci/drivers/efa")
    scrape = node.scrape()
    for name in ("link_up", "expected_up", "link_rate_bits_per_second", "link_down_events_total"):
        assert scrape.value(name, "mlx5_0", "1") is None
        assert scrape.value(name, "mlx5_1", "1") is not None
    assert scrape.value("up", "mlx5_0") == 1


def test_an_interface_whose_driver_keeps_no_operstate_is_judged_by_its_carrier(node: Any) -> None:
    interface = node.tree.interface("eth0")
    interface.values.set("operstate", "unknown")
    assert node.scrape().value("link_up", "eth0", "") == 1
    interface.values.set("carrier", 0)
    assert node.scrape().value("link_up", "eth0", "") == 0


def test_an_unknown_speed_is_absent(node: Any) -> None:
    node.tree.interface("eth0").values.set("speed", -1)
    assert node.scrape().value("link_rate_bits_per_second", "eth0", "") is None


def test_a_counter_that_begins_again_is_served_with_the_reset_in_the_same_scrape(node: Any) -> None:
    node.nic.counters.set("symbol_error", 9)
    node.scrape()
    node.nic.counters.set("symbol_error", 0)
    scrape = node.scrape()
    assert scrape.value("symbol_error_total", "mlx5_0", "1") == 0
    assert scrape.value("resets_total", "mlx5_0", "1", "cleared") == 1
