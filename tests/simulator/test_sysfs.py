"""The simulated sysfs: consistent, and never half-written under a reader's eyes."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from pyrometer_simulator.sysfs import SysfsTree
from pyrometer_simulator.sysfs_nic import write_value


@pytest.fixture
def tree(tmp_path: Path) -> SysfsTree:
    return SysfsTree(tmp_path / "node", hcas=4)


def text(path: Path) -> str:
    return path.read_text().strip()


def test_the_pci_tree_has_the_gpus(tree: SysfsTree) -> None:
    devices = [folder for folder in (tree.sysfs / "bus/pci/devices").iterdir() if text(folder / "vendor") == "0x10de"]
    assert sorted(folder.name for folder in devices) == sorted(tree.gpu_addresses)
    assert {text(folder / "class") for folder in devices} == {"0x030200"}
    assert len(devices) == 8


def test_every_link_of_the_tree_leads_somewhere(tree: SysfsTree) -> None:
    links = [path for path in tree.sysfs.rglob("*") if path.is_symlink()]
    assert links
    assert [path for path in links if not path.exists()] == []
    assert [path for path in links if path.readlink().is_absolute()] == []


def test_a_device_leads_to_its_pci_function_and_driver(tree: SysfsTree) -> None:
    device = tree.sysfs / "class/infiniband/mlx5_3/device"
    assert device.resolve().name == "0000:5e:00.0"
    assert (device / "driver").resolve().name == "mlx5_core"
    assert text(device / "net/ib3/operstate") == "up"
    assert tree.sysfs.joinpath("class/net/ib3/device").resolve() == device.resolve()


def test_a_link_that_goes_down_does_so_in_all_files(tree: SysfsTree) -> None:
    tree.nic("mlx5_3").down()
    port, net = tree.sysfs / "class/infiniband/mlx5_3/ports/1", tree.sysfs / "class/net/ib3"
    assert text(port / "state") == "1: DOWN"
    assert text(port / "phys_state") == "2: Polling"
    assert text(port / "rate") == "10 Gb/sec (4X SDR)"
    assert text(port / "counters/link_downed") == "1"
    assert (text(net / "operstate"), text(net / "carrier"), text(net / "speed")) == ("down", "0", "-1")
    assert (text(net / "carrier_down_count"), text(net / "carrier_changes")) == ("1", "2")


def test_traffic_counts_words_and_stops_with_the_link(tree: SysfsTree) -> None:
    nic = tree.nic("mlx5_0")
    nic.traffic(4096, 8192)
    counters = nic.counters.folder
    assert (text(counters / "port_xmit_data"), text(counters / "port_rcv_data")) == ("1024", "2048")
    assert (text(counters / "port_xmit_packets"), text(counters / "port_rcv_packets")) == ("1", "2")
    nic.down()
    nic.traffic(4096)
    assert text(counters / "port_xmit_data") == "1024"


def test_error_counters_stay_at_their_maximum(tree: SysfsTree) -> None:
    nic = tree.nic("mlx5_0")
    nic.count("symbol_error", 70_000)
    nic.count("link_downed", 300)
    nic.count("local_ack_timeout_err", 2**32 + 3)
    assert (nic.counters.get("symbol_error"), nic.counters.get("link_downed")) == (65535, 255)
    assert nic.hw_counters.get("local_ack_timeout_err") == 3


def test_values_change_in_the_same_inode(tree: SysfsTree) -> None:
    state = tree.nic("mlx5_0").port.folder / "state"
    before = state.stat()
    tree.nic("mlx5_0").down()
    assert (state.stat().st_ino, state.stat().st_size) == (before.st_ino, before.st_size)


def test_a_reader_never_sees_a_half_written_value(tmp_path: Path) -> None:
    path, values = tmp_path / "value", ["9", "1000000", "4: ACTIVE", "1: DOWN"]
    write_value(path, values[0])
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            for value in values:
                write_value(path, value)

    writer = threading.Thread(target=write)
    writer.start()
    descriptor = os.open(path, os.O_RDONLY)
    try:
        until, seen = time.monotonic() + 0.5, set()
        while time.monotonic() < until:
            seen.add(os.pread(descriptor, 4096, 0))
    finally:
        stop.set()
        writer.join()
        os.close(descriptor)
    assert {data.decode().strip() for data in seen} <= set(values)
