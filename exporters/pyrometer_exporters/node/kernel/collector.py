"""The collector ``kernel``: events of the kernel's log, counted over restarts of exporter and node.

A sample line: ``pyrometer_kernel_events_total{kind="sxid"} 1``, from the record
``3,1234,5140900123,-;nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up``.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pyrometer_exporters.framework.collector import CollectorSpec, Context
from pyrometer_exporters.framework.metrics import Down, Families, Sample
from pyrometer_exporters.framework.scheduling import Worker
from pyrometer_exporters.node.kernel.events import KINDS, UNCORRECTED_KINDS, Event, EventReader, link_number, sxid
from pyrometer_exporters.node.kernel.follow import Follower
from pyrometer_exporters.node.kernel.kmsg import Record
from pyrometer_kit.statefile import StateFile

# fmt: off
_ROWS = Families()
EVENTS = _ROWS.counter("pyrometer_kernel_events_total",
    "Events in the kernel's log (/dev/kmsg), each once however many lines it has, by kind "
    "(docs/reference/kernel-lines.md). The kinds link and other are deprecated in 0.3, removed in 0.4 "
    "and served with --metrics.deprecated.", "kind")
UNCORRECTED = _ROWS.counter("pyrometer_kernel_uncorrected_events_total",
    "Those of pyrometer_kernel_events_total that were not corrected or lost something, of the kinds that report this.",
    "kind")
LAST = _ROWS.gauge("pyrometer_kernel_event_last_timestamp_seconds",
    "When the latest event of a kind occurred, in s since the epoch, and what it was about (process, CPU, device), "
    "where the line says it; absent for kinds that never occurred.", "kind", "part")
SXIDS = _ROWS.counter("pyrometer_nvswitch_sxid_errors_total",
    "Errors of an NVSwitch by SXid code, from the kernel's log; severity is the driver's word, fatal or non_fatal; "
    "link is the switch's port, empty where the error is of none.", "switch", "pci_bus_id", "sxid", "severity", "link")
NVSWITCH_ERRORS = _ROWS.counter("pyrometer_nvswitch_errors_total",
    "The same by the driver's word alone, fatal or non_fatal, and exported from the start, so that the first error "
    "shows as an increase.", "severity")
LOST = _ROWS.counter("pyrometer_kernel_log_lost_records_total",
    "Records that the kernel overwrote before this exporter read them: events may be missing from the other counts.")
# fmt: on
FAMILIES = tuple(_ROWS)
SEVERITIES = ("fatal", "non_fatal")

PART = "kmsg"
# A full ring of 1 MiB is read in a tenth of this.
SETTLE_SECONDS = 2.0
# So many different switch errors are no list any more; the sum by kind goes on.
MOST_SXIDS = 512


class _State(NamedTuple):
    boot: str
    sequence: int
    kinds: dict[str, int]
    sxids: dict[tuple[str, ...], int]
    uncorrected: dict[str, int]
    last: dict[str, tuple[float, str]]
    """By kind, when the latest came and what it was about."""


class KernelCollector:
    """Follows the log from when it is built; :meth:`collect` reads only memory."""

    def __init__(self, context: Context) -> None:
        self._file = StateFile(context.state, "kernel.json", version=1)
        self._boot = boot_id(context.procfs)
        kept = self._file.load(_decode) or _State("", -1, {}, {}, {}, {})
        self._kinds = Counter(kept.kinds)
        self._sxids = Counter(kept.sxids)
        self._uncorrected = Counter(kept.uncorrected)
        self._last = dict(kept.last)
        self._clock = context.clock
        self._reader = EventReader()
        deprecated = getattr(context.flags, "metrics.deprecated", False)
        self._served = [kind.name for kind in KINDS.values() if deprecated or not kind.deprecated]
        self._sequence = -1
        self._lock = threading.Lock()
        self._saver: Worker = Worker("kernel-state")
        self._saved_at = self._sequence
        after = kept.sequence if kept.boot == self._boot else None
        self._follower = follow(context.kmsg, self._take, self._file, after)
        self._follower.start()

    def collect(self, until: float) -> Iterable[Sample | Down]:
        """Yield the counts; see :class:`~pyrometer_exporters.framework.collector.Collector`."""
        down = why_not(self._follower, until)
        if down is not None:
            yield down
            return
        with self._lock:
            kinds, sxids = dict(self._kinds), dict(self._sxids)
            uncorrected, last = dict(self._uncorrected), dict(self._last)
        for kind in self._served:
            yield EVENTS.sample(kinds.get(kind, 0), kind)
        for kind in UNCORRECTED_KINDS:
            yield UNCORRECTED.sample(uncorrected.get(kind, 0), kind)
        for kind, (at, part) in last.items():
            if kind in self._served:
                yield LAST.sample(at, kind, part)
        for labels, count in sxids.items():
            yield SXIDS.sample(count, *labels)
        for severity in SEVERITIES:
            yield NVSWITCH_ERRORS.sample(sum(n for labels, n in sxids.items() if labels[3] == severity), severity)
        yield LOST.sample(self._follower.lost)
        yield from self._save(until)

    def close(self) -> None:
        """Stop following."""
        self._follower.close()
        self._saver.close()

    def _take(self, record: Record) -> None:
        error = sxid(record.text)
        if error is not None:
            event: Event | None = Event("sxid", "", record.text, is_new=True)
        else:
            event = self._reader.feed(record, live=self._follower.live)
        if event is None:
            return
        with self._lock:
            self._kinds[event.kind] += event.is_new
            self._sequence = record.sequence
            self._uncorrected[event.kind] += event.uncorrected
            self._last[event.kind] = (self._written(record), event.part)
            if error is not None:
                severity = SEVERITIES[0 if error.fatal else 1]
                labels = (error.switch, error.pci_bus_id, error.code, severity, error.link)
                if labels in self._sxids or len(self._sxids) < MOST_SXIDS:
                    self._sxids[labels] += 1

    def _state(self, sequence: int) -> _State:
        counts = dict(self._kinds), dict(self._sxids), dict(self._uncorrected)
        return _State(self._boot, sequence, *counts, dict(self._last))

    def _written(self, record: Record) -> float:
        """Return when a record was written, in seconds since the epoch; now, for a log whose clock is another."""
        now = self._clock.monotonic()
        return self._clock.wall() - (max(0.0, now - record.seconds) if not self._follower.live else 0.0)

    def _save(self, until: float) -> Iterable[Down]:
        with self._lock:
            sequence = self._sequence
            if sequence == self._saved_at:
                return
            # Up to the last record that counted: those after it change nothing when they are read again.
            data = _encode(self._state(sequence))
        # In a worker: a disk that hangs must not take the metrics along.
        outcome = self._saver.start(lambda: self._file.save(data)).outcome(until)
        if outcome.reason is None:
            self._saved_at = sequence
        else:
            yield Down("state", outcome.reason, outcome.detail)


def boot_id(procfs: Path) -> str:
    """Return the kernel's boot id, ``4f1d5c2e-...``; empty without procfs: boots can't be distinguished then."""
    try:
        return (procfs / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def why_not(follower: Follower, until: float) -> Down | None:
    """Wait for the follower to read the existing log; return a Down if it can't, or hasn't by the time ``until``.

    Counts must not be served before: an old event counted after the first scrape would look like a new one.
    """
    if not follower.wait_settled(min(SETTLE_SECONDS, until - time.monotonic())):
        return Down(PART, "catching_up", "the log is still being read")
    error = follower.error
    return Down(PART, error.reason, error.detail) if error is not None else None


def follow(path: Path, take: Callable[[Record], None], file: StateFile, after: int | None) -> Follower:
    """Make a follower, yet to be started, that continues where the counts in ``file`` end.

    Without such counts the log is read from its beginning, so that all events of this boot count. If nothing can be
    saved, or the saved file is unusable, only new lines are read: else each restart would count the same events again,
    and fewer of them once the kernel has overwritten some, which looks like a reset.
    """
    return Follower(path, take, after=after, from_end=not file.kept or file.unusable)


def _encode(state: _State) -> dict[str, Any]:
    sxids = [[*labels, count] for labels, count in state.sxids.items()]
    return {**state._asdict(), "sxids": sxids}


def _decode(data: Mapping[str, Any]) -> _State:
    kinds = {kind: int(data["kinds"].get(kind, 0)) for kind in KINDS}
    sxids: Counter[tuple[str, ...]] = Counter()
    for *labels, link, count in data["sxids"]:
        if len(labels) + 1 != len(SXIDS.labels):
            raise ValueError("sxids don't have all labels")
        # A file of an earlier version may hold 08 and 8.
        sxids[(*map(str, labels), link_number(str(link)))] += int(count)
    # Neither is in the files of earlier versions.
    uncorrected = {kind: int(data.get("uncorrected", {}).get(kind, 0)) for kind in UNCORRECTED_KINDS}
    last = {str(kind): (float(at), str(part)) for kind, (at, part) in data.get("last", {}).items() if kind in KINDS}
    return _State(str(data["boot"]), int(data["sequence"]), kinds, sxids, uncorrected, last)


COLLECTOR = CollectorSpec(
    name="kernel",
    help="the kernel's log",
    families=FAMILIES,
    build=KernelCollector,
)
