"""The GPU collector: NVML's view of every GPU of the node, one after the other, and none behind one that hangs.

Sources: NVML through nvidia-ml-py (see ``nvml.py``), sysfs and procfs for which GPUs there should be.
A sample line: ``DCGM_FI_DEV_SM_CLOCK{gpu="0",UUID="GPU-4cf8db2d-...",pci_bus_id="00000000:18:00.0",...} 1980``.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from pyrometer_exporters.framework.collector import CollectorSpec, Context, FlagGroup
from pyrometer_exporters.framework.metrics import Down, Family, Sample
from pyrometer_exporters.framework.outcome import LATE, Outcome
from pyrometer_exporters.framework.scheduling import Member, SharedWorker, Task
from pyrometer_exporters.node.gpu import families, inventory, release, subject, versions
from pyrometer_exporters.node.gpu.arrivals import Arrivals
from pyrometer_exporters.node.gpu.binding import Pynvml
from pyrometer_exporters.node.gpu.device import PATIENCE_SECONDS, Gpu, Shared
from pyrometer_exporters.node.gpu.driver import RELEASED, RELEASING, Driver
from pyrometer_exporters.node.gpu.jobs import Jobs
from pyrometer_exporters.node.gpu.nvml import Nvml
from pyrometer_exporters.node.gpu.patience import LONGEST_SECONDS, SHORTEST_SECONDS
from pyrometer_exporters.node.gpu.release import ReleaseWatch
from pyrometer_exporters.node.gpu.roster import Roster
from pyrometer_exporters.node.gpu.sampler import DEFAULT_FREQUENCY, Sampler
from pyrometer_exporters.node.gpu.subject import SubjectSpec
from pyrometer_exporters.node.gpu.versions import Versions
from pyrometer_exporters.node.gpu.xid import families as xid_families
from pyrometer_exporters.node.gpu.xid.catalogue import Classes, load_overrides
from pyrometer_exporters.node.gpu.xid.watch import Served, XidWatch
from pyrometer_kit.errors import UsageError
from pyrometer_kit.flags import number_between, regexp

Found = list[Sample | Down]
Outcomes = dict[Gpu, Outcome[Found]]


class GpuCollector:
    """All GPUs of a node."""

    def __init__(self, shared: Shared, context: Context) -> None:
        self._shared = shared
        self._bus = inventory.PciBus(context.sysfs)
        self._roster = Roster(shared, context.procfs)
        self._arrivals = Arrivals(self._roster, context.clock.monotonic)
        self._versions = Versions(shared.driver, context.procfs)
        self._release = ReleaseWatch(shared.driver, context.state, getattr(context.flags, RELEASE_FLAG))
        self._expected: int | None = getattr(context.flags, EXPECTED_FLAG)
        self._worker = SharedWorker("gpus", PATIENCE_SECONDS)
        self._visits = Member(f"gpu-{Driver.PART}", PATIENCE_SECONDS)

    def collect(self, until: float) -> Iterable[Sample | Down]:
        """The driver's view and every GPU's; where there is no connection, the driver comes first."""
        self._release.start()
        on_bus = self._bus.gpus()
        held = self._bus.held
        anew = self._is_to_be_connected_anew(held)
        connected = self._shared.driver.link is not None and not anew
        visit = self._visits.task(lambda: self._visit_driver(held, anew=anew), apart=not connected)
        if not connected:
            self._worker.run([visit])
            visit.outcome(until)
        self._take_up(on_bus)
        jobs = {gpu: gpu.task() for gpu in self._roster.gpus}
        self._shared.driver.readers = len(jobs)
        self._worker.run([visit, *jobs.values()] if connected else [*jobs.values()])
        start = time.monotonic()
        # Not to the last moment: what the Xids have to tell of a GPU that hangs comes after it.
        outcomes = _awaited(jobs, min(start + 0.8 * (until - start), start + LONGEST_SECONDS))
        told = visit.outcome(min(until, max(start + SHORTEST_SECONDS, time.monotonic())))
        # One list, as a node has two thousand: each step that hands them on one by one costs as much as to check them.
        found = [
            *self._present(on_bus),
            *self._versions.samples(),
            release.RELEASED.sample(int(self._release.released)),
            *_told(Driver.PART, told),
        ]
        for gpu, outcome in outcomes.items():
            if gpu.is_served:
                _about(gpu, outcome, found)
        found.extend(self._xids(on_bus, until))
        return found

    def close(self) -> None:
        """Stop sampling; workers end once their present call is done."""
        self._release.close()
        self._shared.xids.close()
        self._shared.sampler.close()
        self._worker.close()
        self._visits.close()
        for gpu in self._roster.gpus:
            gpu.own.close()

    def _present(self, on_bus: list[str] | None) -> Iterable[Sample]:
        if on_bus is not None:
            yield families.PRESENT.sample(len(on_bus), "pci")
        if self._expected is not None:
            yield families.PRESENT.sample(self._expected, "expected")

    def _xids(self, on_bus: list[str] | None, until: float) -> Iterable[Sample | Down]:
        """Of the sick ones too: why a GPU is gone is what an Xid tells."""
        shared = self._shared
        gpus = [
            (gpu.identity, gpu.identity.dcgm_labels(shared.hostname) if gpu.known else None)
            for gpu in self._roster.gpus
            if gpu.is_served
        ]
        addresses = [pci for pci in on_bus or () if shared.selection.takes(None, pci, None)]
        left_out = self._roster.left_out | self._bus.given_away
        served = Served(gpus, addresses if self._roster.addressed else (), left_out)
        return shared.xids.collect(served, shared.dcgm[xid_families.DCGM_XID_ERRORS], until)

    def _is_to_be_connected_anew(self, held: Mapping[str, int] | None) -> bool:
        driver = self._shared.driver
        took = self._arrivals.look(held, driver.link)
        if driver.link is None:
            if took:
                driver.hurry()
            return False
        came = self._arrivals.since_connected()
        gpus = self._roster.gpus
        read = self._asked({gpu: gpu.read for gpu in gpus if gpu.address in came})
        answered = [gpu.address for gpu in read if gpu.address is not None]
        missing = self._arrivals.missing(came, answered)
        if missing:  # the events that NVML keeps end with the connection
            self._asked({gpu: gpu.fetch for gpu in gpus})
        return bool(missing)

    def _asked(self, errands: Mapping[Gpu, Callable[[], Found]]) -> list[Gpu]:
        """The GPUs that have done this within a short wait."""
        jobs = {gpu: gpu.own.task(errand) for gpu, errand in errands.items()}
        self._worker.run([*jobs.values()])
        outcomes = _awaited(jobs, time.monotonic() + SHORTEST_SECONDS)
        return [gpu for gpu, outcome in outcomes.items() if outcome.reason is None]

    def _visit_driver(self, held: Mapping[str, int] | None, *, anew: bool) -> Found:
        return [families.PRESENT.sample(self._shared.driver.visit(held, anew=anew), "nvml")]

    def _take_up(self, on_bus: list[str] | None) -> None:
        if self._bus.given_away:
            self._roster.without(self._bus.given_away)
        link = self._shared.driver.link
        if link is not None:
            self._roster.update(link, on_bus, self._arrivals.awaited)


def _awaited(jobs: Mapping[Gpu, Task[Found]], until: float) -> Outcomes:
    """Each GPU's outcome: waited for by what it usually takes, or until ``until`` where most of them are late.

    One late GPU is sick; when most are late it is this process that was held up, or the driver.
    """
    now = time.monotonic()
    outcomes = {gpu: job.outcome(min(until, now + gpu.patience.seconds)) for gpu, job in jobs.items()}
    late = [outcome for outcome in outcomes.values() if outcome.reason == LATE]
    if 2 * len(late) > len(jobs):
        outcomes = {gpu: job.outcome(until) for gpu, job in jobs.items()}
    return outcomes


def _told(part: str, outcome: Outcome[Found]) -> Sequence[Sample | Down]:
    return (outcome.value or ()) if outcome.reason is None else (Down(part, outcome.reason, outcome.detail),)


def _about(gpu: Gpu, outcome: Outcome[Found], found: Found) -> None:
    if outcome.reason not in (RELEASED, RELEASING):  # nobody asked it: neither up nor down
        found.append(families.UP.sample(1 if outcome.reason is None else 0, *gpu.identity.labels()))
    if gpu.known:
        found.append(gpu.identity.info())
    found.extend(_told(gpu.part, outcome))


HOSTNAME_FLAG: Final = "gpu.hostname-label"
INCLUDE_FLAG: Final = "collector.gpu.device-include"
EXCLUDE_FLAG: Final = "collector.gpu.device-exclude"
FREQUENCY_FLAG: Final = "collector.gpu.sampler-frequency"
EXPECTED_FLAG: Final = "collector.gpu.expected"
RELEASE_FLAG: Final = "collector.gpu.release-limit"
XID_CLASSES_FLAG: Final = "collector.gpu.xid-classes"


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
    group.add_argument(
        f"--{EXPECTED_FLAG}", dest=EXPECTED_FLAG, type=_count, metavar="COUNT",
        help="how many GPUs this node should have; served beside how many there are",
    )  # fmt: skip
    group.add_argument(
        f"--{RELEASE_FLAG}", dest=RELEASE_FLAG, type=_seconds, default=release.DEFAULT_LIMIT_SECONDS, metavar="SECONDS",
        help="a file gpu-release in --path.state makes the exporter let go of all GPUs (for a reset) until the file is "
        "removed or this old; gpu-released appears beside it once that is done (default: %(default).0f)",
    )  # fmt: skip
    group.add_argument(
        f"--{XID_CLASSES_FLAG}", dest=XID_CLASSES_FLAG, type=Path, metavar="FILE",
        help="YAML with classes of this site's own for Xids: lines such as 79: critical (app, info, warning, critical)",
    )  # fmt: skip


# Below 5 Hz the 200 ms pulses that this is for slip through; above 100 Hz the reads themselves become a load.
_frequency = number_between(5, 100, "a frequency from 5 to 100 Hz")
_seconds = number_between(0, math.nextafter(1e9, 0), "a number of seconds")


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) > 1000:
        msg = f"{text!r} is not a number of GPUs"
        raise argparse.ArgumentTypeError(msg)
    return int(text)


def selection_of(flags: argparse.Namespace) -> inventory.Selection:
    """Which GPUs the flags take. Errors: UsageError."""
    include, exclude = getattr(flags, INCLUDE_FLAG), getattr(flags, EXCLUDE_FLAG)
    if include is not None and exclude is not None:
        msg = f"--{INCLUDE_FLAG} and --{EXCLUDE_FLAG} exclude each other: give one of them"
        raise UsageError(msg)
    return inventory.Selection(include, exclude)


def build(context: Context, nvml: Nvml | None = None) -> GpuCollector:
    """The collector, over the real NVML unless told otherwise; doesn't touch the driver yet."""
    overrides = getattr(context.flags, XID_CLASSES_FLAG)
    classes = Classes(load_overrides(overrides) if overrides is not None else None)
    nvml = nvml or Pynvml()
    subjects = subject.discover()
    driver, jobs = Driver(nvml, context.clock), Jobs(context.procfs, context.clock.monotonic)
    shared = Shared(
        nvml=nvml,
        driver=driver,
        sampler=Sampler(driver.using, getattr(context.flags, FREQUENCY_FLAG), context.clock.monotonic),
        clock=context.clock,
        selection=selection_of(context.flags),
        # As dcgm-exporter does: in a container the host's own name comes from the environment.
        hostname=os.environ.get("NODE_NAME") or socket.gethostname(),
        subjects=subjects,
        dcgm=_served(getattr(context.flags, HOSTNAME_FLAG), (*families.FAMILIES, *_families_of(subjects))),
        jobs=jobs,
        xids=XidWatch(context, nvml, driver, jobs, classes),
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
    families=(*families.FAMILIES, *versions.FAMILIES, release.RELEASED, *_families_of(subject.discover())),
    build=build,
    add_flags=add_flags,
)
