"""Faults of GPUs' memory: who has to hear, until when, and what is replaced."""

from __future__ import annotations

from pyrometer_simulator.situations.host import ONE_GPU
from pyrometer_simulator.situations.model import HOUR, MINUTE, Situation, at, within
from pyrometer_simulator.situations.steps import AWAY
from pyrometer_simulator.situations.steps_gpu import (
    OLDER_DRIVER,
    TWO_GPUS,
    contained_error,
    gpu,
    reset_after_error,
    xid,
)

SITUATIONS = [
    Situation(
        "a program meets a contained error (Xid 94), and the GPU is reset 20 minutes later",
        steps=(at(300, contained_error), at(1500, reset_after_error)),
        lasts=1.6 * HOUR,
        hardware=ONE_GPU,
        fires={
            "GpuEccUncorrected": within(60, series=1, ends_within=4400),
            "GpuRecoveryNeeded": within(120, series=1, ends_within=1260),
        },
    ),
    Situation(
        "a row waits to be remapped, on a driver before 570",
        steps=(at(300, contained_error),),
        lasts=19 * MINUTE,
        hardware=OLDER_DRIVER,
        fires={"GpuEccUncorrected": within(60, series=1), "GpuMemoryRepairPending": within(720, series=1)},
    ),
    Situation(
        "an uncorrected error while a node is away",
        steps=(
            at(300, lambda site: site.reboot(away=240)),
            at(539, gpu(0, "set", ecc_errors={"volatile/device_memory/uncorrected": 1})),
            at(541, xid(94, "Contained: SM (0x1). RST: No, D-RST: No")),
        ),
        lasts=12 * MINUTE,
        hardware=ONE_GPU,
        fires={"GpuEccUncorrected": within(330, series=1)},
        beside=AWAY,
    ),
    Situation(
        "a bank of a GPU's memory has no spare rows left",
        steps=(at(300, gpu(0, "set", spare_banks=[2559, 0, 0, 0, 1])),),
        lasts=14 * MINUTE,
        hardware=ONE_GPU,
        fires={"GpuSpareRowsGone": within(420, series=1)},
    ),
    Situation(
        "a row can't be remapped",
        steps=(at(300, gpu(0, "set", remapped={"failure": 1}, spare_banks=[2559, 0, 0, 0, 1])),),
        lasts=8 * MINUTE,
        hardware=ONE_GPU,
        fires={"GpuRowRemapFailed": within(60, series=1)},
    ),
    Situation(
        "the SRAM's uncorrected errors pass NVIDIA's threshold",
        steps=(at(300, gpu(0, "set", sram_exceeded=1)),),
        lasts=11 * MINUTE,
        hardware=ONE_GPU,
        fires={"GpuReplacementDue": within(240, series=1)},
    ),
    Situation(
        "a GPU has memory that no repair reaches",
        steps=(at(300, gpu(0, "set", unrepairable_memory=1)),),
        lasts=11 * MINUTE,
        hardware=ONE_GPU,
        fires={"GpuReplacementDue": within(240, series=1)},
    ),
    Situation(
        "a GPU comes back from a reboot without ECC",
        steps=(at(300, lambda site: site.reboot(away=100)), at(399, gpu(1, "set", ecc="off"))),
        lasts=16 * MINUTE,
        hardware=TWO_GPUS,
        fires={"GpuEccOff": within(540, series=1)},
        beside=AWAY,
    ),
]
