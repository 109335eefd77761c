"""The faults of the demo, as steps with pauses between them: its scenario plants them, and so do its users."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

from pyrometer_simulator.demo import scenario
from pyrometer_simulator.demo.cluster import Cluster
from pyrometer_simulator.demo.hardware import Node
from pyrometer_simulator.demo.orders import Orders
from pyrometer_simulator.demo.topology import TRAINER
from pyrometer_simulator.nvml.gpus import SimulatedGpu

# Each pause is yielded, in seconds.
Steps: TypeAlias = Iterator[float]


def heat(gpu: SimulatedGpu, seconds: float = scenario.HEAT_SECONDS) -> Steps:
    """Let a GPU trip its thermal limit, and cool down again."""
    gpu.throttle("hw_thermal", sm_clock=scenario.HOT_CLOCK_MHZ, temperature=scenario.HOT_CELSIUS)
    yield seconds
    gpu.recover()


def slow(gpu: SimulatedGpu, seconds: float) -> Steps:
    """Let a GPU run at a lower clock than its peers, for no reason that its driver gives."""
    gpu.throttle(sm_clock=scenario.SLOW_CLOCK_MHZ)
    yield seconds
    gpu.recover()


def flap(node: Node, name: str, device: str, cluster: Cluster | None) -> Steps:
    """Let a link lose its carrier three times, a second each; the fabric manager writes it down."""
    nic = node.tree.nic(device)
    for number in range(scenario.FLAPS):
        nic.down()
        yield scenario.FLAP_SECONDS
        nic.up()
        if cluster is not None:
            cluster.flapped(name, device)
        if number < scenario.FLAPS - 1:
            yield scenario.FLAP_EVERY_SECONDS - scenario.FLAP_SECONDS


def kill(folder: Path, name: str, gpu: int) -> Steps:
    """Let the rank on a GPU crash; the job's other ranks end with it, and the job starts again."""
    Orders(folder, TRAINER).give(f"{name} {gpu}")
    yield 0.0
