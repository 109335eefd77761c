"""Find the functions with which a fabric manager reaches the NVSwitches: no HCAs, and nobody misses their link.

On HGX B200 and B300 there are four. Their vital product data says ``SMDL=SW_MNG``, which only root may read (NVIDIA's
Fabric Manager User Guide; siderolabs/extensions issue 893 has their GUIDs). Without it they are known by their place,
an assumption: four of one card, or four side by side, away from the GPUs, while their likes sit apart. AWS's p6-b200
has two, without vital product data, and no InfiniBand of its own beside its EFA (aws/sagemaker-hyperpod-cli pull
request 282, NVIDIA/gpu-driver-container issue 606). While the fabric manager restarts, their ports wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Final, NamedTuple

INFINIBAND: Final = "InfiniBand"
CONNECTX_7: Final = "0x1021"
LIMITED_FUNCTIONS: Final = 4
AMAZON: Final = "0x1d0f"
_SWITCH_MANAGEMENT: Final = b"SW_MNG"


class RdmaFunction(NamedTuple):
    """An RDMA device: its name, PCI address, link layer, PCI ids as ``0x1021``, and whether a GPU is beside it."""

    device: str
    address: str
    layer: str
    chip: str
    vendor: str
    by_gpu: bool


def fabric_functions(
    functions: Iterable[RdmaFunction], vital_data: Callable[[str], bytes] = lambda _device: b""
) -> set[str]:
    """Return the names of those devices that are the fabric manager's.

    Args:
        functions: all RDMA devices of the node.
        vital_data: returns a device's vital product data; empty where they can't be read.
    """
    rdma = sorted(functions, key=lambda function: function.address)
    infiniband = [function for function in rdma if function.layer == INFINIBAND]
    if any(function.vendor == AMAZON for function in rdma):
        return {function.device for function in infiniband}
    devices = [function for function in infiniband if function.chip == CONNECTX_7 and not function.by_gpu]
    said = {function.device for function in devices if _SWITCH_MANAGEMENT in vital_data(function.device)}
    if said:
        return said
    runs: list[list[RdmaFunction]] = []
    for function in devices:
        if runs and _next_to(runs[-1][-1].address, function.address):
            runs[-1].append(function)
        else:
            runs.append([function])
    for run in runs:  # no card with InfiniBand has four ports
        if len(run) == LIMITED_FUNCTIONS and len({function.address.rpartition(".")[0] for function in run}) == 1:
            return {function.device for function in run}
    together = [run for run in runs if len(run) > 1]
    if len(together) != 1 or len(together[0]) != LIMITED_FUNCTIONS:
        return set()
    names = {function.device for function in together[0]}
    apart = [function for function in infiniband if function.device not in names]
    beside = any(_next_to(a.address, b.address) for a, b in pairwise(apart))
    return names if len(apart) >= LIMITED_FUNCTIONS and not beside else set()


def _next_to(first: str, second: str) -> bool:
    """Return whether two functions are of one card, or on neighbouring buses."""
    if not first or not second:
        return False
    (domain, bus), (other, next_bus) = (address.split(":")[:2] for address in (first, second))
    return domain == other and int(next_bus, 16) - int(bus, 16) in (0, 1)
