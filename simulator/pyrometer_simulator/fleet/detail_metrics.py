"""Further metrics of each GPU, which only a board of one GPU shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from pyrometer_simulator.fleet.node_metrics import gpu_uuid
from pyrometer_simulator.fleet.plan import DRIVER, MODEL, Plan
from pyrometer_simulator.fleet.series import Family, counter, event_counter, family, mask_of, nan_where

# GPUs that share an NVLink domain: nine nodes of eight.
_DOMAIN = 9


def detail_families(plan: Plan, targets: Sequence[str], dead: int) -> Iterator[Family]:
    """Yield memory clocks, margins, traffic and errors of every GPU that answers.

    Args:
        plan: the cluster.
        targets: the nodes' labels.
        dead: the node that is gone; -1 for none.
    """
    where = [(node, gpu) for node in range(plan.nodes) for gpu in range(plan.gpus)]
    nodes = np.array([node for node, _ in where])
    gone = (nodes == dead) | mask_of(where, plan.index(plan.faults.lost))
    hot, busy = mask_of(where, plan.index(plan.faults.hot)), nodes < plan.nodes - plan.idle
    here = nan_where(gone, 1.0)
    own = [f'{targets[node]},gpu="{gpu}",uuid="{gpu_uuid(node, gpu)}"' for node, gpu in where]
    dcgm = [
        f'{targets[node]},gpu="{gpu}",UUID="{gpu_uuid(node, gpu)}",device="nvidia{gpu}",modelName="{MODEL}",'
        f'DCGM_FI_DRIVER_VERSION="{DRIVER}"'
        for node, gpu in where
    ]
    steady = {
        "DCGM_FI_DEV_MEM_CLOCK": here * 2619,
        "DCGM_FI_DEV_FB_TOTAL": here * 81559,
        "DCGM_FI_DEV_GPU_TEMP_LIMIT": here * np.where(hot, -1.0, 27.0),
        "DCGM_FI_DEV_ROW_REMAP_FAILURE": here * 0,
        "DCGM_FI_PROF_SM_ACTIVE": here * np.where(busy, 0.86, 0.01),
        "DCGM_FI_PROF_DRAM_ACTIVE": here * np.where(busy, 0.44, 0.0),
    }
    for name, value in steady.items():
        yield family(name, dcgm, value, slow=True)
    yield family("pyrometer_gpu_nvlink_received_bytes_total", own, counter(here * busy * 9e10, 0), slow=True)
    yield family("pyrometer_gpu_pcie_transmitted_bytes_total", own, counter(here * busy * 4e9, 0), slow=True)
    replays = event_counter(here * hot * 0.2, plan.faults.since)
    yield family("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", dcgm, replays)
    yield family("pyrometer_gpu_nvlinks_up", own, here * 18, slow=True)
    yield family("pyrometer_gpu_recovery_action", own, here * 0, slow=True)
    link = [f'{each},link="4",error="replay"' for each in own]
    yield family("pyrometer_gpu_nvlink_link_errors_total", link, replays)
    domains = [
        f'{each},cluster_uuid="d0{node // _DOMAIN:06d}-0000-4000-8000-000000000000",clique="0"'
        for each, (node, _) in zip(own, where, strict=True)
    ]
    yield family("pyrometer_gpu_fabric_info", domains, here, slow=True)
    yield family("pyrometer_gpu_fabric_state", own, here * 3, slow=True)
