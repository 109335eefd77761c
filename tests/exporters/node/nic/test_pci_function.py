"""Temperatures, the PCIe way and the nearest GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pyrometer_exporters.node.nic.pcie import Gpus, functions, nearest

ROOT, SWITCH_UP, SWITCH_DOWN, NIC = "0000:15:01.0", "0000:16:00.0", "0000:17:00.0", "0000:18:00.0"
WAY = f"/sys/devices/pci0000:15/{ROOT}/{SWITCH_UP}/{SWITCH_DOWN}/{NIC}"


def write(folder: Path, **files: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in files.items():
        (folder / name).write_text(f"{value}\n")


def link(speed: str, width: object, max_speed: str = "32.0 GT/s PCIe", max_width: object = 16) -> dict[str, object]:
    return {
        "current_link_speed": speed, "current_link_width": width, "max_link_speed": max_speed,
        "max_link_width": max_width,
    }  # fmt: skip


@pytest.fixture
def behind_a_switch(node: Any) -> Any:
    """mlx5_0 below a PCIe switch; node.way has the folder of each function."""
    old = node.nic.folder.parents[1]
    home = node.sysfs / "devices/pci0000:15" / ROOT / SWITCH_UP / SWITCH_DOWN
    home.mkdir(parents=True)
    old.rename(home / NIC)
    (node.sysfs / "class/infiniband/mlx5_0").unlink()
    (node.sysfs / "class/net/ib0").unlink()
    (node.sysfs / "class/infiniband/mlx5_0").symlink_to(home / NIC / "infiniband/mlx5_0")
    (node.sysfs / "class/net/ib0").symlink_to(home / NIC / "net/ib0")
    node.way = {name: path for path in (home / NIC, *(home / NIC).parents) for name in [path.name]}
    node.nic.moved(home / NIC / "infiniband/mlx5_0")
    for name in (ROOT, SWITCH_UP, SWITCH_DOWN, NIC):
        write(node.way[name], **link("32.0 GT/s PCIe", 16))
    return node


def test_each_link_of_the_way_is_told_by_its_lower_end(behind_a_switch: Any) -> None:
    scrape = behind_a_switch.scrape()
    hops = {s.labels[1] for s in scrape.samples if s.family.name == "pyrometer_nic_pcie_link_width"}
    assert hops >= {NIC, SWITCH_UP}
    assert hops.isdisjoint({SWITCH_DOWN, ROOT})
    assert scrape.value("pcie_link_width", "mlx5_0", NIC) == 16


def test_a_switch_that_lost_lanes_above_the_card_shows(behind_a_switch: Any) -> None:
    write(behind_a_switch.way[SWITCH_UP], **link("32.0 GT/s PCIe", 8))
    scrape = behind_a_switch.scrape()
    assert scrape.value("pcie_link_width", "mlx5_0", SWITCH_UP) == 8
    assert scrape.value("pcie_link_width_max", "mlx5_0", SWITCH_UP) == 16
    assert scrape.value("pcie_link_width", "mlx5_0", NIC) == 16


def test_a_card_in_a_narrower_slot_is_as_it_should_be(behind_a_switch: Any) -> None:
    write(behind_a_switch.way[SWITCH_DOWN], **link("16.0 GT/s PCIe", 8, "16.0 GT/s PCIe", 8))
    write(behind_a_switch.way[NIC], **link("16.0 GT/s PCIe", 8))
    scrape = behind_a_switch.scrape()
    assert scrape.value("pcie_link_width_max", "mlx5_0", NIC) == 8
    assert scrape.value("pcie_link_transfers_max_per_second", "mlx5_0", NIC) == 16e9


def test_the_speed_is_told_only_while_the_device_is_busy(behind_a_switch: Any) -> None:
    node = behind_a_switch
    assert node.scrape().value("pcie_link_transfers_per_second", "mlx5_0", NIC) is None
    node.clock.now += 5
    node.nic.traffic(10_000_000_000)
    assert node.scrape().value("pcie_link_transfers_per_second", "mlx5_0", NIC) == 32e9
    node.clock.now += 5
    assert node.scrape().value("pcie_link_transfers_per_second", "mlx5_0", NIC) is None


@pytest.mark.parametrize("text", ["0", "255", "63", "Unknown", "", "-1", "x8"])
def test_a_width_that_the_kernel_does_not_know_is_absent(node: Any, text: str) -> None:
    (node.nic.folder.parents[1] / "current_link_width").write_text(f"{text}\n")
    assert node.scrape().value("pcie_link_width", "mlx5_0", "0000:19:00.0") is None


def test_the_nearest_gpu_is_the_one_with_the_longest_common_way() -> None:
    gpus = [
        f"/sys/devices/pci0000:15/{ROOT}/{SWITCH_UP}/0000:17:01.0/0000:19:00.0",
        f"/sys/devices/pci0000:15/{ROOT}/0000:20:00.0",
        "/sys/devices/pci0000:16/0000:16:01.0/0000:21:00.0",
    ]
    assert nearest(WAY, gpus) == "0000:19:00.0"
    assert nearest(WAY, gpus[1:]) == "0000:20:00.0"
    assert nearest(WAY, gpus[2:]) == ""
    assert functions(WAY)[0] == WAY
    assert len(functions(WAY)) == 4


def test_among_gpus_on_one_switch_the_nearest_address_counts() -> None:
    gpus = [
        f"/sys/devices/pci0000:15/{ROOT}/{SWITCH_UP}/0000:17:0{n}.0/0000:{bus}:00.0"
        for n, bus in ((1, "40"), (2, "1a"))
    ]
    assert nearest(WAY, gpus) == "0000:1a:00.0"


def test_identity_has_the_numa_node_and_the_gpu(behind_a_switch: Any) -> None:
    node = behind_a_switch
    gpu = node.way[SWITCH_UP] / "0000:17:01.0/0000:19:00.0"
    write(gpu, vendor="0x10de", **{"class": "0x030200"})
    (node.sysfs / "bus/pci/devices/0000:19:00.0").unlink(missing_ok=True)
    (node.sysfs / "bus/pci/devices/0000:19:00.0").symlink_to(gpu)
    write(node.way[NIC], numa_node=1)
    info = node.scrape().info("mlx5_0")
    assert (info["numa_node"], info["gpu"]) == ("1", "0000:19:00.0")
    assert node.scrape().info("mlx5_1")["gpu"] == ""


def test_a_gpu_that_comes_or_goes_is_noticed_and_nothing_is_read_while_none_does(tmp_path: Path) -> None:
    bus, gpus = tmp_path / "bus/pci/devices", Gpus(str(tmp_path))
    near, far = bus / ROOT / "0000:19:00.0", bus / "0000:f0:00.0"
    for gpu in (near, far):
        write(gpu, vendor="0x10de", **{"class": "0x030200"})
    write(bus / ROOT, vendor="0x8086", **{"class": "0x060400"})
    device = str(bus / ROOT / NIC)

    def at(now: float) -> str:
        gpus.refresh(now)
        return gpus.nearest(device)

    assert at(0) == ""  # the near one is below a bridge, and not on the bus's list
    (bus / "0000:19:00.0").symlink_to(near)
    assert at(299) == ""
    assert at(300) == "0000:19:00.0"
    write(near, vendor="0x8086")
    assert at(600) == "0000:19:00.0"  # nobody looked: the list is what it was
    (bus / "0000:19:00.0").unlink()
    assert at(900) == ""


def test_a_numa_node_of_minus_one_is_none(node: Any) -> None:
    (node.nic.folder.parents[1] / "numa_node").write_text("-1\n")
    assert node.scrape().info("mlx5_0")["numa_node"] == ""


def test_temperatures_of_device_and_module_are_told(node: Any) -> None:
    hwmon = node.nic.folder.parents[1] / "hwmon/hwmon5"
    write(hwmon, name="mlx5", temp1_input=54125, temp1_label="asic", temp1_crit=105000, temp2_input=61000, temp2_crit=0)
    scrape = node.scrape()
    assert scrape.value("temperature_celsius", "mlx5_0", "asic") == 54.125
    assert scrape.value("temperature_critical_celsius", "mlx5_0", "asic") == 105
    assert scrape.value("temperature_celsius", "mlx5_0", "temp2") == 61
    assert scrape.value("temperature_critical_celsius", "mlx5_0", "temp2") is None


@pytest.mark.parametrize("text", ["", "N/A", "54.1", "0x36", "9" * 12, "\N{DEGREE SIGN}"])
def test_a_temperature_that_is_no_number_is_absent(node: Any, text: str) -> None:
    write(node.nic.folder.parents[1] / "hwmon/hwmon5", temp1_input=text)
    assert node.scrape().value("temperature_celsius", "mlx5_0", "temp1") is None
