"""Situations in which GPUs and their driver do what somebody wants, or what costs nothing: nobody is to be woken."""

from __future__ import annotations

from dataclasses import replace

from pyrometer_simulator.situations.host import GPUS, ONE_GPU
from pyrometer_simulator.situations.model import MINUTE, Situation, at
from pyrometer_simulator.situations.steps import AWAY, LISTED, slurm
from pyrometer_simulator.situations.steps_gpu import (
    MIG_SLICE,
    SAMPLED,
    TWO_GPUS,
    UNKNOWN_ERROR,
    all_gpus,
    gpu,
    gpus,
    take_gpus_out,
    upgrade_driver,
    upgrade_packages,
    xid,
)

SITUATIONS = [
    Situation(
        "the NVIDIA driver is reloaded, and the NVLinks come up a minute and a half later",
        steps=(at(300, lambda site: site.reload_nvidia()),),
        lasts=20 * MINUTE,
        hardware=GPUS,
    ),
    Situation(
        "the NVIDIA driver of a drained node is upgraded",
        steps=(at(240, slurm("drained")), at(300, upgrade_driver)),
        lasts=20 * MINUTE,
        hardware=GPUS,
        beside=LISTED,
    ),
    Situation(
        "the NVIDIA driver's packages are upgraded, and the node is rebooted eight minutes later",
        steps=(at(300, upgrade_packages), at(780, lambda site: site.reboot(away=150))),
        lasts=30 * MINUTE,
        hardware=ONE_GPU,
        beside=AWAY,
    ),
    Situation(
        "planned reboot of a node, its NVLinks come up three minutes after it",
        steps=(
            at(300, lambda site: site.reboot(away=150)),
            at(451, gpus("set", nvlinks_down=list(range(18)))),
            at(640, lambda site: site.node.train_nvlinks()),
        ),
        lasts=20 * MINUTE,
        hardware=GPUS,
        beside=AWAY,
    ),
    Situation(
        "heat slows a GPU down for 0.8 s",
        steps=(at(302, gpu(0, "pulse", "hw_thermal", seconds=0.8)),),
        lasts=12 * MINUTE,
        hardware=SAMPLED,
    ),
    Situation(
        "a GPU at the edge of its limit is slowed down for 20 ms every ten seconds",
        steps=(at(300, gpu(0, "pulse", "sw_thermal", seconds=0.02, every=10)),),
        lasts=12 * MINUTE,
        hardware=ONE_GPU,
    ),
    Situation(
        "one everyday call to a GPU returns 999, for good",
        steps=(at(300, gpu(0, "set", errors={"nvmlDeviceGetPowerUsage": UNKNOWN_ERROR})),),
        lasts=12 * MINUTE,
        hardware=ONE_GPU,
    ),
    Situation(
        "a GPU does not answer for 50 s",
        steps=(at(300, gpu(0, "fail", UNKNOWN_ERROR)), at(350, gpu(0, "recover"))),
        lasts=20 * MINUTE,
        hardware=ONE_GPU,
    ),
    Situation(
        "the exporter's user may not read the kernel's log",
        steps=(),
        lasts=12 * MINUTE,
        hardware=replace(ONE_GPU, reads_kernel_log=False),
    ),
    Situation(
        "GPUs rest between two jobs: clocks and PCIe's generation fall",
        steps=(at(300, gpus("idle")), at(900, gpus("load"))),
        lasts=20 * MINUTE,
        hardware=GPUS,
    ),
    Situation(
        "all GPUs run at their power cap",
        steps=(at(300, gpus("throttle", "power_cap", sm_clock=1700, power_watts=700)),),
        lasts=20 * MINUTE,
        hardware=GPUS,
    ),
    Situation(
        "a test lowers the clocks and the power limit of a GPU for eight minutes",
        steps=(
            at(300, gpu(0, "limit_power", 500)),
            at(300, gpu(0, "throttle", "clocks_setting", sm_clock=1950)),
            at(780, gpu(0, "limit_power", 700)),
            at(780, gpu(0, "recover")),
        ),
        lasts=30 * MINUTE,
        hardware=SAMPLED,
    ),
    Situation(
        "the power limit of all GPUs of the cluster is lowered",
        steps=(at(300, all_gpus("limit_power", 500)),),
        lasts=20 * MINUTE,
        nodes=2,
        hardware=TWO_GPUS,
    ),
    Situation(
        "a GPU corrects errors of its memory",
        steps=(at(300, gpu(0, "set", ecc_errors={"volatile/device_memory/corrected": 40})),),
        lasts=12 * MINUTE,
        hardware=ONE_GPU,
    ),
    Situation(
        "a program ends with an illegal access (Xid 31), another is killed (Xid 43)",
        steps=(
            at(300, xid(31, "Ch 00000008, MMU Fault: ENGINE GRAPHICS")),
            at(400, xid(43, "Reset Channel Verif Error")),
        ),
        lasts=12 * MINUTE,
        hardware=ONE_GPU,
    ),
    Situation(
        "GPUs are put into MIG mode, which trains their NVLinks off",
        steps=(at(300, gpus("set", mig=[MIG_SLICE], nvlinks_down=list(range(18)))),),
        lasts=20 * MINUTE,
        hardware=GPUS,
    ),
    Situation(
        "a GPU of a node with a maintenance file is reset, and the others are taken out",
        steps=(
            at(240, lambda site: site.node.put_in_maintenance()),
            at(300, gpu(0, "require_reset")),
            at(500, gpu(0, "recover")),
            at(600, take_gpus_out),
            at(700, lambda site: site.reboot(away=300)),
        ),
        lasts=30 * MINUTE,
        hardware=GPUS,
        beside=AWAY | LISTED,
        fault_at=300,
    ),
]
