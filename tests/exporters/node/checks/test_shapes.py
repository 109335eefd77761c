"""Shapes of healthy machines on which a check could take a habit for a loss, and statements that name parts."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from pyrometer_exporters.node.checks.gpus import GpuFacts, GpuView
from pyrometer_simulator.host_files import SimulatedStatFs

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


def fill_boot(node: Any) -> None:
    """Let /boot be as full as two kernels make it; a gibibyte, and one of ten."""
    for point, blocks in (("/boot", 1_000), ("/boot/efi", 10_000)):
        mount(node, f"41 22 8:1 / {point} rw - ext4 /dev/sda1 rw")
        node.files.disks.sizes[point] = SimulatedStatFs(f_blocks=blocks, f_bavail=blocks // 100, f_files=100, f_ffree=1)


def take_out(node: Any, gpu: int) -> None:
    """Boot without a GPU that nobody has seen yet."""
    node.gpus[gpu].hide()
    (node.tree.sysfs / "bus/pci/devices" / node.tree.gpu_addresses[gpu]).unlink()


def take_all_out(node: Any) -> None:
    """Lose all GPUs at once, as with a board's power: nothing is on the bus, and the driver is still loaded."""
    take_gpus_off_the_bus(node)
    for gpu in node.gpus:
        gpu.hide()


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
    "a full /boot": ("filesystem_full", fill_boot, ""),
    "a full /boot's inodes": ("inodes", fill_boot, ""),
    "no GPU where none is stated": ("gpu_driver", take_all_out, "expect: {gpus: 0}"),
    "seven GPUs where seven are stated": ("gpu_fabric", lambda n: take_out(n, 3), "expect: {gpus: 7}"),
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


def leave_a_slot_dark(node: Any) -> None:
    """Let pciehp see cards in two slots; of one of them no function is on the bus."""
    for slot, address in (("4", node.tree.gpu_addresses[0].rpartition(".")[0]), ("7", "0000:fe:00")):
        for file, text in (("address", address), ("adapter", "1"), ("power", "1")):
            write(node, f"bus/pci/slots/{slot}/{file}", text)


STATE = "state `expect: {gpus: N}` in /etc/pyrometer/checks.yaml"

# On the first day, when nothing is learned and nobody has stated anything.
ODD: dict[str, tuple[str, Plant, str]] = {
    "a rail without its card": (
        "hca_count", lambda n: n.tree.lose("mlx5_3"),
        "0 of 1 RDMA devices are beside 0000:5d:00.0, as the others have: state `hcas` and `gpus`",
    ),
    "a board with NVSwitches and seven GPUs": (
        "gpu_fabric", lambda n: take_out(n, 3),
        "7 GPUs are on the bus, and machines with NVSwitches have 4, 8 or 16: state `gpus`",
    ),
    "a driver without GPUs": (
        "gpu_driver", take_all_out, "the NVIDIA driver is loaded, and no GPU is on the bus: state `gpus`",
    ),
    "a slot whose card does not answer": (
        "gpu_count", leave_a_slot_dark,
        f"slot 7 (0000:fe:00) holds a card that is not on the bus; if it is no GPU, {STATE}",
    ),
}  # fmt: skip


@pytest.mark.parametrize("shape", ODD)
def test_what_is_odd_on_the_first_day_is_unknown_until_somebody_states_it(node: Any, shape: str) -> None:
    check, plant, reason = ODD[shape]
    assert node.verdict(check, stated="").state == "ok"
    plant(node)
    verdict = node.verdict(check)
    assert (verdict.state, verdict.reason) == ("unknown", reason)


def test_a_gpu_that_nobody_ever_saw_is_asked_for_until_somebody_states_the_number(node: Any) -> None:
    take_out(node, 3)
    verdict = node.verdict("gpu_count", stated="")
    assert (verdict.state, verdict.reason) == ("ok", f"7 GPUs, and nothing says whether that is all: {STATE}")
    assert node.verdict("gpu_count", stated="expect: {gpus: 7}").reason == ""
    assert node.verdict("gpu_count", stated="expect: {gpus: 8}").reason == "7 of 8 GPUs (stated)"


HOST_IN_CONTAINER = """\
1203 998 0:141 / / rw,relatime master:402 - overlay overlay rw,lowerdir=/a
1207 1203 0:131 / /dev/shm rw,nosuid - tmpfs shm rw,size=65536k
1211 1203 259:2 / /host ro,relatime{propagation} - ext4 /dev/nvme0n1p2 rw
1212 1211 0:25 / /host/dev/shm rw,nosuid{propagation} - tmpfs tmpfs rw
1213 1211 0:51 / /host/data rw,relatime{propagation} - nfs4 10.96.84.126:/export rw,vers=4.1
1216 1203 259:2 /etc-hosts /etc/hosts rw,relatime - ext4 /dev/nvme0n1p2 rw
"""


@pytest.mark.parametrize("propagation", [" master:1", ""])
def test_a_container_with_the_hosts_root_sees_mounts_where_the_host_has_them(node: Any, propagation: str) -> None:
    """Its own process 1 lists them below that folder, which is not put before them once more."""
    text = HOST_IN_CONTAINER.format(propagation=propagation)
    write(node, "1/mountinfo", text, "proc")
    (node.tree.procfs / "self/ns").mkdir(parents=True)
    (node.tree.procfs / "self/ns/pid").symlink_to("pid:[4026534444]")
    (node.tree.procfs / "2/stat").unlink()
    node.looker = replace(node.looker, paths=replace(node.paths, rootfs=Path("/host")))
    disks = node.files.disks
    disks.sizes["/host"] = SimulatedStatFs(f_blocks=10_000_000, f_bavail=10_000)
    assert node.verdict("filesystem_full", stated="expect: {mounts: [/data]}").reason == "/ is 99.9% full"
    assert [node.verdict(name).state for name in ("network_mounts", "shared_memory")] == ["ok", "ok"]
    disks.errors["/host/data"] = errno.ESTALE
    assert node.verdict("network_mounts").reason == "/data: Stale file handle"
    write(node, "1/mountinfo", text.replace("/host/data", "/host/else"), "proc")
    missing = node.verdict("network_mounts")
    assert (missing.state, "/data is" in missing.reason) == (("failed", True) if propagation else ("unknown", True))


@pytest.mark.parametrize(
    ("stated", "running", "state"),
    [("", False, "absent"), ("", True, "absent"), ("imex: off", True, "absent"), ("imex: on", True, "ok"),
     ("imex: on", False, "failed")],
)  # fmt: skip
def test_imex_of_a_gb200_is_judged_where_it_is_stated(node: Any, stated: str, *, running: bool, state: str) -> None:
    gpus = [GpuFacts(n, f"0008:0{n}:00.0", f"GPU-{n}", "NVIDIA GB200", fabric_spans_nodes=True) for n in range(4)]
    node.looker = replace(node.looker, ask_gpus=lambda _node: GpuView([gpu.address for gpu in gpus], gpus=gpus))
    if running:
        node.files.run("nvidia-imex")
    verdict = node.verdict("imex", stated=f"expect: {{{stated}}}")
    assert verdict.state == state
    assert stated != "" or "`imex: on`" in verdict.reason


def test_a_lost_memory_module_is_named_as_edac_labels_it(node: Any) -> None:
    for number in range(2):
        folder = f"devices/system/edac/mc/mc0/dimm{number}"
        write(node, f"{folder}/dimm_label", f"CPU_SrcID#0_MC#0_Chan#{number}_DIMM#0")
        write(node, f"{folder}/size", "65536")
        write(node, f"{folder}/dimm_ue_count", "0")
    node.learn()
    write(node, "devices/system/edac/mc/mc0/ue_count", "2")
    write(node, "devices/system/edac/mc/mc0/dimm1/dimm_ue_count", "2")
    assert node.verdict("edac").reason == "mc0 had 2 uncorrected memory errors (CPU_SrcID#0_MC#0_Chan#1_DIMM#0)"
    shutil.rmtree(node.tree.sysfs / "devices/system/edac/mc/mc0/dimm1")
    assert node.verdict("memory_size").state == "ok"  # its label alone may be another kernel's
    total = int((node.tree.procfs / "meminfo").read_text().split()[1])
    write(node, "meminfo", f"MemTotal: {total - 64 * 2**20} kB", "proc")
    assert node.verdict("memory_size").reason.endswith(": CPU_SrcID#0_MC#0_Chan#1_DIMM#0 is missing")


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


def give(node: Any, *gpus: int, devices: Collection[int] = ()) -> None:
    """Run in a container that is given these GPUs, beside devices that it may not open."""
    for index, address in enumerate(node.tree.gpu_addresses):
        driver = node.tree.sysfs / "bus/pci/devices" / address / "driver"
        driver.unlink(missing_ok=True)
        driver.symlink_to("../../../bus/pci/drivers/nvidia")
        if index not in gpus:
            node.gpus[index].hide()
    node.paths.devices.mkdir()
    for index in gpus:
        (node.paths.devices / f"nvidia{index}").touch()
    for index in devices:
        (node.paths.devices / f"nvidia{index}").symlink_to("forbidden")


@dataclass(frozen=True)
class Given:
    """How a process is given some GPUs."""

    visible: str | None
    gpus: Sequence[int]
    forbidden: Sequence[int]
    reason: str


GIVEN = {
    "a list": Given("0,1", (0, 1), (), "2 of 8 GPUs: NVIDIA_VISIBLE_DEVICES=0,1"),
    "CDI, the device plugin of Kubernetes": Given("void", (0,), (), "1 of 8 GPUs: NVIDIA_VISIBLE_DEVICES=void"),
    "CDI, --device, a MIG instance": Given(None, (0,), (), "1 of 8 GPUs: it may open 1 of their devices"),
    "a batch job": Given("all", (2, 3), (0, 1, 4, 5, 6, 7), "2 of 8 GPUs: it may open 2 of their devices"),
}


@pytest.mark.parametrize("way", GIVEN)
def test_a_process_that_is_given_some_gpus_knows_nothing_of_the_others(
    node: Any, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    given = GIVEN[way]
    node.learn()
    monkeypatch.delenv("NVIDIA_VISIBLE_DEVICES", raising=False)
    if given.visible is not None:
        monkeypatch.setenv("NVIDIA_VISIBLE_DEVICES", given.visible)
    give(node, *given.gpus, devices=given.forbidden)
    for stated in ("", "expect: {gpus: 8}", "expect: {gpus: {H100: 8}}"):
        verdict = node.verdict("gpu_count", stated=stated)
        assert (verdict.state, verdict.reason) == ("unknown", f"this process is given {given.reason}")
    assert node.verdict("gpu_count", stated=f"expect: {{gpus: {len(given.gpus)}}}").state == "ok"


def test_gpus_that_are_missing_from_the_bus_are_so_for_whoever_is_given_some(node: Any) -> None:
    give(node, 0)
    assert node.verdict("gpu_count", stated="expect: {gpus: 9}").reason == "8 of 9 GPUs (stated) are on the bus"


def test_a_gpu_that_the_driver_lost_is_missed_where_all_could_be_opened(node: Any) -> None:
    give(node, *range(8))
    node.gpus[3].hide()
    verdict = node.verdict("gpu_count")
    reason = "7 of 8 GPUs (stated); on the bus, but not in the driver's list: 0000:5d:00.0"
    assert (verdict.state, verdict.reason) == ("failed", reason)
