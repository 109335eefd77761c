"""Collect the Xids of all GPUs of a node from all sources, and keep the counts."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from pyrometer_exporters.framework.collector import Context
from pyrometer_exporters.framework.metrics import Down, Family, Item, Sample, new_sample
from pyrometer_exporters.framework.scheduling import Worker
from pyrometer_exporters.node.gpu.driver import Driver
from pyrometer_exporters.node.gpu.families import GpuFamilies
from pyrometer_exporters.node.gpu.identity import Identity
from pyrometer_exporters.node.gpu.inventory import kernel_pci_id
from pyrometer_exporters.node.gpu.jobs import Jobs
from pyrometer_exporters.node.gpu.nvml import Handle, Nvml
from pyrometer_exporters.node.gpu.subject import BoundSamples
from pyrometer_exporters.node.gpu.xid.catalogue import Classes, meaning
from pyrometer_exporters.node.gpu.xid.ledger import Key, Ledger, Owner, decode, encode
from pyrometer_exporters.node.gpu.xid.lines import LineParser, XidEvent
from pyrometer_exporters.node.gpu.xid.listener import Listener
from pyrometer_exporters.node.kernel.collector import boot_id, follow, why_not
from pyrometer_exporters.node.kernel.kmsg import Record
from pyrometer_kit.statefile import StateFile

# fmt: off
_ROWS = GpuFamilies()
DCGM_XID_ERRORS = _ROWS.dcgm_gauge("DCGM_FI_DEV_XID_ERRORS",
    "Number of the GPU's latest Xid since the node was booted, 0 for none: repeats don't show, "
    "pyrometer_gpu_xid_errors_total counts.", "err_code", "err_msg")
ERRORS = _ROWS.counter("pyrometer_gpu_xid_errors_total",
    "Xid errors, each once, from NVML's events and the kernel's log; class is app, info, warning or critical. Codes "
    "that can be critical are exported from the start. A GPU that NVML doesn't list has its PCI address in gpu.",
    "xid", "class")
CRITICAL = _ROWS.counter("pyrometer_gpu_xid_critical_errors_total",
    "Those of pyrometer_gpu_xid_errors_total of class critical, all codes together: one series a GPU to watch.")
CRITICAL_LAST = _ROWS.gauge("pyrometer_gpu_xid_critical_last_timestamp_seconds",
    "When the GPU last reported a critical Xid, in s since the epoch; absent where there was none.")
CONSEQUENCES = _ROWS.counter("pyrometer_gpu_xid_consequences_total",
    "Those of pyrometer_gpu_xid_errors_total that the driver called a consequence of an earlier Xid, by that Xid "
    "(caused_by); from the kernel's log.", "xid", "caused_by")
LAST_TIMESTAMP = _ROWS.gauge("pyrometer_gpu_xid_last_timestamp_seconds",
    "When an Xid was last reported, in s since the epoch; absent for those that never were.", "xid")
LAST_INFO = _ROWS.gauge("pyrometer_gpu_xid_last_info",
    "1; the GPU's latest Xid: its MIG instances, the process that the driver names and, where that was known at the "
    "time, its job. Empty is unknown or none.",
    "xid", "caused_by", "gpu_instance", "compute_instance", "pid", "process", "job_id", "user")
# fmt: on
FAMILIES = tuple(_ROWS)


log = logging.getLogger(__name__)

SAVE_SECONDS = 0.1


class Served(NamedTuple):
    """The GPUs whose Xids are served, and those that are left out."""

    identities: Sequence[tuple[Identity, tuple[str, ...] | None]]
    """Each GPU with its DCGM labels; None for one that was never open."""
    on_bus: Collection[str]
    """PCI addresses, as the kernel spells them, of GPUs that NVML may never have presented."""
    left_out: Collection[str]
    """PCI addresses of those that aren't to be served."""


class XidWatch:
    """Follows the kernel's log from when it is built; NVML's events are fetched by the GPUs' workers."""

    def __init__(self, context: Context, nvml: Nvml, driver: Driver, jobs: Jobs, classes: Classes) -> None:
        self._nvml = nvml
        self._driver = driver
        self._clock = context.clock
        self._jobs = jobs
        self._classes = classes
        self._critical = {code: str(code) for code in classes.critical_codes()}
        self._file = StateFile(context.state, "gpu_xid.json", version=1)
        self._ledger = self._file.load(decode) or Ledger()
        self._ledger.booted(boot_id(context.procfs))
        self._saved = self._ledger.changes
        self._lock = threading.Lock()
        self._listeners: dict[str, Listener] = {}
        self._saver: Worker = Worker("gpu-xid-state")
        self._critical_counts = BoundSamples({})
        """The counts of critical codes of the GPUs labelled as in the previous scrape."""
        self._labelled: Mapping[str, tuple[str, str]] = {}
        self._zeros: dict[Key, int] = {}
        self._served_at: float | None = None
        """When counts were first served."""
        self._lines = LineParser()
        sequence = self._ledger.sequence
        self._follower = follow(context.kmsg, self._read_line, self._file, sequence if sequence >= 0 else None)
        self._follower.start()

    def opened(self, handle: Handle, identity: Identity) -> None:
        """Note that a GPU was opened, in its own thread.

        Raises:
            NvmlError: the GPU is in trouble.
        """
        link = self._driver.link
        if link is None or not identity.pci_bus_id:  # Xids are reported by address
            return
        pci = kernel_pci_id(identity.pci_bus_id)
        listener = self._listeners.get(pci)
        if listener is None:
            listener = Listener(pci, self._nvml, self._reporter(pci), self._clock.monotonic)
            self._listeners[pci] = listener
        listener.listen(handle, link.generation)

    def answered(self, identity: Identity) -> None:
        """Note that a GPU was read."""
        if identity.pci_bus_id:
            with self._lock:
                self._ledger.answered(kernel_pci_id(identity.pci_bus_id), identity.uuid)

    def fetch(self, identity: Identity, generation: int) -> None:
        """Fetch a GPU's events from NVML: in its own thread, before each read, also if it is lost."""
        listener = self._listeners.get(kernel_pci_id(identity.pci_bus_id)) if identity.pci_bus_id else None
        if listener is not None:
            listener.fetch(generation)

    def collect(self, gpus: Served, dcgm: Family, until: float) -> Iterable[Item]:
        """Yield the samples of all GPUs, sick ones included.

        ``dcgm`` is DCGM_FI_DEV_XID_ERRORS as it is served, ``until`` monotonic time.
        """
        down = why_not(self._follower, until)
        if down is not None:
            yield down
            if down.reason == "catching_up":
                return
        if self._served_at is None:
            self._served_at = self._clock.monotonic()
        with self._lock:
            samples = list(self._samples(gpus, dcgm))
        yield from samples
        yield from self._save(until)

    def close(self) -> None:
        """Stop following and save the counts."""
        self._follower.close()
        self._saver.close()
        with self._lock:
            data = encode(self._ledger) if self._ledger.changes != self._saved else None
        try:
            if data is not None:
                self._file.save(data)
        except OSError as error:
            log.warning("counts of Xids can't be saved: %s", error)

    def _read_line(self, record: Record) -> None:
        event = self._lines.feed(record.text)
        if event is None:
            return
        now = self._clock.monotonic()
        # Just after the start, lines are read long after they were written.
        at = now if self._follower.live else min(now, record.seconds)
        if self._is_too_late(at):
            return
        job = self._jobs.of_the_late(int(event.pid)) if event.pid else None
        with self._lock:
            wall = self._clock.wall() - (now - at)
            owner = Owner(job.job_id, job.user) if job else None
            self._ledger.take(event, self._classes, (at, at), wall, owner)
            self._ledger.sequence = record.sequence

    def _is_too_late(self, at: float) -> bool:
        """Return whether an event is older than the first counts served, which lacked it: it would look like a new one.

        This happens if the log can't be read at first (no permission, not yet mounted), and later can.
        """
        return not self._follower.live and self._served_at is not None and at < self._served_at

    def _reporter(self, pci: str) -> Callable[[list[XidEvent], tuple[float, float]], None]:
        def report(events: list[XidEvent], came: tuple[float, float]) -> None:
            log_read = self._follower.error is None
            with self._lock:
                for event in events:
                    # If the message decides the class, wait for the log's line.
                    if not (log_read and self._classes.needs_text(event.xid)):
                        self._ledger.take(event, self._classes, came, self._clock.wall())
                self._ledger.heard[pci] = came[1]

        return report

    def _samples(self, gpus: Served, dcgm: Family) -> Iterable[Item]:
        ledger = self._ledger
        labels = self._labels(gpus)
        yield from self._errors(labels)
        critical = ledger.critical()
        yield from (CRITICAL.sample(critical[pci], *names) for pci, names in labels.items())
        for pci, at in ledger.critical_at().items():
            if pci in labels:
                yield CRITICAL_LAST.sample(at, *labels[pci])
        for (key, cause), count in ledger.consequences.items():
            if key.pci in labels:
                yield CONSEQUENCES.sample(count, *labels[key.pci], str(key.xid), cause)
        for key, at in ledger.at.items():
            if key.pci in labels:
                yield LAST_TIMESTAMP.sample(at, *labels[key.pci], str(key.xid))
        for pci, last in ledger.last.items():
            if pci in labels:
                event, owner = last.event, last.owner
                details = event.caused_by, event.gpu_instance, event.compute_instance, event.pid, event.process
                yield LAST_INFO.sample(1, *labels[pci], str(event.xid), *details, owner.job_id, owner.user)
        yield from self._dcgm(gpus.identities, dcgm)

    def _errors(self, labels: Mapping[str, tuple[str, str]]) -> Iterable[Item]:
        # Critical codes are there from the start, so that the first error is a rise.
        if labels != self._labelled:
            self._labelled, self._zeros = labels, {Key(pci, xid): 0 for pci in labels for xid in self._critical}
            zeros = {key: (*labels[key.pci], str(key.xid), "critical") for key in self._zeros}
            self._critical_counts = BoundSamples({key: ERRORS.sample(0, *names) for key, names in zeros.items()})
        counts = self._ledger.counts
        critical = {key: count for (key, xid_class), count in counts.items() if xid_class == "critical"}
        yield self._critical_counts.read(self._zeros | critical)
        for (key, xid_class), count in counts.items():
            if key.pci in labels and not (xid_class == "critical" and key.xid in self._critical):
                yield new_sample(ERRORS, (*labels[key.pci], str(key.xid), xid_class), count)

    def _labels(self, gpus: Served) -> dict[str, tuple[str, str]]:
        """Return labels by PCI address; of a GPU that NVML has never presented, only the address is known."""
        labels = {kernel_pci_id(i.pci_bus_id): i.labels() for i, _ in gpus.identities if i.pci_bus_id}
        addresses = {*gpus.on_bus, *(key.pci for key, _ in self._ledger.counts)}
        return labels | {pci: (pci, "") for pci in sorted(addresses - labels.keys() - set(gpus.left_out))}

    def _dcgm(self, identities: Sequence[tuple[Identity, tuple[str, ...] | None]], family: Family) -> Iterable[Sample]:
        for identity, labels in identities:
            if labels is not None:
                pci = kernel_pci_id(identity.pci_bus_id)
                last = self._ledger.last.get(pci) if pci not in self._ledger.old else None
                code = last.event.xid if last else 0
                yield family.sample(code, *labels, str(code), meaning(code) if code else "No Error")

    def _save(self, until: float) -> Iterable[Down]:
        with self._lock:
            changes = self._ledger.changes
            if changes == self._saved or not self._file.kept:
                return
            data = encode(self._ledger)
        # In a worker: a disk that hangs must not take the metrics along. A hung GPU may have used up all the time.
        saved_until = max(until, time.monotonic() + SAVE_SECONDS)
        outcome = self._saver.start(lambda: self._file.save(data)).outcome(saved_until)
        if outcome.reason is None:
            self._saved = changes
        else:
            yield Down("xid_state", outcome.reason, outcome.detail)
