"""The GPU collector: NVML's view of every GPU of the node, read in turn; one that hangs delays no other.

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
from pyrometer_exporters.framework.metrics import Down, Family, Item, Sample
from pyrometer_exporters.framework.outcome import LATE, Outcome
from pyrometer_exporters.framework.scheduling import Member, SharedWorker, Task
from pyrometer_exporters.node.gpu import driver_versions, families, inventory, release, subject
from pyrometer_exporters.node.gpu.adaptive_timeout import LONGEST_SECONDS, SHORTEST_SECONDS
from pyrometer_exporters.node.gpu.binding import Pynvml
from pyrometer_exporters.node.gpu.device import PATIENCE_SECONDS, Gpu, Shared
from pyrometer_exporters.node.gpu.driver import RELEASED, RELEASING, Driver
from pyrometer_exporters.node.gpu.driver_versions import Versions
from pyrometer_exporters.node.gpu.hotplug import Hotplug
from pyrometer_exporters.node.gpu.jobs import Jobs
from pyrometer_exporters.node.gpu.nvml import Nvml
from pyrometer_exporters.node.gpu.pods import pods_from_environment
from pyrometer_exporters.node.gpu.registry import GpuRegistry
from pyrometer_exporters.node.gpu.release import ReleaseWatch
from pyrometer_exporters.node.gpu.sampler import DEFAULT_FREQUENCY, Sampler
from pyrometer_exporters.node.gpu.subject import SubjectContext
from pyrometer_exporters.node.gpu.xid import watch as xid_watch
from pyrometer_exporters.node.gpu.xid.catalogue import Classes, load_overrides
from pyrometer_exporters.node.gpu.xid.watch import Served, XidWatch
from pyrometer_kit.errors import UsageError
from pyrometer_kit.flags import number_between, regexp

Items = list[Item]
Outcomes = dict[Gpu, Outcome[Items]]


class GpuCollector:
    """All GPUs of a node."""

    def __init__(self, shared: Shared, context: Context) -> None:
        self._shared = shared
        self._bus = inventory.PciBus(context.sysfs)
        self._registry = GpuRegistry(shared, context.procfs)
        self._hotplug = Hotplug(self._registry, context.clock.monotonic)
        self._versions = Versions(shared.driver, context.procfs)
        self._release = ReleaseWatch(shared.driver, context.state, getattr(context.flags, RELEASE_FLAG))
        self._expected: int | None = getattr(context.flags, EXPECTED_FLAG)
        self._worker = SharedWorker("gpus", PATIENCE_SECONDS)
        self._visits = Member(f"gpu-{Driver.PART}", PATIENCE_SECONDS)

    def collect(self, until: float) -> Iterable[Item]:
        """Read the driver and every GPU; without a connection, the driver first."""
        self._release.start()
        on_bus = self._bus.gpus()
        held = self._bus.held
        reconnect = self._must_reconnect(held)
        connected = self._shared.driver.link is not None and not reconnect
        visit = self._visits.task(lambda: self._visit_driver(held, reconnect=reconnect), apart=not connected)
        if not connected:
            self._worker.run([visit])
            visit.outcome(until)
        self._update_registry(on_bus)
        jobs = {gpu: gpu.task() for gpu in self._registry.gpus}
        self._shared.driver.readers = len(jobs)
        self._worker.run([visit, *jobs.values()] if connected else [*jobs.values()])
        start = time.monotonic()
        # Not to the last moment: the Xids of a GPU that hangs come after it.
        outcomes = _awaited(jobs, min(start + 0.8 * (until - start), start + LONGEST_SECONDS))
        result = visit.outcome(min(until, max(start + SHORTEST_SECONDS, time.monotonic())))
        # One list, not a chain of generators, as a node has thousands of samples.
        items = [
            *self._present(on_bus),
            *self._versions.samples(),
            release.RELEASED.sample(int(self._release.released)),
            *_result_items(Driver.PART, result),
        ]
        for gpu, outcome in outcomes.items():
            if gpu.is_served:
                _add_gpu(gpu, outcome, items)
        items.extend(self._xids(on_bus, until))
        return items

    def close(self) -> None:
        """Stop sampling; workers end once their present call is done."""
        self._release.close()
        self._shared.xids.close()
        self._shared.sampler.close()
        self._worker.close()
        self._visits.close()
        for gpu in self._registry.gpus:
            gpu.member.close()

    def _present(self, on_bus: list[str] | None) -> Iterable[Sample]:
        link = self._shared.driver.link
        if link is not None and inventory.withheld(link.count, len(self._bus.held or ())):
            return  # what the driver lists is no fewer than this process is given
        if on_bus is not None:
            yield families.PRESENT.sample(len(on_bus), "pci")
        if self._expected is not None:
            yield families.PRESENT.sample(self._expected, "expected")

    def _xids(self, on_bus: list[str] | None, until: float) -> Iterable[Item]:
        """Yield the Xids of all GPUs, sick ones included: they explain why a GPU is gone."""
        shared = self._shared
        gpus = [
            (gpu.identity, gpu.identity.dcgm_labels(shared.context.hostname) if gpu.is_known else None)
            for gpu in self._registry.gpus
            if gpu.is_served
        ]
        addresses = [pci for pci in on_bus or () if shared.selection.takes(None, pci, None)]
        left_out = self._registry.left_out | self._bus.given_away
        served = Served(gpus, addresses if self._registry.addressed else (), left_out)
        return shared.xids.collect(served, shared.context.dcgm[xid_watch.DCGM_XID_ERRORS], until)

    def _must_reconnect(self, held: Mapping[str, int] | None) -> bool:
        driver = self._shared.driver
        took = self._hotplug.look(held, driver.link)
        if driver.link is None:
            if took:
                driver.hurry()
            return False
        came = self._hotplug.since_connected()
        gpus = self._registry.gpus
        read = self._asked({gpu: gpu.read for gpu in gpus if gpu.address in came})
        answered = [gpu.address for gpu in read if gpu.address is not None]
        missing = self._hotplug.missing(came, answered)
        if missing:  # the events that NVML keeps end with the connection
            self._asked({gpu: gpu.fetch_xids for gpu in gpus})
        return bool(missing)

    def _asked(self, calls: Mapping[Gpu, Callable[[], Items]]) -> list[Gpu]:
        """Make each GPU's call in its thread; return the GPUs that have answered within a short wait."""
        jobs = {gpu: gpu.member.task(call) for gpu, call in calls.items()}
        self._worker.run([*jobs.values()])
        outcomes = _awaited(jobs, time.monotonic() + SHORTEST_SECONDS)
        return [gpu for gpu, outcome in outcomes.items() if outcome.reason is None]

    def _visit_driver(self, held: Mapping[str, int] | None, *, reconnect: bool) -> Items:
        return [families.PRESENT.sample(self._shared.driver.visit(held, reconnect=reconnect), "nvml")]

    def _update_registry(self, on_bus: list[str] | None) -> None:
        if self._bus.given_away:
            self._registry.without(self._bus.given_away)
        link = self._shared.driver.link
        if link is not None:
            self._registry.update(link, on_bus, self._hotplug.awaited)


def _awaited(jobs: Mapping[Gpu, Task[Items]], until: float) -> Outcomes:
    """Wait for each GPU as long as its reads usually take, or until ``until`` where most of them are late.

    One late GPU is sick; when most are late it is this process that was held up, or the driver.
    """
    now = time.monotonic()
    outcomes = {gpu: job.outcome(min(until, now + gpu.timeout.seconds)) for gpu, job in jobs.items()}
    late = [outcome for outcome in outcomes.values() if outcome.reason == LATE]
    if 2 * len(late) > len(jobs):
        outcomes = {gpu: job.outcome(until) for gpu, job in jobs.items()}
    return outcomes


def _result_items(part: str, outcome: Outcome[Items]) -> Sequence[Item]:
    return (outcome.value or ()) if outcome.reason is None else (Down(part, outcome.reason, outcome.detail),)


def _add_gpu(gpu: Gpu, outcome: Outcome[Items], items: Items) -> None:
    if outcome.reason not in (RELEASED, RELEASING):  # not queried: report neither up nor down
        items.append(families.UP.sample(1 if outcome.reason is None else 0, *gpu.identity.labels()))
    if gpu.is_known:
        items.append(gpu.identity.info())
    items.extend(_result_items(gpu.part, outcome))


HOSTNAME_FLAG: Final = "gpu.hostname-label"
INCLUDE_FLAG: Final = "collector.gpu.device-include"
EXCLUDE_FLAG: Final = "collector.gpu.device-exclude"
FREQUENCY_FLAG: Final = "collector.gpu.sampler-frequency"
EXPECTED_FLAG: Final = "collector.gpu.expected"
RELEASE_FLAG: Final = "collector.gpu.release-limit"
KUBERNETES_FLAG: Final = "collector.gpu.kubernetes-node"
XID_CLASSES_FLAG: Final = "collector.gpu.xid-classes"


def add_flags(group: FlagGroup) -> None:
    """Add the collector's flags."""
    group.add_argument(
        f"--{HOSTNAME_FLAG}", dest=HOSTNAME_FLAG, choices=("Hostname", "hostname"), default="Hostname",
        help="the host's label on DCGM_FI_* series: dcgm-exporter wrote Hostname up to 4.8.2 (default: %(default)s)",
    )  # fmt: skip
    for flag, effect in ((INCLUDE_FLAG, "open only these GPUs"), (EXCLUDE_FLAG, "never open these GPUs")):
        group.add_argument(
            f"--{flag}", dest=flag, type=regexp, metavar="REGEXP",
            help=f"{effect}; matched with index, UUID and PCI address",
        )  # fmt: skip
    group.add_argument(
        f"--{FREQUENCY_FLAG}", dest=FREQUENCY_FLAG, type=_frequency, default=DEFAULT_FREQUENCY, metavar="HZ",
        help="how often to read the clock event reasons while a reason that the driver doesn't count comes and goes; "
        "otherwise at most 5 times a second (default: %(default)s)",
    )  # fmt: skip
    group.add_argument(
        f"--{EXPECTED_FLAG}", dest=EXPECTED_FLAG, type=_count, metavar="COUNT",
        help="how many GPUs this node should have; exported next to the actual number",
    )  # fmt: skip
    group.add_argument(
        f"--{RELEASE_FLAG}", dest=RELEASE_FLAG, type=_seconds, default=release.DEFAULT_LIMIT_SECONDS, metavar="SECONDS",
        help="a file gpu-release in --path.state makes the exporter release all GPUs (for a reset) until the file is "
        "removed or this old; gpu-released appears beside it once they are released (default: %(default).0f)",
    )  # fmt: skip
    group.add_argument(
        f"--{KUBERNETES_FLAG}", dest=KUBERNETES_FLAG, metavar="NODE",
        help="this node's name in Kubernetes: names of pods, their namespaces and workloads are read from the API "
        "server with the service account of the exporter's pod",
    )  # fmt: skip
    group.add_argument(
        f"--{XID_CLASSES_FLAG}", dest=XID_CLASSES_FLAG, type=Path, metavar="FILE",
        help="YAML file with this site's own Xid classes: lines such as 79: critical (app, info, warning, critical)",
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
    """Return the selection of GPUs by the flags.

    Raises:
        UsageError: both of two flags that exclude each other are given.
    """
    include, exclude = getattr(flags, INCLUDE_FLAG), getattr(flags, EXCLUDE_FLAG)
    if include is not None and exclude is not None:
        raise UsageError(f"--{INCLUDE_FLAG} and --{EXCLUDE_FLAG} exclude each other: give one of them")
    return inventory.Selection(include, exclude)


def build(context: Context, nvml: Nvml | None = None) -> GpuCollector:
    """Build the collector, over the real NVML by default; doesn't touch the driver yet."""
    overrides = getattr(context.flags, XID_CLASSES_FLAG)
    classes = Classes(load_overrides(overrides) if overrides is not None else None)
    nvml = nvml or Pynvml()
    driver, jobs = Driver(nvml, context.clock), Jobs(context.procfs, context.clock.monotonic)
    node = getattr(context.flags, KUBERNETES_FLAG)
    shared = Shared(
        context=SubjectContext(
            nvml=nvml,
            clock=context.clock,
            # As dcgm-exporter does: in a container the host's own name comes from the environment.
            hostname=os.environ.get("NODE_NAME") or socket.gethostname(),
            dcgm=_served_dcgm_families(getattr(context.flags, HOSTNAME_FLAG)),
            jobs=jobs,
            loads=context.gpu_loads,
            pods=pods_from_environment(node) if node else None,
            models=context.gpu_models,
        ),
        driver=driver,
        sampler=Sampler(driver.using, getattr(context.flags, FREQUENCY_FLAG), context.clock.monotonic),
        selection=selection_of(context.flags),
        subjects=subject.discover(),
        xids=XidWatch(context, nvml, driver, jobs, classes),
    )
    return GpuCollector(shared, context)


def _served_dcgm_families(hostname_label: str) -> dict[Family, Family]:
    """Return each DCGM family as it is served, the label for the host's name renamed where that was asked for."""
    dcgm = [family for family in all_families() if families.HOSTNAME_LABEL in family.labels]
    if hostname_label == families.HOSTNAME_LABEL:
        return {family: family for family in dcgm}
    return {family: dataclasses.replace(family, labels=_renamed(family.labels, hostname_label)) for family in dcgm}


def _renamed(labels: Iterable[str], hostname_label: str) -> tuple[str, ...]:
    return tuple(hostname_label if name == families.HOSTNAME_LABEL else name for name in labels)


def all_families() -> tuple[Family, ...]:
    """Return the families of the collector and of all its subjects."""
    of_subjects = [family for spec in subject.discover() for family in spec.families]
    of_node = (*families.FAMILIES, *driver_versions.FAMILIES, release.RELEASED)
    return (*of_node, *of_subjects, *xid_watch.FAMILIES)


COLLECTOR = CollectorSpec(
    name="gpu",
    help="GPUs through NVML",
    families=all_families(),
    build=build,
    add_flags=add_flags,
)
