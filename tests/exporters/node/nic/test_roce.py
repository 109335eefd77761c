"""RoCE: an RDMA port and an interface are one link."""

from __future__ import annotations

import shutil
from typing import Any

import pytest


@pytest.fixture
def roce(node: Any) -> Any:
    """mlx5_0 as a RoCE device with the interface ib0."""
    port = node.nic.port.folder
    (port / "link_layer").write_text("Ethernet\n")
    (port / "gid_attrs/ndevs").mkdir(parents=True)
    (port / "gid_attrs/ndevs/0").write_text("ib0\n")
    return node


def test_a_roce_port_is_served_once_with_its_interface(roce: Any) -> None:
    scrape = roce.scrape()
    assert scrape.info("mlx5_0")["netdev"] == "ib0"
    assert scrape.info("mlx5_0")["link_layer"] == "Ethernet"
    assert scrape.info("mlx5_0")["guid"] == "a088:c203:00f1:0000"
    assert "ib0" not in scrape.devices()


def test_a_roce_port_without_counters_counts_by_its_carrier(roce: Any) -> None:
    shutil.rmtree(roce.nic.counters.folder)
    roce.scrape()
    roce.nic.interface.flap()
    assert roce.scrape().events() == 1


def test_switching_off_the_interface_of_a_roce_port_is_no_event(roce: Any) -> None:
    roce.scrape()
    roce.nic.interface.admin_down()
    roce.nic.down()
    scrape = roce.scrape()
    assert scrape.events() == 0
    assert scrape.value("expected_up", "mlx5_0", "1") == 0
    roce.nic.interface.admin_up()
    roce.nic.up()
    assert roce.scrape().events() == 0


def test_ports_of_one_device_get_the_interface_with_their_index(node: Any) -> None:
    shutil.copytree(node.nic.port.folder, node.nic.folder / "ports/2")
    second = node.nic.interface.folder.with_name("ib9")
    shutil.copytree(node.nic.interface.folder, second, symlinks=True)
    (second / "dev_port").write_text("1\n")
    (node.sysfs / "class/net/ib9").symlink_to(second)
    scrape = node.scrape()
    names = {
        s.labels[1]: s.labels[2]
        for s in scrape.samples
        if s.family.name == "pyrometer_nic_info" and s.labels[0] == "mlx5_0"
    }
    assert names == {"1": "ib0", "2": "ib9"}
    assert "ib9" not in scrape.devices()
