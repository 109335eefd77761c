"""Every check passes on a healthy node, and fails on the fault that it is for."""

from __future__ import annotations

import errno
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from pyrometer_exporters.node.checks.check import discover
from pyrometer_exporters.node.checks.subjects import storage
from pyrometer_simulator.host_files import SimulatedStatFs

CHECKS = {check.name: check for check in discover()}

# A Node of conftest.py.
Plant = Callable[[Any], object]


def lose_gpu_from_driver(node: Any) -> None:
    node.gpus[3].hide()


def exchange_gpus(node: Any) -> None:
    node.learn()
    path = node.state / "checks.json"
    kept = json.loads(path.read_text())
    parts = kept["learned"]["gpus"].values()
    for part, name in zip(parts, reversed([part["name"] for part in parts]), strict=True):
        part["name"] = name
    path.write_text(json.dumps(kept))


def state(node: Any, line: str) -> None:
    node.config.write_text(f"expect: {{{line}}}\n")


def hold_by_the_dead(node: Any) -> None:
    pid = node.files.run("python", state="Z")
    node.gpus[3].set(processes=[[pid, 1 << 30]])


def lose_memory(node: Any) -> None:
    node.learn()
    node.files.write("proc", "meminfo", f"MemTotal:       {2113929216 * 15 // 16} kB\nHugePages_Total:    1024")


def list_check(node: Any, name: str) -> None:
    node.config.write_text(f"checks: {{{name}: on}}\n")


def redirect(node: Any) -> None:
    list_check(node, "acs")
    node.write_acs(node.root_ports[0], 0x1D)


def translate(node: Any) -> None:
    list_check(node, "iommu")
    node.files.write("sys", "bus/pci/devices/0000:5d:00.0/iommu_group/type", "DMA-FQ")


def balance(node: Any) -> None:
    list_check(node, "numa_balancing")
    node.files.write("proc", "sys/kernel/numa_balancing", "1")


def lose_time(node: Any) -> None:
    node.learn()
    node.clock_state = 5


def mount_stale(node: Any) -> None:
    node.files.mount("/data", "nfs4")
    node.files.disks.errors["/data"] = errno.ESTALE


def mount_missing(node: Any) -> None:
    state(node, "mounts: [/data]")


def boot(node: Any) -> None:
    node.config.write_text("checks: {uptime: on}\n")
    node.files.write("proc", "uptime", "300.00 1.0")


def add_switch(node: Any) -> None:
    for name, text in (("vendor", "0x10de"), ("class", "0x068000")):
        node.files.write("sys", f"bus/pci/devices/0000:c1:00.0/{name}", text)


def write_firmware(node: Any, *versions: str) -> None:
    for nic, version in zip(node.tree.nics, versions, strict=False):
        (nic.folder / "fw_ver").write_text(f"{version}\n")
        (nic.folder / "board_id").write_text("MT_0000000838\n")


def unload_peermem(node: Any) -> None:
    (node.tree.sysfs / "module/nvidia_peermem").rename(node.tree.sysfs / "gone")
    closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  590.48.01  Tue Mar  5 22:23:56 UTC 2024"
    node.files.write("proc", "driver/nvidia/version", closed)


def two_cables_missing(node: Any) -> None:
    for name in ("mlx5_3", "mlx5_6"):
        node.tree.nic(name).train()


def end(node: Any, name: str, *, learned: bool = False) -> None:
    if learned:
        node.learn()
    node.files.end(node.files.pid_of(name))


def stick(node: Any) -> None:
    node.files.run("python", state="D", pid=4711)
    node.look(keep=True)
    node.now.seconds += 400


FAULTS: dict[str, tuple[Plant, str]] = {
    "gpu_driver": (lambda n: n.gpus.fail_init(9), "driver_not_loaded: nvmlInit returned 9"),
    "gpu_driver_version": (lambda n: n.gpus.reload_driver("550.54.15"), "expected 590.48.01"),
    "gpu_count": (lose_gpu_from_driver, "7 of 8 GPUs (stated); on the bus, but not in the driver's list: 0000:5d:00.0"),
    "gpu_answers": (lambda n: n.gpus[3].lose(), "GPU 3 does not answer: gpu_is_lost"),
    "gpu_order": (exchange_gpus, " is GPU 0, was GPU 7; "),
    "gpu_model": (
        lambda n: state(n, "gpu_model: NVIDIA H200"),
        "GPU 0 (0000:18:00.0) is a NVIDIA H100 80GB HBM3, not a NVIDIA H200",
    ),
    "gpu_vbios": (
        lambda n: state(n, "vbios: 96.00.99.00.01"),
        "GPU 0 (0000:18:00.0) has VBIOS 96.00.89.00.01, not 96.00.99.00.01",
    ),
    "gpu_zombies": (hold_by_the_dead, "GPU 3 (0000:5d:00.0) is held by python["),
    "imex": (lambda n: state(n, "imex: on"), "nvidia-imex is not running"),
    "memory_size": (lose_memory, "memory has 1890 of 2016 GiB (on its last healthy day)"),
    "network_mounts": (mount_stale, "/data: Stale file handle"),
    "time_synchronised": (lose_time, "the clock is not synchronised"),
    "zombies": (
        lambda n: [n.files.run("sh", state="Z") for _ in range(1000)],
        "1000 processes have exited but were not reaped",
    ),
    "uptime": (boot, "booted 300 s ago"),
    "gpu_recovery": (lambda n: n.gpus[3].set(recovery_action=1), "GPU 3 (0000:5d:00.0) needs a GPU reset"),
    "gpu_persistence": (lambda n: n.gpus[3].set(persistence=0), "GPU 3 (0000:5d:00.0) has persistence mode off"),
    "gpu_pcie": (lambda n: n.gpus[3].set(pcie={"width": 8}), "GPU 3 (0000:5d:00.0) has 8 of 16 PCIe lanes"),
    "gpu_ecc_mode": (lambda n: n.gpus[3].set(ecc="off"), "GPU 3 (0000:5d:00.0) has ECC off"),
    "gpu_ecc_uncorrected": (
        lambda n: n.gpus[3].set(ecc_errors={"volatile/device_memory/uncorrected": 2}),
        "GPU 3 (0000:5d:00.0) has 2 uncorrected ECC errors",
    ),
    "gpu_row_remap": (
        lambda n: n.gpus[3].set(remapped={"pending": 1}),
        "GPU 3 (0000:5d:00.0): rows are waiting for a reset to be remapped",
    ),
    "nvlinks": (lambda n: n.gpus[3].set(nvlinks_down=[4]), "GPU 3 (0000:5d:00.0) has 17 of 18 NVLinks up (down: 4)"),
    "gpu_fabric": (
        lambda n: n.gpus[3].set(fabric={"state": 2}),
        "GPU 3 (0000:5d:00.0): registration with the fabric is in progress",
    ),
    "fabric_manager": (add_switch, "1 NVSwitches, but nv-fabricmanager is not running"),
    "hca_count": (lambda n: n.tree.lose("mlx5_3"), "7 of 8 HCAs (stated): mlx5_0, mlx5_1, mlx5_2, mlx5_4"),
    "hca_links": (two_cables_missing, "6 of 8 links are up: mlx5_3/1 DOWN, Polling; mlx5_6/1 DOWN, Polling"),
    "hca_rate": (lambda n: n.tree.nic("mlx5_3").up(200), "mlx5_3/1 runs at 200 of 400 Gb/s"),
    "hca_firmware": (
        lambda n: write_firmware(n, "28.39.1002", "28.36.1010", *["28.39.1002"] * 6),
        "mlx5_1 has firmware 28.36.1010, not 28.39.1002",
    ),
    "gpudirect": (
        unload_peermem,
        "nvidia_peermem is not loaded, and the driver has no dma-buf",
    ),
    "hca_pcie": (
        lambda n: (n.tree.nic("mlx5_3").folder / "device/current_link_width").write_text("8\n"),
        "mlx5_3 has 8 of 16 PCIe lanes",
    ),
    "acs": (redirect, "0000:18:1f.0 redirects (ACS control 0x001d)"),
    "iommu": (
        translate,
        "0000:5d:00.0 is translated (DMA-FQ)",
    ),
    "cpu_governor": (
        lambda n: n.files.write("sys", "devices/system/cpu/cpu2/cpufreq/scaling_governor", "powersave"),
        "1 CPUs have governor powersave",
    ),
    "cpus": (lambda n: n.files.write("sys", "devices/system/cpu/online", "0-2"), "3 of 4 CPUs are online"),
    "numa_balancing": (
        balance, "automatic NUMA balancing is on",
    ),
    "huge_pages": (
        lambda n: n.files.write("proc", "meminfo", "MemTotal: 1 kB\nHugePages_Total:    1000"),
        "1000 of 1024 huge pages",
    ),
    "edac": (
        lambda n: n.files.write("sys", "devices/system/edac/mc/mc1/ue_count", "2"),
        "mc1 had 2 uncorrected memory errors",
    ),
    "clocksource": (
        lambda n: n.files.write("sys", "devices/system/clocksource/clocksource0/current_clocksource", "hpet"),
        "the clock source is hpet: each reading of the time is a system call",
    ),
    "filesystem_full": (
        lambda n: n.files.disks.sizes.update({"/": SimulatedStatFs(f_bavail=20_000)}), "/ is 98.0% full",
    ),
    "inodes": (
        lambda n: n.files.disks.sizes.update({"/": SimulatedStatFs(f_ffree=10_000)}), "99.0% of /'s inodes are used",
    ),
    "filesystem_read_only": (lambda n: n.files.mount("/scratch", "xfs", read_only=True), "/scratch (xfs) is read-only"),
    "shared_memory": (
        lambda n: n.files.disks.sizes.update({"/dev/shm": SimulatedStatFs(f_bavail=10_000)}),
        "/dev/shm is 99.0% full",
    ),
    "nvme": (lambda n: n.files.write("sys", "class/nvme/nvme1/state", "dead"), "nvme1 is dead"),
    "raid": (
        lambda n: n.files.write("proc", "mdstat", "md0 : active raid1 nvme0n1p2[0]\n      9375 blocks [2/1] [U_]"),
        "md0 has 1 of 2 disks",
    ),
    "stuck_processes": (stick, "python[4711] has been in state D for"),
    "container_runtime": (
        lambda n: end(n, "containerd", learned=True), "containerd is not running (it was on the last healthy day)",
    ),
    "node_agent": (lambda n: end(n, "slurmd", learned=True), "slurmd is not running (it was on the last healthy day)"),
    "services": (lambda n: end(n, "slurmd"), "slurmd is not running"),
    "kernel_errors": (
        lambda n: n.log.xid("0000:5d:00", 79, "GPU has fallen off the bus."), "Xid 79 of 0000:5d:00.0",
    ),
}  # fmt: skip


def test_there_is_a_fault_for_every_check() -> None:
    assert CHECKS.keys() == FAULTS.keys()


def test_a_healthy_node_passes(node: Any) -> None:
    add_switch(node)
    node.files.run("nv-fabricmanager")
    write_firmware(node, *["28.39.1002"] * 8)
    node.look(keep=True)
    found = {result.check.name: result.verdict for result in node.look().results}
    assert {name: verdict for name, verdict in found.items() if verdict.state in ("failed", "unknown")} == {}
    not_stated = {"acs", "iommu", "numa_balancing"}
    assert {name for name, verdict in found.items() if verdict.state == "absent"} == {
        "imex",
        "network_mounts",
        *not_stated,
    }


def test_a_clock_that_cannot_be_asked_is_not_known(node: Any) -> None:
    node.clock_state = None
    assert node.verdict("time_synchronised").state == "unknown"


@pytest.mark.parametrize("check", FAULTS)
def test_a_fault_fails_its_check_and_says_what_it_is(node: Any, check: str) -> None:
    before = [result.verdict for result in node.look(check).results]
    assert [verdict for verdict in before if verdict.state == "failed"] == []
    plant, reason = FAULTS[check]
    plant(node)
    verdict = node.verdict(check)
    assert verdict.state == "failed", verdict
    assert reason in verdict.reason


@pytest.mark.parametrize("hours", [5, -5])
def test_a_clock_that_is_set_makes_no_process_wait_longer(node: Any, hours: int) -> None:
    node.files.run("python", state="D", pid=4711)
    node.look(keep=True)
    node.now.ahead = 3600.0 * hours
    assert [result.verdict.state for result in node.look("stuck_processes").results] == ["ok"]


def test_mounts_that_hang_are_named_and_few_threads_wait_for_them(node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "PATIENCE_SECONDS", 0.3)
    points = [f"/data{number}" for number in range(40)]
    for point in points:
        node.files.mount(point, "nfs4")
    node.files.disks.hanging.update(points[:20])
    before = threading.active_count()
    verdict = node.verdict("network_mounts")
    assert threading.active_count() - before == storage.MOST_THREADS
    assert verdict.reason.startswith("/data0 hangs: no answer in 3 s; /data1 hangs")
    assert verdict.reason.endswith("and 4 more")


def test_a_local_file_system_that_hangs_is_named(node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "PATIENCE_SECONDS", 0.3)
    node.files.disks.hanging.add("/")
    assert node.verdict("filesystem_full").reason == "/ hangs: no answer in 3 s"
