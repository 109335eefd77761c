"""Shapes of healthy machines on which a check could take a habit for a loss, and statements that name parts."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from typing import Any

import pytest

Plant = Callable[[Any], object]


def write(node: Any, name: str, text: str, tree: str = "sys") -> None:
    node.files.write(tree, name, text)


def take_gpus_off_the_bus(node: Any) -> None:
    """Leave the HCAs alone on the bus, as clouds show it."""
    for address in node.tree.gpu_addresses:
        (node.tree.sysfs / "bus/pci/devices" / address).unlink()


def add_slower_fabric(node: Any) -> None:
    take_gpus_off_the_bus(node)
    for name in ("mlx5_6", "mlx5_7"):
        node.tree.nic(name).up(200)


def wait_for_the_subnet_manager(node: Any) -> None:
    for nic in node.tree.nics:
        (nic.folder / "ports/1/state").write_text("2: INIT\n")


def switch_smt_off(node: Any) -> None:
    for name, text in (("online", "0-127"), ("present", "0-255"), ("smt/control", "off")):
        write(node, f"devices/system/cpu/{name}", text)


def mount(node: Any, line: str) -> None:
    path = node.tree.procfs / "1/mountinfo"
    path.write_text(f"{path.read_text()}{line}\n")


def load_efa(node: Any) -> None:
    shutil.rmtree(node.tree.sysfs / "module/nvidia_peermem")
    write(node, "module/efa_nv_peermem/version", "")
    write(node, "driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.163.01  Tue", "proc")


def turn_ecc_off(node: Any) -> None:
    for gpu in node.gpus:
        gpu.set(ecc="off")


def leave_links_without_bridge(node: Any) -> None:
    for gpu in node.gpus:
        gpu.set(nvlinks_down=list(range(18)))


def forbid(node: Any) -> None:
    mount(node, "40 22 0:50 / /homes/a/data rw - fuse.sshfs a@b:/ rw,user_id=1000,group_id=1000")
    node.files.disks.errors["/homes/a/data"] = errno.EACCES


USR = "24 22 254:0 / /usr ro,relatime shared:4 - btrfs /dev/mapper/usr ro,rescue=nologreplay"
GCS = "40 22 0:50 / /data rw,nosuid,nodev,relatime shared:20 - fuse.gcsfuse bucket rw,user_id=0"

HEALTHY: dict[str, tuple[str, Plant, str]] = {
    "SMT off": ("cpus", switch_smt_off, ""),
    "a root of dm-verity": ("filesystem_read_only", lambda n: mount(n, USR), ""),
    "a slower storage fabric": ("hca_rate", add_slower_fabric, ""),
    "and the rate of training is stated": ("hca_rate", add_slower_fabric, "expect: {hcas: 6, rate: 400e9}"),
    "each class has its rate": ("hca_rate", add_slower_fabric, "expect: {rate: {compute: 400e9, storage: 200e9}}"),
    "EFA's own module": ("gpudirect", load_efa, ""),
    "Cloud Storage FUSE": ("network_mounts", lambda n: mount(n, GCS), "expect: {mounts: [/data/]}"),
    "a user's FUSE": ("network_mounts", forbid, ""),
    "ECC off on all": ("gpu_ecc_mode", turn_ecc_off, ""),
    "no NVLink bridge": ("nvlinks", leave_links_without_bridge, ""),
    "ports by name": ("hca_links", lambda n: n.tree.nic("mlx5_3").down(), "expect: {hcas: [mlx5_0, mlx5_1]}"),
    "powersave on all": (
        "cpu_governor",
        lambda n: [write(n, f"devices/system/cpu/cpu{c}/cpufreq/scaling_governor", "powersave") for c in range(4)],
        "",
    ),
}

BROKEN: dict[str, tuple[str, Plant, str, str]] = {
    "no subnet manager": ("hca_links", wait_for_the_subnet_manager, "expect: {hcas: 8}", "subnet manager"),
    "a port by name": (
        "hca_links", lambda n: n.tree.nic("mlx5_3").down(), "expect: {hcas: [mlx5_3]}", "mlx5_3/1 is DOWN",
    ),
    "a card by address": (
        "hca_count", lambda n: None, 'expect: {hcas: ["0000:99:00.0"]}', "0000:99:00.0 is missing (stated)",
    ),
    "a class": ("hca_count", add_slower_fabric, "expect: {hcas: {storage: 3}}", "2 of 3 storage HCAs (stated)"),
    "a rate by name": ("hca_rate", add_slower_fabric, "expect: {rate: {mlx5_6: 400e9}}", "mlx5_6/1 runs at 200 of 400"),
    "ECC is stated": ("gpu_ecc_mode", turn_ecc_off, "expect: {ecc: on}", "GPU 0 (0000:18:00.0) has ECC off"),
    "a GPU by UUID": ("gpu_count", lambda n: None, "expect: {gpus: [GPU-none]}", "GPU-none is missing (stated)"),
    "disks by model": ("nvme", lambda n: None, "expect: {nvmes: {MZ: 1}}", "0 of 1 MZ (stated)"),
}  # fmt: skip


@pytest.mark.parametrize("shape", HEALTHY)
def test_a_healthy_shape_does_not_fail(node: Any, shape: str) -> None:
    check, plant, stated = HEALTHY[shape]
    plant(node)
    assert node.verdict(check, stated=stated).state in ("ok", "absent"), node.verdict(check)


@pytest.mark.parametrize("shape", BROKEN)
def test_a_statement_that_is_not_met_names_the_part(node: Any, shape: str) -> None:
    check, plant, stated, reason = BROKEN[shape]
    plant(node)
    verdict = node.verdict(check, stated=stated)
    assert (verdict.state, verdict.learned) == ("failed", False)
    assert reason in verdict.reason


def test_advice_fits_the_port(node: Any) -> None:
    wait_for_the_subnet_manager(node)
    action = node.verdict("hca_links", stated="expect: {hcas: 8}").action
    assert "subnet manager" in action
    assert "reseat" not in action.lower()


def test_the_fabric_managers_functions_are_no_hcas(node: Any) -> None:
    """Four of one card, away from the GPUs: with them twelve devices, and one of the eight HCAs is lost."""
    for number in range(4):
        address, name = f"0000:c3:00.{number}", f"mlx5_{20 + number}"
        folder = node.tree.sysfs / f"devices/pci0000:c3/{address}"
        port = folder / f"infiniband/{name}/ports/1"
        port.mkdir(parents=True)
        for file, text in (("state", "4: ACTIVE"), ("phys_state", "5: LinkUp"), ("link_layer", "InfiniBand")):
            (port / file).write_text(f"{text}\n")
        (folder / "device").write_text("0x1021\n")
        (folder / "vendor").write_text("0x15b3\n")
        (folder / f"infiniband/{name}/device").symlink_to(folder)
        (node.tree.sysfs / "class/infiniband" / name).symlink_to(folder / f"infiniband/{name}")
    assert node.verdict("hca_count", stated="expect: {hcas: 8}").state == "ok"
    assert node.verdict("fabric_manager").state == "failed"
    node.tree.lose("mlx5_3")
    assert node.verdict("hca_count").reason.startswith("7 of 8 HCAs (stated)")
