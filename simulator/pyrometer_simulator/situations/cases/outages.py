"""Situations in which Prometheus is away for ten minutes, and nobody scrapes: no fault of that time is forgotten.

promtool evaluates rules throughout, where a Prometheus that is away does not: rules meet the same gap and a harder one.
"""

from __future__ import annotations

from pyrometer_simulator.situations.cases.gpu_faults import UNCONTAINED
from pyrometer_simulator.situations.host import GPUS, HOST, TRAINING
from pyrometer_simulator.situations.model import MINUTE, Situation, at, within
from pyrometer_simulator.situations.site import Site
from pyrometer_simulator.situations.steps import flaps, port
from pyrometer_simulator.situations.steps_gpu import gpu, xid
from pyrometer_simulator.situations.steps_host import OUT_OF_MEMORY, kernel_says

# The window of most counters' alerts is five minutes.
LASTS = 10 * MINUTE
LEAVES, IN_THE_GAP = 300, 500
BACK_AFTER = LEAVES + LASTS - IN_THE_GAP


def _prometheus_leaves(site: Site) -> None:
    site.leave_unscraped(LASTS)


AWAY = at(LEAVES, _prometheus_leaves)

SITUATIONS = [
    Situation(
        "Prometheus is away for ten minutes, and links, cards and the node are well",
        steps=(AWAY,),
        lasts=25 * MINUTE,
    ),
    Situation(
        "Prometheus is away for ten minutes, and a run trains",
        steps=(at(1, lambda site: site.train()), AWAY),
        lasts=25 * MINUTE,
        hardware=TRAINING,
        nodes=2,
    ),
    Situation(
        "Prometheus is away for ten minutes, and a node is rebooted meanwhile",
        steps=(AWAY, at(IN_THE_GAP, lambda site: site.reboot(away=100, training=60))),
        lasts=30 * MINUTE,
    ),
    Situation(
        "a critical error while Prometheus is away",
        steps=(AWAY, at(IN_THE_GAP, xid(95, UNCONTAINED))),
        lasts=25 * MINUTE,
        hardware=GPUS,
        fires={"GpuXidCritical": within(BACK_AFTER + 60, series=1)},
        fault_at=IN_THE_GAP,
    ),
    Situation(
        "a GPU falls off the bus while Prometheus is away",
        steps=(AWAY, at(IN_THE_GAP, gpu(2, "lose"))),
        lasts=25 * MINUTE,
        hardware=GPUS,
        fires={"GpuLost": within(BACK_AFTER + 180, series=1)},
        fault_at=IN_THE_GAP,
    ),
    Situation(
        "a link flaps five times while Prometheus is away",
        steps=(AWAY, at(IN_THE_GAP, flaps(0, every=40, times=5))),
        lasts=25 * MINUTE,
        # The link is up again when Prometheus is back: something to look at today, not to wake somebody for.
        fires={"NicLinkFlappingChronic": within(BACK_AFTER + 180, series=1)},
        fault_at=IN_THE_GAP,
    ),
    Situation(
        "a cable is pulled while Prometheus is away",
        steps=(AWAY, at(IN_THE_GAP, port(0, "down"))),
        lasts=30 * MINUTE,
        fires={"NicLinkDown": within(BACK_AFTER + 300, series=1)},
        fault_at=IN_THE_GAP,
    ),
    Situation(
        "the kernel kills a process for lack of memory while Prometheus is away",
        steps=(AWAY, at(IN_THE_GAP, kernel_says(OUT_OF_MEMORY))),
        lasts=25 * MINUTE,
        hardware=HOST,
        fires={"HostOutOfMemory": within(BACK_AFTER + 60, series=1)},
        fault_at=IN_THE_GAP,
    ),
]
