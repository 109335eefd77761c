"""Bytes over NVLink and PCIe: true counters, and DCGM's rates beside them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pyrometer_exporters.node.gpu.subjects.dcgm_profiling import PcieCounters, pcie_fields
from pyrometer_exporters.node.gpu.subjects.nvlink_throughput import NvlinkCounters, nvlink_fields
from pyrometer_simulator.nvml import SimulatedGpus

GIB = 1 << 30
SENT, RECEIVED = "pyrometer_gpu_nvlink_transmitted_bytes_total", "pyrometer_gpu_nvlink_received_bytes_total"
DCGM_TOTAL, DCGM_L0 = "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "DCGM_FI_DEV_NVLINK_BANDWIDTH_L0"


def of_model(model: str) -> Callable[[SimulatedGpus], None]:
    def setup(gpus: SimulatedGpus) -> None:
        gpus._file.header.model = model.encode()

    return setup


@pytest.mark.parametrize("model", ["NVIDIA H100 80GB HBM3", "NVIDIA B200"])
def test_nvlink_counters_are_bytes_on_every_generation(make_node: Any, model: str) -> None:
    node = make_node(count=1, still=True, setup=of_model(model))
    node.gpus[0].set(nvlink_bytes=[3 * GIB, 5 * GIB])
    scrape = node.scrape()
    assert (scrape.value(SENT), scrape.value(RECEIVED)) == (3 * GIB, 5 * GIB)


def test_nvlink_bandwidth_is_in_the_unit_of_dcgm(make_node: Any) -> None:
    node = make_node(count=1, still=True)
    node.gpus[0].set(nvlink_bytes=[0, 0])
    assert node.scrape().value(DCGM_TOTAL) is None
    node.clock.now += 10
    node.gpus[0].set(nvlink_bytes=[18_000_000 * 1024, 36_000_000 * 1024])
    scrape = node.scrape()
    assert scrape.value(DCGM_TOTAL) == 5400  # 54 million KiB in 10 s, divided by 1000
    assert scrape.value(DCGM_L0) == 300


def test_gpu_without_nvlink_has_no_nvlink_series(make_node: Any) -> None:
    node = make_node(count=1, still=True, setup=of_model("NVIDIA H100 PCIe"))
    scrape = node.scrape_every(15, times=2)
    assert not {SENT, RECEIVED, DCGM_TOTAL, DCGM_L0} & scrape.names_of("0")


def test_driver_reload_starts_nvlink_anew_without_a_negative_rate(make_node: Any) -> None:
    node = make_node(count=1, still=True)
    node.gpus[0].set(nvlink_bytes=[9 * GIB, 9 * GIB])
    node.scrape()
    node.gpus.reload_driver()
    node.gpus[0].set(nvlink_bytes=[1024, 1024])
    scrape = node.scrape_every(15, times=3)
    assert scrape.value(SENT) == 1024
    assert scrape.value(DCGM_TOTAL) == 0


def test_first_nvlink_source_that_counts_is_kept_to() -> None:
    counters = NvlinkCounters()
    everything = 0xFFFFFFFF
    old, new = {(138, everything): 0, (139, everything): 0}, {(202, everything): 700, (204, everything): 900}
    assert counters.read(old | new) == (700, 900)
    later = {(138, everything): 5, (139, everything): 5} | new
    assert counters.read(later) == (700, 900)
    assert counters.read({(138, everything): 5, (139, everything): 5}) is None


@pytest.mark.parametrize(
    ("driver", "nvlink", "pcie"),
    [("535.183.01", 2, []), ("550.54.15", 2, []), ("555.42.02", 2, [197, 198]), ("560.35.03", 4, [197, 198])],
)
def test_fields_are_asked_only_of_drivers_that_know_them(driver: str, nvlink: int, pcie: list[int]) -> None:
    assert len(nvlink_fields(driver)) == nvlink
    assert list(pcie_fields(driver)) == pcie


def test_pcie_counters_are_served_once_they_cannot_be_32_bits_wide(make_node: Any) -> None:
    node = make_node(count=1, still=True)
    node.gpus[0].set(pcie_bytes=[3 * GIB, GIB])
    assert node.scrape().value("pyrometer_gpu_pcie_transmitted_bytes_total") is None
    node.gpus[0].set(pcie_bytes=[5 * GIB, GIB])
    scrape = node.scrape()
    assert scrape.value("pyrometer_gpu_pcie_transmitted_bytes_total") == 5 * GIB
    assert scrape.value("pyrometer_gpu_pcie_received_bytes_total") == GIB


def test_pcie_counter_that_went_backwards_is_not_believed_again() -> None:
    counters = PcieCounters()
    assert counters.read({197: 5 * GIB, 198: 5 * GIB}) == (5 * GIB, 5 * GIB)
    assert counters.read({197: GIB, 198: 6 * GIB}) is None
    assert counters.read({197: 9 * GIB, 198: 9 * GIB}) is None


def test_pcie_counters_come_from_gpm_where_it_has_them_and_from_nowhere_else(make_node: Any) -> None:
    node = make_node(count=1, still=True, driver="595.45.04")
    node.gpus[0].set(pcie_bytes=[5 * GIB, 6 * GIB])
    assert node.scrape().value("pyrometer_gpu_pcie_transmitted_bytes_total") is None  # GPM needs two samples
    assert node.scrape_every(15).value("pyrometer_gpu_pcie_transmitted_bytes_total") == 5 * GIB
    node.gpus[0].set(pcie_bytes=[GIB, GIB])  # small, yet believed
    assert node.scrape_every(15).value("pyrometer_gpu_pcie_received_bytes_total") == GIB


def test_pcie_counters_of_gpus_without_gpm_come_from_field_values_on_new_drivers_too(make_node: Any) -> None:
    node = make_node(count=1, still=True, driver="595.45.04", setup=of_model("NVIDIA A100-SXM4-80GB"))
    node.gpus[0].set(pcie_bytes=[5 * GIB, 6 * GIB])
    assert node.scrape().value("pyrometer_gpu_pcie_received_bytes_total") == 6 * GIB


def test_slow_call_for_pcie_throughput_is_never_made(make_node: Any) -> None:
    node = make_node(count=1, scraped=True)
    assert "nvmlDeviceGetPcieThroughput" not in node.library.calls
