"""Which GPUs there are and which are wanted, before the driver is asked."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrometer_exporters.node.gpu.inventory import (
    Candidate,
    PciBus,
    Selection,
    candidates,
    kernel_pci_id,
    nvml_pci_id,
)


@pytest.mark.parametrize(
    ("nvml", "kernel"),
    [
        ("00000000:AF:00.0", "0000:af:00.0"),
        ("00000001:18:00.0", "0001:18:00.0"),
        ("00010000:E1:00.0", "10000:e1:00.0"),
    ],
)
def test_both_spellings_of_a_pci_address(nvml: str, kernel: str) -> None:
    assert kernel_pci_id(nvml) == kernel_pci_id(kernel) == kernel
    assert nvml_pci_id(kernel) == nvml_pci_id(nvml) == nvml


@given(st.text(max_size=20))
def test_any_text_as_address_is_survived(text: str) -> None:
    assert Selection(exclude=re.compile("^x$")).takes(0, kernel_pci_id(nvml_pci_id(text)), text) in (True, False)


def _device(sysfs: Path, address: str, vendor: str, kind: str) -> Path:
    folder = sysfs / "bus/pci/devices" / address
    folder.mkdir(parents=True)
    (folder / "vendor").write_text(vendor + "\n")
    (folder / "class").write_text(kind + "\n")
    return folder


def test_only_nvidia_display_devices_are_gpus(tmp_path: Path) -> None:
    _device(tmp_path, "0000:2a:00.0", "0x10de", "0x030200")
    _device(tmp_path, "0000:18:00.0", "0x10de", "0x030000")
    _device(tmp_path, "0000:07:00.0", "0x10de", "0x068000")  # an NVSwitch
    _device(tmp_path, "0000:01:00.0", "0x1a03", "0x030000")  # the BMC's own display
    (tmp_path / "bus/pci/devices/0000:99:00.0").mkdir()  # vanished while being read
    assert PciBus(tmp_path).gpus() == ["0000:18:00.0", "0000:2a:00.0"]


def _bind(sysfs: Path, device: Path, driver: str) -> None:
    (device / "driver").unlink(missing_ok=True)
    (sysfs / "bus/pci/drivers" / driver).mkdir(parents=True, exist_ok=True)
    (device / "driver").symlink_to(f"../../../bus/pci/drivers/{driver}")


@pytest.mark.parametrize("driver", ["vfio-pci", "nvgrace_gpu_vfio_pci", "pci-stub", "xen_pciback"])
def test_a_gpu_given_to_a_virtual_machine_is_none_of_the_nodes_until_it_comes_back(tmp_path: Path, driver: str) -> None:
    devices = [_device(tmp_path, f"0000:{n}:00.0", "0x10de", "0x030200") for n in (18, 19)]
    bus = PciBus(tmp_path)
    _bind(tmp_path, devices[0], "nvidia")
    assert bus.gpus() == ["0000:18:00.0", "0000:19:00.0"]  # the second has no driver: something is wrong with it
    _bind(tmp_path, devices[1], driver)
    assert bus.gpus() == ["0000:18:00.0"]
    _bind(tmp_path, devices[1], "nvidia")
    assert len(bus.gpus() or ()) == 2


def test_virtual_functions_are_no_gpus_of_their_own(tmp_path: Path) -> None:
    _device(tmp_path, "0000:18:00.0", "0x10de", "0x030200")
    (_device(tmp_path, "0000:18:00.4", "0x10de", "0x030200") / "physfn").symlink_to("../0000:18:00.0")
    assert PciBus(tmp_path).gpus() == ["0000:18:00.0"]


def test_a_gpu_that_leaves_the_bus_is_no_longer_counted_and_what_stays_is_not_read_again(tmp_path: Path) -> None:
    first, second = (_device(tmp_path, f"0000:{n}:00.0", "0x10de", "0x030200") for n in (18, 19))
    bus = PciBus(tmp_path)
    assert len(bus.gpus() or ()) == 2
    (first / "vendor").unlink()
    assert len(bus.gpus() or ()) == 2
    for path in (*second.iterdir(), second):
        path.unlink() if path.is_file() else path.rmdir()
    assert bus.gpus() == ["0000:18:00.0"]


def test_without_sysfs_nothing_is_known(tmp_path: Path) -> None:
    assert PciBus(tmp_path / "missing").gpus() is None


def test_in_a_container_that_sees_fewer_gpus_only_numbers_are_known(tmp_path: Path) -> None:
    assert candidates(1, ["0000:18:00.0", "0000:2a:00.0"], tmp_path) == [Candidate(0)]
    assert candidates(2, None, tmp_path) == [Candidate(0), Candidate(1)]


def test_procfs_gives_the_uuid(tmp_path: Path) -> None:
    folder = tmp_path / "driver/nvidia/gpus/0000:18:00.0"
    folder.mkdir(parents=True)
    (folder / "information").write_text(
        "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 171\nGPU UUID: \t GPU-4cf8db2d-06c0-7d70-1a51-e59b25b2c16c\n"
    )
    (found,) = candidates(1, ["0000:18:00.0"], tmp_path)
    assert found.uuid == "GPU-4cf8db2d-06c0-7d70-1a51-e59b25b2c16c"


def test_what_is_unknown_matches_neither_list() -> None:
    pattern = re.compile("^(?:GPU-.*)$")
    assert Selection(exclude=pattern).takes(0, None, None)
    assert not Selection(include=pattern).takes(0, None, None)
