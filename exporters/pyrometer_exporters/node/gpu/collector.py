"""The GPU collector: NVML's view of every GPU of the node, each read by a worker of its own.

Sources: NVML through nvidia-ml-py (see ``nvml.py``), sysfs and procfs for which GPUs there should be.
A sample line: ``DCGM_FI_DEV_SM_CLOCK{gpu="0",UUID="GPU-4cf8db2d-...",pci_bus_id="00000000:18:00.0",...} 1980``.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import socket
import time
from collections.abc import Callable, Iterable
from typing import Final

from pyrometer_exporters.framework.collector import CollectorSpec, Context, FlagGroup
from pyrometer_exporters.framework.flags import UsageError, regexp
from pyrometer_exporters.framework.metrics import Down, Family, Sample
from pyrometer_exporters.framework.worker import Outcome, Parts
from pyrometer_exporters.node.gpu import families, inventory, subject
from pyrometer_exporters.node.gpu.device import Gpu, Shared
from pyrometer_exporters.node.gpu.driver import Driver
from pyrometer_exporters.node.gpu.nvml import Nvml, Pynvml
from pyrometer_exporters.node.gpu.sampler import DEFAULT_FREQUENCY, Sampler
from pyrometer_exporters.node.gpu.subject import SubjectSpec

# A healthy GPU answers all of this in milliseconds; one that needs longer than this is waiting for its firmware
# (Xid 119, 120), where calls take from many seconds to for ever. The rest of the node shouldn't wait along.
GPU_DEADLINE_SECONDS = 2.0


class GpuCollector:
    """All GPUs of a node."""

    def __init__(self, shared: Shared, context: Context) -> None:
        self._shared = shared
        self._bus = inventory.PciBus(context.sysfs)
        self._procfs = context.procfs
        self._parts: Parts[list[Sample]] = Parts("gpu")
        self._gpus: list[Gpu] = []
        self._seen = 0  # indexes below this were considered: opened or left out
        self._count = 0

    def collect(self, until: float) -> Iterable[Sample | Down]:
        """The driver's view and every GPU's, side by side; only until GPUs are known, the driver comes first."""
        on_bus = self._bus.gpus()
        outcomes = {}
        if not self._seen:
            outcomes = self._parts.run({Driver.PART: self._visit_driver}, until)
            self._consider(on_bus)
        jobs: dict[str, Callable[[], list[Sample]]] = {gpu.part: gpu.read for gpu in self._gpus}
        if not outcomes:
            jobs[Driver.PART] = self._visit_driver
        outcomes |= self._parts.run(jobs, min(until, time.monotonic() + GPU_DEADLINE_SECONDS))
        if on_bus is not None:
            yield families.PRESENT.sample(len(on_bus), "pci")
        yield from _told(Driver.PART, outcomes[Driver.PART])
        for gpu in self._gpus:
            if not gpu.excluded:
                yield from _about(gpu, outcomes[gpu.part])
        self._consider(on_bus)

    def close(self) -> None:
        """Stop sampling; workers end once their present call is done."""
        self._shared.sampler.close()
        self._parts.close()

    def _visit_driver(self) -> list[Sample]:
        self._count = self._shared.driver.visit()
        return [families.PRESENT.sample(self._count, "nvml")]

    def _consider(self, on_bus: list[str] | None) -> None:
        """Take up GPUs that the driver didn't present before."""
        if self._count > self._seen:
            for new in inventory.candidates(self._count, on_bus, self._procfs)[self._seen :]:
                if self._shared.selection.takes(new.index, new.pci_bus_id, new.uuid):
                    self._gpus.append(Gpu(new, self._shared))
            self._seen = self._count


def _told(part: str, outcome: Outcome[list[Sample]]) -> Iterable[Sample | Down]:
    if outcome.reason is None:
        yield from outcome.value or ()
    else:
        yield Down(part, outcome.reason, outcome.detail)


def _about(gpu: Gpu, outcome: Outcome[list[Sample]]) -> Iterable[Sample | Down]:
    yield families.UP.sample(1 if outcome.reason is None else 0, *gpu.identity.labels())
    if gpu.known:
        yield gpu.identity.info()
    yield from _told(gpu.part, outcome)


HOSTNAME_FLAG: Final = "gpu.hostname-label"
INCLUDE_FLAG: Final = "collector.gpu.device-include"
EXCLUDE_FLAG: Final = "collector.gpu.device-exclude"
FREQUENCY_FLAG: Final = "collector.gpu.sampler-frequency"


def add_flags(group: FlagGroup) -> None:
    """The collector's flags."""
    group.add_argument(
        f"--{HOSTNAME_FLAG}", dest=HOSTNAME_FLAG, choices=("Hostname", "hostname"), default="Hostname",
        help="the host's label on DCGM_FI_* series: dcgm-exporter wrote Hostname up to 4.8.2 (default: %(default)s)",
    )  # fmt: skip
    for flag, effect in ((INCLUDE_FLAG, "only these GPUs are opened"), (EXCLUDE_FLAG, "these GPUs are never opened")):
        group.add_argument(
            f"--{flag}", dest=flag, type=regexp, metavar="REGEXP",
            help=f"{effect}; matched with index, UUID and PCI address",
        )  # fmt: skip
    group.add_argument(
        f"--{FREQUENCY_FLAG}", dest=FREQUENCY_FLAG, type=_frequency, default=DEFAULT_FREQUENCY, metavar="HZ",
        help="how often to read why clocks are low, for what the driver doesn't count itself (default: %(default)s)",
    )  # fmt: skip


def _frequency(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    # Below 5 Hz the 200 ms pulses that this is for slip through; above 100 Hz the reads themselves become a load.
    if not 5 <= value <= 100:
        msg = f"{text!r} is not a frequency from 5 to 100 Hz"
        raise argparse.ArgumentTypeError(msg)
    return value


def build(context: Context, nvml: Nvml | None = None) -> GpuCollector:
    """The collector, over the real NVML unless told otherwise; doesn't touch the driver yet."""
    include, exclude = getattr(context.flags, INCLUDE_FLAG), getattr(context.flags, EXCLUDE_FLAG)
    if include is not None and exclude is not None:
        msg = f"--{INCLUDE_FLAG} and --{EXCLUDE_FLAG} exclude each other: give one of them"
        raise UsageError(msg)
    nvml = nvml or Pynvml()
    subjects = subject.discover()
    shared = Shared(
        nvml=nvml,
        driver=Driver(nvml, context.clock),
        sampler=Sampler(getattr(context.flags, FREQUENCY_FLAG), context.clock.monotonic),
        clock=context.clock,
        selection=inventory.Selection(include, exclude),
        # As dcgm-exporter does: in a container the host's own name comes from the environment.
        hostname=os.environ.get("NODE_NAME") or socket.gethostname(),
        subjects=subjects,
        dcgm=_served(getattr(context.flags, HOSTNAME_FLAG), (*families.FAMILIES, *_families_of(subjects))),
    )
    return GpuCollector(shared, context)


def _served(hostname_label: str, defined: Iterable[Family]) -> dict[Family, Family]:
    dcgm = [family for family in defined if families.HOSTNAME_LABEL in family.labels]
    if hostname_label == families.HOSTNAME_LABEL:
        return {family: family for family in dcgm}
    return {family: dataclasses.replace(family, labels=_renamed(family.labels, hostname_label)) for family in dcgm}


def _renamed(labels: Iterable[str], hostname_label: str) -> tuple[str, ...]:
    return tuple(hostname_label if name == families.HOSTNAME_LABEL else name for name in labels)


def _families_of(subjects: Iterable[SubjectSpec]) -> tuple[Family, ...]:
    return tuple(family for spec in subjects for family in spec.families)


COLLECTOR = CollectorSpec(
    name="gpu",
    help="GPUs through NVML",
    families=(*families.FAMILIES, *_families_of(subject.discover())),
    build=build,
    add_flags=add_flags,
)
