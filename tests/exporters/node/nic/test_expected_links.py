"""A link that was never up is expected up only when nearly all its peers are; a card that nobody took is missed."""

from __future__ import annotations

import re
import shutil
from typing import Any

import pytest

from pyrometer_exporters.node.nic.expected_links import expected_by_peers
from pyrometer_exporters.node.nic.pci_function import PciFunction
from pyrometer_exporters.node.nic.readings import DeviceReading, PortReading
from pyrometer_simulator.sysfs_drivers import EFA


def expected(node: Any, device: str = "mlx5_0") -> float | None:
    value: float | None = node.scrape().value("expected_up", device, "1")
    return value


def test_the_only_link_of_its_kind_that_is_down_is_expected_up(four_nics: Any) -> None:
    four_nics.nic.down()
    assert expected(four_nics) == 1
    assert four_nics.scrape().value("link_up", "mlx5_0", "1") == 0


def test_two_links_of_four_that_are_down_are_not_expected_up(four_nics: Any) -> None:
    four_nics.nic.down()
    four_nics.tree.nic("mlx5_1").down()
    assert expected(four_nics) == 0


def test_two_peers_are_no_evidence(four_nics: Any) -> None:
    four_nics.tree.unplug("mlx5_3")
    four_nics.nic.down()
    assert expected(four_nics) == 0


def test_other_boards_are_no_peers(four_nics: Any) -> None:
    (four_nics.nic.folder / "board_id").write_text("MT_0000000001\n")
    four_nics.nic.down()
    assert expected(four_nics) == 0


def test_a_port_that_an_administrator_disabled_is_not_expected_up(four_nics: Any) -> None:
    four_nics.nic.admin_down()
    assert expected(four_nics) == 0


def missing(node: Any) -> dict[tuple[str, ...], float]:
    found = node.scrape().samples
    return {s.labels: s.value for s in found if s.family.name == "pyrometer_nic_missing_info"}


def test_a_card_that_fell_off_the_bus_is_missing_until_it_is_back(node: Any) -> None:
    node.scrape()
    assert missing(node) == {}
    node.tree.lose("mlx5_0")
    assert missing(node) == {("mlx5_0", "0000:19:00.0", "off_bus"): 1}
    node.stop()
    assert missing(node) == {("mlx5_0", "0000:19:00.0", "off_bus"): 1}
    node.tree.find("mlx5_0")
    assert missing(node) == {}


def test_a_card_whose_name_another_one_has_now_is_missing(node: Any) -> None:
    node.scrape()
    node.tree.lose("mlx5_0")
    node.tree.rename("mlx5_1", "mlx5_0")
    assert missing(node) == {("mlx5_0", "0000:19:00.0", "off_bus"): 1}


def test_a_card_that_does_not_answer_is_not_missing(node: Any) -> None:
    node.scrape()
    node.tree.break_files("mlx5_0")
    assert node.scrape().value("up", "mlx5_0") == 0
    assert missing(node) == {}


def test_a_card_whose_driver_gave_up_is_missing(node: Any) -> None:
    node.scrape()
    node.tree.unplug("mlx5_0")
    assert missing(node) == {("mlx5_0", "0000:19:00.0", "no_rdma_device"): 1}
    function = node.sysfs / "bus/pci/devices/0000:19:00.0"
    (function / "driver").unlink()
    assert missing(node) == {("mlx5_0", "0000:19:00.0", "no_driver"): 1}


def test_a_card_that_somebody_took_is_not_missing(node: Any) -> None:
    node.scrape()
    node.tree.unplug("mlx5_0")
    mode = node.sysfs / "module/ib_core/parameters/netns_mode"
    mode.parent.mkdir(parents=True)
    mode.write_text("N\n")
    assert missing(node) == {}
    mode.write_text("Y\n")
    driver = node.sysfs / "bus/pci/devices/0000:19:00.0/driver"
    driver.unlink()
    driver.symlink_to("../../../bus/pci/drivers/vfio-pci")
    assert missing(node) == {}
    (node.sysfs / "bus/pci/drivers/mlx5_core").rename(node.sysfs / "bus/pci/drivers/unloaded")
    node.tree.lose("mlx5_1")
    assert missing(node) == {}


def test_an_excluded_card_is_not_missing_and_one_that_was_taken_out_is_forgotten(node: Any) -> None:
    node.scrape()
    node.tree.lose("mlx5_0")
    assert missing(node) != {}
    node.clock.now += 7 * 86400
    assert missing(node) == {}
    node.tree.lose("mlx5_1")
    node.stop()
    node.flags["collector.nic.device-exclude"] = re.compile("mlx5_1")
    assert missing(node) == {}


def test_a_virtual_function_that_a_pod_takes_is_not_missed_and_never_expected(node: Any) -> None:
    (node.sysfs / "bus/pci/devices/0000:19:00.0/physfn").symlink_to("../0000:2b:00.0")
    found = node.scrape()
    assert found.value("expected_up", "mlx5_0", "1") == 0
    assert found.value("settling_info", "mlx5_0", "1", "virtual_function") == 1
    node.nic.flap()
    found = node.scrape()
    assert found.events() == 0
    assert found.value("link_down_ignored_total", "mlx5_0", "1", "virtual_function") == 1
    node.tree.lose("mlx5_0")
    assert missing(node) == {}


@pytest.mark.parametrize(("master", "missed"), [("bonding", True), ("", False)])
def test_a_function_that_a_clouds_host_lends_is_not_missed_but_one_of_a_bond_is(
    node: Any, master: str, missed: bool
) -> None:
    interface = node.sysfs / "bus/pci/devices/0000:19:00.0/net/eth9"
    (node.sysfs / "devices/virtual/net/upper" / master).mkdir(parents=True)
    interface.mkdir(parents=True)
    (interface / "flags").write_text("0x1843\n")  # IFF_SLAVE
    (interface / "master").symlink_to(node.sysfs / "devices/virtual/net/upper")
    node.scrape()
    node.tree.lose("mlx5_0")
    assert bool(missing(node)) is missed


def test_an_interface_on_usb_comes_and_goes_with_its_bmc(node: Any) -> None:
    node.scrape()
    folder = node.sysfs / "devices/pci0000:00/0000:00:14.0/usb1/1-14/1-14:2.0"
    folder.mkdir(parents=True)
    shutil.copytree(node.tree.interface("eth0").folder, folder / "net/enxb03af2b6059f", symlinks=True)
    (folder / "net/enxb03af2b6059f/device").unlink(missing_ok=True)
    (folder / "net/enxb03af2b6059f/device").symlink_to(folder)
    (node.sysfs / "class/net/enxb03af2b6059f").symlink_to(folder / "net/enxb03af2b6059f")
    node.clock.now += 61
    found = node.scrape()
    assert found.value("link_up", "enxb03af2b6059f", "") == 1
    assert found.value("expected_up", "enxb03af2b6059f", "") == 0
    assert found.value("settling_info", "enxb03af2b6059f", "", "usb") == 1
    assert found.info("enxb03af2b6059f")["gpu"] == ""


def test_an_efa_that_disappears_is_missing_though_its_link_is_always_up(node: Any) -> None:
    device = node.tree.add_device(EFA)
    node.scrape()
    (node.sysfs / "class/infiniband" / EFA.name).unlink()
    (node.sysfs / "bus/pci/devices" / device.parents[1].name).unlink()
    assert [name[0] for name in missing(node)] == [EFA.name]


def test_the_inner_end_of_a_virtual_function_is_not_served(node: Any) -> None:
    name = node.tree.interface("eth0").folder / "phys_port_name"
    name.write_text("p0\n")
    assert "eth0" in node.scrape().devices()
    name.write_text("pf0vf3\n")
    node.stop()
    assert "eth0" not in node.scrape().devices()


def test_two_of_eight_cables_are_missed_by_their_peers() -> None:
    ports = [reading(f"mlx5_{index}", active=index > 1) for index in range(8)]
    assert expected_by_peers(ports) == {("mlx5_0", "1"), ("mlx5_1", "1")}
    assert expected_by_peers(ports[:7]) == set()  # two of seven: five are not three times as many


def test_storage_ports_are_no_peers_of_those_beside_a_gpu() -> None:
    ports = [reading(f"mlx5_{index}", active=index < 8, path=f"/pci{index}") for index in range(10)]
    assert expected_by_peers(ports, lambda path: "" if path in ("/pci8", "/pci9") else "gpu") == set()


def reading(name: str, *, active: bool, path: str = "") -> DeviceReading:
    port = PortReading(port="1", active=active, admin_down=False, rate=None)
    return DeviceReading(name, 1, "", PciFunction("", "", path), "", (port,), board="A")
