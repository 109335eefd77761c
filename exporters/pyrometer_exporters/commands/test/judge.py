"""Compare what a test measured: with the model's figures, the port's rate, and the node's own other parts."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyrometer_exporters.commands.test import pairs
from pyrometer_exporters.commands.test.reading import NotMeasuredError, Problem, Reading, joined
from pyrometer_exporters.node.active.kept import Result
from pyrometer_exporters.node.nic.parse import rate
from pyrometer_exporters.node.nic.pcie import lanes, transfers
from pyrometer_exporters.node.nic.sysfs import small_text


@dataclass(frozen=True)
class Figure:
    """The least value of a result on a whole node.

    Attributes:
        gpus: on a node of so many GPUs; another number measures something else.
        test: label of the result.
        least: below it something is broken.
        sharp: the same where the NVLink switches do the sums (NVLS); NCCL may have it off on a healthy node. 0: alike.
    """

    gpus: int
    test: str
    least: float
    sharp: float = 0.0


_READ: Final = "nvbandwidth_device_to_device_memcpy_read_ce"
# On a healthy node 330 GB/s without NVLS and 430 with it (NCCL 2.19.3, https://github.com/NVIDIA/nccl/issues/1221), the
# lowest that anybody reports; 370 and 470 with later ones (nccl-tests issue 212, recorded/nccl-h100.txt). 10 % below.
# H200 has the same NVLink 4 and NVSwitch. Between GPUs: crusoecloud/autoclusters-controller-helm-charts, README, by SKU
# (335 in Azure/azurehpc-health-checks, conf/nd96isr_h100_v5.conf).
_HOPPER: Final = (Figure(8, "nccl_all_reduce", 297.0, 387.0), Figure(8, _READ, 316.0))
# 230 to 250 GB/s (docs.alayanew.com, tech blog, "NCCL-tests in practice"); 10 % below. A100 has no NVLS.
_AMPERE: Final = (Figure(8, "nccl_all_reduce", 207.0), Figure(8, _READ, 220.0))
FIGURES: Final[Mapping[str, tuple[Figure, ...]]] = {
    "NVIDIA H100 80GB HBM3": _HOPPER,
    "NVIDIA H200": _HOPPER,
    "NVIDIA A100-SXM4-80GB": _AMPERE,
    "NVIDIA A100-SXM4-40GB": _AMPERE,
    # 695 GB/s without NVLS and 845 with it (https://github.com/NVIDIA/nccl/issues/2140); 10 % below.
    "NVIDIA B300 SXM6 AC": (Figure(8, "nccl_all_reduce", 625.0, 760.0),),
    # The same NVLink 5 and NVSwitch; 20 % below, as nobody has published it.
    "NVIDIA B200": (Figure(8, "nccl_all_reduce", 556.0, 676.0),),
    # A compute tray: Azure/azurehpc-health-checks, conf/nd128isr_ndr_gb200_v6.conf, check_nccl_allreduce.
    "NVIDIA GB200": (Figure(4, "nccl_all_reduce", 432.0),),
}
"""By the GPU's model, as nvidia-smi prints it."""

ALIKE: Final = 0.1
"""Parts within so much of their median agree; the same as gpu-fryer's --tflops-tolerance."""
MAJORITY: Final = 0.75
"""So many of the parts must agree before another one is called slow: then the node's layout is not the reason."""
FEWEST: Final = 4
SLOW: Final = 0.8
"""A part below this share of the median is slow: 316 of 395 GB/s is the least between two H100 (see FIGURES)."""

PORT_SHARE: Final = 0.8
"""Of a port's rate. Azure/azurehpc-health-checks wants 0.9 to 0.95 of a pinned test; this one is not pinned."""
PCIE_SHARE: Final = 0.7
"""Of the raw rate of the HCA's PCIe link: a port of 400 Gb/s in a slot of generation 4 can't do more."""


def problems(reading: Reading, *, models: Sequence[str], gpus: int, nvls: bool | None, limits: Mapping[str, float],
             sysfs: Path) -> list[Problem]:  # fmt: skip
    """Return what is slow.

    ``limits`` by result are the user's, ``models`` the names of the GPUs; ``nvls`` is None where it is not known.

    Raises:
        NotMeasuredError: A value is too low with NVLS and not without it, and it is not known which it was.
    """
    model = models[0] if len(set(models)) == 1 else ""  # GPUs of several models are compared with nothing
    figures = {each.test: each for each in FIGURES.get(model, ()) if each.gpus == gpus}
    found: list[Problem] = []
    for result in reading.results:
        least = limits.get(result.test, _least(result.test, figures, gpus, sysfs, nvls=nvls))
        parts = reading.parts.get(result.test, {})
        if least is not None and result.value < least:
            slow = [part for part, value in parts.items() if value < least]
            found.append(Problem(_below(result, least, slow), joined(slow)))
        else:
            found += _slower_than_others(result, parts) if model else []
            found += _below_port(result, parts, sysfs) if result.test not in limits else []
        figure = figures.get(result.test)
        if not found and nvls is None and figure and result.test not in limits and result.value < figure.sharp:
            raise NotMeasuredError(
                f"{result.test} is {result.value:.4g} {result.unit}: enough without NVLS ({figure.least:.4g}), too low "
                f"with it ({figure.sharp:.4g}), and NCCL did not say which; state it: --limit {result.test}=NUMBER"
            )
    return found


def _least(test: str, figures: Mapping[str, Figure], gpus: int, sysfs: Path, *, nvls: bool | None) -> float | None:
    figure = figures.get(test)
    if figure is not None:
        return figure.sharp if nvls and figure.sharp else figure.least
    return pairs.least(gpus, sysfs / "class/infiniband").get(test)


def _below(result: Result, least: float, slow: list[str]) -> str:
    place = f" ({joined(slow)})" if slow else ""
    return f"{result.test} is {result.value:.4g} {result.unit}{place}, at least {least:.4g} are expected"


def _slower_than_others(result: Result, parts: Mapping[str, float]) -> list[Problem]:
    """Return the parts that are slower than the others, where most of them agree."""
    if len(parts) < FEWEST:
        return []
    typical = statistics.median(parts.values())
    agreeing = sum(abs(value - typical) <= ALIKE * typical for value in parts.values())
    slow = [part for part, value in parts.items() if 0 < value < SLOW * typical]
    if not slow or agreeing < MAJORITY * len(parts):
        return []
    names = _common(slow) or slow
    value = min(parts[part] for part in slow)
    words = f"{result.test} of {joined(names)} is {value:.4g} {result.unit}, of most others {typical:.4g}"
    return [Problem(words, joined(names))]


def _common(slow: list[str]) -> list[str]:
    """Return the one GPU that is in all of several slow pairs."""
    sets = [set(part.split(" and ")) for part in slow]
    return sorted(set.intersection(*sets)) if len(sets) > 1 else []


def _below_port(result: Result, parts: Mapping[str, float], sysfs: Path) -> list[Problem]:
    if not result.test.startswith("ib_"):
        return []
    found = []
    for device, value in parts.items():
        ports = list((sysfs / "class/infiniband" / device / "ports").glob("*"))
        used = [port for port in ports if "ACTIVE" in small_text(f"{port}/state")]
        # perftest does not say which port it used.
        bits = min(filter(None, map(_rate, used or ports)), default=None)
        pcie = _pcie(sysfs / "class/infiniband" / device / "device")
        if bits is None:
            continue
        least = min(PORT_SHARE * bits, PCIE_SHARE * pcie) if pcie else PORT_SHARE * bits
        if value * 1e9 < least:
            words = f"{result.test} is {value:.4g} {result.unit} on {device}, whose rate is {bits / 1e9:.0f} Gb/s"
            found.append(Problem(f"{words}: at least {least / 1e9:.4g} are expected", device))
    return found


def _rate(port: Path) -> float | None:
    text = small_text(f"{port}/rate")
    bits = rate(text)
    # Up to QDR ten bits on the wire carry eight.
    return bits * (0.8 if bits and re.search(r"[SDQ]DR\)", text) else 1.0) if bits else None


def _pcie(device: Path) -> float | None:
    """Return the raw rate of the PCIe link in bits per second; None where it is not known."""
    speed = transfers(small_text(f"{device}/current_link_speed"))
    width = lanes(small_text(f"{device}/current_link_width"))
    return speed * width if speed and width else None
