"""The faults of a month: of ports, GPUs, hosts and runs, each with the alert that has to report it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

from pyrometer_simulator.situations import steps as nic
from pyrometer_simulator.situations.exported_node import Hardware
from pyrometer_simulator.situations.host import GPUS, NICS, TRAINING
from pyrometer_simulator.situations.model import Action
from pyrometer_simulator.situations.steps_gpu import UNKNOWN_ERROR, gpu, xid
from pyrometer_simulator.situations.steps_host import (
    BESIDE_NODE_EXPORTER,
    NVME_TIMEOUT,
    OUT_OF_MEMORY,
    UNCORRECTED_MEMORY,
    UNCORRECTED_PCIE,
    disk,
    kernel_says,
)

# Ten minutes before the first scrape: a run's usual step is known after ten.
RUN_BEGINS = -600.0


class Fault(NamedTuple):
    """One kind of fault.

    Attributes:
        alert: that has to report it, once.
        within: how many seconds after it at the latest, besides a scrape interval.
        step: what happens, of a chance.
        beside: other critical alerts that are right as well.
    """

    alert: str
    within: float
    step: Callable[[random.Random], Action]
    beside: frozenset[str] = frozenset()


class Kind(NamedTuple):
    """Faults that happen on nodes of the same hardware, on how many nodes each, and within how many seconds."""

    name: str
    hardware: Hardware
    faults: tuple[Fault, ...]
    nodes_each: int = 1
    together: float = 120.0


def _port(chance: random.Random) -> int:
    return chance.randrange(8)


def _gpu(chance: random.Random) -> int:
    return chance.randrange(4)


NIC_FAULTS = (
    Fault("NicLinkDown", 330, lambda chance: nic.port(_port(chance), "down")),
    Fault("NicLinkFlapping", 400, lambda chance: nic.flaps(_port(chance), every=chance.uniform(40, 150), times=4)),
    Fault("NicLost", 220, lambda chance: nic.cards((_port(chance),), "lose")),
    Fault("FabricMassEvent", 70, lambda _: nic.ports(nic.ALL_PORTS, "down")),
    Fault("NicSymbolErrors", 200, lambda chance: nic.counting(_port(chance), "symbol_error", 3, every=20, times=40)),
    Fault(
        "NicAckTimeouts",
        300,
        lambda chance: nic.counting(_port(chance), "local_ack_timeout_err", 60, every=10, times=60),
    ),
    Fault(
        "NicReceiveErrors",
        300,
        lambda chance: nic.counting(_port(chance), "port_rcv_errors", 500, every=10, times=60),
    ),
    Fault(
        "NicLinkRecoveries",
        240,
        lambda chance: nic.counting(_port(chance), "link_error_recovery", 1, every=8, times=60),
    ),
)

GPU_FAULTS = (
    Fault("GpuLost", 200, lambda chance: gpu(_gpu(chance), "fail", UNKNOWN_ERROR)),
    Fault("GpuXidCritical", 60, lambda chance: xid(95, "Uncontained: LTC TAG (0x2,0x0).", _gpu(chance))),
    Fault("GpuXidCritical", 60, lambda chance: xid(119, "Timeout waiting for RPC from GSP!", _gpu(chance))),
    Fault("NvlinkDown", 120, lambda chance: gpu(_gpu(chance), "set", nvlinks_down=[chance.randrange(18)])),
    Fault("GpuThrottledThermal", 90, lambda chance: gpu(_gpu(chance), "pulse", "hw_thermal", seconds=5)),
    Fault("GpuThermalMarginGone", 180, lambda chance: gpu(_gpu(chance), "load", temperature=89)),
    Fault("GpuReplacementDue", 240, lambda chance: gpu(_gpu(chance), "set", sram_exceeded=1)),
    Fault("GpuSpareRowsGone", 420, lambda chance: gpu(_gpu(chance), "set", spare_banks=[2559, 0, 0, 0, 1])),
    Fault("GpuRowRemapFailed", 60, lambda chance: gpu(_gpu(chance), "set", remapped={"failure": 1})),
    Fault("GpuClockOutlier", 780, lambda chance: gpu(_gpu(chance), "load", sm_clock=chance.randrange(1300, 1600))),
    Fault("GpuLimitLowered", 700, lambda chance: gpu(_gpu(chance), "limit_power", 500)),
)

HOST_FAULTS = (
    Fault("HostOutOfMemory", 60, lambda _: kernel_says(OUT_OF_MEMORY)),
    Fault("HostMachineCheck", 60, lambda _: kernel_says(UNCORRECTED_MEMORY)),
    Fault("HostPcieErrors", 60, lambda _: kernel_says(UNCORRECTED_PCIE)),
    Fault("HostDiskErrors", 60, lambda _: kernel_says(NVME_TIMEOUT)),
    Fault("HostDiskFull", 760, lambda _: disk(free=0.08)),
    Fault("NodeExporterDown", 120, lambda _: lambda site: site.node.shut_down()),
)


def _rank(chance: random.Random) -> int:
    return chance.randrange(16)


def _killed(chance: random.Random) -> Action:
    """Return a rank that an exception ends, and the launcher the rest."""
    rank, rest = _rank(chance), chance.uniform(3, 30)
    return lambda site: site.run.kill(rank, "RuntimeError", rest_after=rest)


def _hangs(chance: random.Random) -> Action:
    rank = _rank(chance)
    return lambda site: site.run.hang(rank)


def _lost(chance: random.Random) -> Action:
    rank = _rank(chance)
    return lambda site: site.run.kill(rank)


def begins(name: str, first: int) -> Action:
    """Return a step that begins a run on two nodes."""
    return lambda site: site.train(site.nodes[first : first + 2], name=name)


def _diverges(_: random.Random) -> Action:
    return lambda site: site.run.diverge()


RUN_FAULTS = (
    Fault("TrainRunDied", 150, _killed),
    Fault("TrainStalled", 330, _hangs),
    Fault("TrainStalled", 330, _lost),
    Fault("TrainLossNotFinite", 180, _diverges),
)

KINDS = (
    # Among 16 nodes four ports of a rail within two minutes are a mass event; among 511 it takes six.
    (Kind("ports and cards", NICS, NIC_FAULTS, together=900.0), 0.4),
    (Kind("GPUs", GPUS, GPU_FAULTS), 0.3),
    (Kind("hosts", BESIDE_NODE_EXPORTER, HOST_FAULTS), 0.15),
    (Kind("runs", TRAINING, RUN_FAULTS, nodes_each=2), 0.15),
)
