"""Each driver's devices: what is a family, what is the driver's rest, and that none disturbs another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pyrometer_exporters.framework.exposition import Renderer
from pyrometer_exporters.node.nic import drivers
from pyrometer_exporters.node.nic.drivers import driver_of
from pyrometer_simulator.sysfs_drivers import BNXT_RE, DRIVERS, EFA, HFI1, IRDMA, MANA, MLX4, DriverFiles


@pytest.mark.parametrize("files", DRIVERS, ids=lambda files: files.name)
def test_the_output_of_a_driver_is_the_golden_one(
    bare_node: Any, files: DriverFiles, golden: Callable[[str, str], None]
) -> None:
    bare_node.tree.add_device(files)
    golden(Renderer().text(bare_node.scrape().samples).decode(), f"golden/{files.pci_driver}.prom")


@pytest.mark.parametrize("files", DRIVERS, ids=lambda files: files.name)
def test_every_counter_of_a_driver_is_served_once_unless_nobody_knows_it(bare_node: Any, files: DriverFiles) -> None:
    bare_node.tree.add_device(files)
    scrape = bare_node.scrape()
    assert scrape.downs.keys() <= {"net"}
    known = driver_of(files.pci_driver, files.name)
    named = {name for name in files.hw_counters if name in known.device}
    assert named == set(files.hw_counters) - {"lifespan", "SendSomethingNobodyLists"}
    for port in files.ports:
        assert set(port.hw_counters) - {"lifespan"} <= set(known.port)


def test_counters_of_one_meaning_share_a_family(bare_node: Any) -> None:
    for files in (MLX4, BNXT_RE, MANA):
        bare_node.tree.add_device(files)
    scrape = bare_node.scrape()
    for device in ("mlx4_0", "bnxt_re0", "mana_0"):
        assert scrape.value("req_transport_retries_exceeded_total", device, "1") is not None
        assert scrape.value("local_ack_timeout_errors_total", device, "1") is not None


def test_bytes_of_a_driver_are_not_multiplied(bare_node: Any) -> None:
    bare_node.tree.add_device(EFA)
    assert bare_node.scrape().value("port_data_received_bytes_total", "efa_0", "1") == 2


def test_traffic_in_two_folders_is_served_once(bare_node: Any) -> None:
    device = bare_node.tree.add_device(BNXT_RE)
    (device / "ports/1/counters").mkdir()
    (device / "ports/1/counters/port_rcv_data").write_text("1000\n")
    scrape = bare_node.scrape()
    assert scrape.value("port_data_received_bytes_total", "bnxt_re0", "1") == 4000
    assert scrape.value("port_data_transmitted_bytes_total", "bnxt_re0", "1") == 8


def test_gauges_are_told_apart_from_counters(bare_node: Any) -> None:
    bare_node.tree.add_device(BNXT_RE)
    bare_node.tree.add_device(HFI1)
    scrape = bare_node.scrape()
    assert scrape.value("driver_value", "bnxt_re0", "1", "active_qps") == 2
    assert scrape.value("driver_counter_total", "bnxt_re0", "1", "active_qps") is None
    assert scrape.value("driver_value", "hfi1_0", "", "DRIVER_CtxtsOpen") == 4
    assert scrape.value("driver_counter_total", "hfi1_0", "", "DcDroppedPkt") == 3


def test_names_with_commas_and_spaces_are_served_as_they_are(bare_node: Any) -> None:
    bare_node.tree.add_device(HFI1)
    bare_node.tree.add_device(IRDMA)
    scrape = bare_node.scrape()
    assert scrape.value("driver_counter_total", "hfi1_0", "", "RxTidFLGMs,32") == 9
    assert scrape.value("driver_counter_total", "irdma0", "1", "RNR sent") == 9


def test_an_unlisted_counter_is_not_served(bare_node: Any) -> None:
    bare_node.tree.add_device(HFI1)
    assert "SendSomethingNobodyLists" not in Renderer().text(bare_node.scrape().samples).decode()


def test_a_link_that_is_always_up_is_judged_by_nobody(bare_node: Any) -> None:
    bare_node.tree.add_device(EFA)
    scrape = bare_node.scrape()
    for name in ("link_up", "expected_up", "link_rate_bits_per_second", "link_down_events_total"):
        assert scrape.value(name, "efa_0", "1") is None
    assert scrape.value("up", "efa_0") == 1
    assert scrape.value("retrans_pkts_total", "efa_0", "1") == 13


def test_a_rate_that_the_kernel_refuses_costs_only_the_rate(bare_node: Any) -> None:
    bare_node.tree.add_device(MANA)
    scrape = bare_node.scrape()
    assert scrape.value("link_rate_bits_per_second", "mana_0", "1") is None
    assert scrape.value("link_up", "mana_0", "1") == 1


def test_the_wide_counters_of_old_kernels_are_served_beside_the_narrow(bare_node: Any) -> None:
    bare_node.tree.add_device(MLX4)
    scrape = bare_node.scrape()
    assert scrape.value("legacy_data_received_bytes_total", "mlx4_0", "1") == 8
    assert scrape.value("legacy_packets_received_total", "mlx4_0", "1") == 4


def test_old_kernels_narrow_counters_that_stand_at_their_maximum_are_called_saturated(bare_node: Any) -> None:
    device = bare_node.tree.add_device(MLX4)
    (device / "ports/1/counters/port_rcv_data").write_text(f"{2**32 - 1}\n")
    scrape = bare_node.scrape()
    assert scrape.value("counter_saturated", "mlx4_0", "1", "port_data_received_bytes") == 1
    assert scrape.value("counter_saturated", "mlx4_0", "1", "port_data_transmitted_bytes") == 0
    assert scrape.value("counter_saturated", "mlx4_0", "2", "port_data_received_bytes") is None


def test_a_driver_is_found_by_the_devices_name_where_there_is_no_link() -> None:
    assert driver_of("", "hfi1_0") is drivers.HFI1
    assert driver_of("", "rocep24s0") is drivers.OTHER
    assert driver_of("mlx5_core", "rocep24s0") is drivers.MLX5


def test_an_unknown_driver_with_mlx5s_names_is_understood(bare_node: Any) -> None:
    bare_node.tree.add_device(
        DriverFiles("new0", "new_core", {}, (type(EFA.ports[0])(hw_counters=("out_of_sequence", "its_own")),))
    )
    scrape = bare_node.scrape()
    assert scrape.value("out_of_sequence_packets_received_total", "new0", "1") == 1
    assert scrape.value("driver_counter_total", "new0", "1", "its_own") is None


def test_families_of_one_driver_are_not_given_twice() -> None:
    for driver in (drivers.MLX5, drivers.MLX4, drivers.HFI1, drivers.EFA, drivers.MANA):
        for table in (driver.port, driver.device):
            series = [(counter.family, counter.labels) for counter in table.values()]
            assert len(series) == len(set(series))
