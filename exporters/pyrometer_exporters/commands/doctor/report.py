"""The doctor's report, as data and as text: aligned columns, and one line for GPUs with the same complaint."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Fault:
    """A fault of the hardware or the driver, what to do next, and the alert whose runbook says more."""

    what: str
    next_step: str
    alert: str


@dataclass(frozen=True)
class Absent:
    """A metric that a GPU doesn't have, and why."""

    metric: str
    why: str


@dataclass(frozen=True)
class GpuStatus:
    """A GPU; ``down`` is None, or the reason why it can't be read."""

    gpu: str
    uuid: str
    model: str
    pci_bus_id: str
    down: str | None
    detail: str
    """Details of that reason in a few words, or empty."""
    metrics: int
    """Number of families with samples."""
    clock_events: dict[str, str]
    """Reason to method, ``counter`` or ``sampled``; unknown reasons are left out."""
    absent: list[Absent]


@dataclass(frozen=True)
class Attribution:
    """How far processes on GPUs can be joined to jobs."""

    cgroups: str
    """``readable``, or why the cgroups of other users' processes aren't."""
    processes: dict[str, int]
    """Processes on GPUs: of a job, of none, hidden."""


@dataclass(frozen=True)
class CollectorStatus:
    """A collector; ``state`` is ok, partly, or the reason why it failed."""

    name: str
    state: str
    milliseconds: float
    down: dict[str, str]
    """Part to reason."""


@dataclass(frozen=True)
class Report:
    """The whole report."""

    host: str
    driver: dict[str, str]
    """Versions of driver, library and kernel_module; empty where unknown."""
    driver_down: str
    """Why the driver can't be used, as one of our reasons; empty if it can."""
    driver_detail: str
    """Details of that reason."""
    present: dict[str, int]
    """Number of GPUs by source: pci, nvml, expected."""
    gpus: list[GpuStatus]
    attribution: Attribution
    links: dict[str, int]
    """Ports up and down, and NVLinks."""
    rings: dict[str, int]
    """Number of training runs and ranks with a ring."""
    collectors: list[CollectorStatus]
    notes: list[str] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """What the alert rules need and lack."""


def render(report: Report) -> str:
    """Return the report as text, problems last, where the eye is after it has scrolled by."""
    sections = [
        ("Driver", _driver(report)),
        ("GPUs", _table(("GPU", "MODEL", "PCI ADDRESS", "STATE", "METRICS", "TIMES OF CLOCK EVENTS"), _gpus(report))),
        ("Not available", _table(("GPU", "METRIC", "WHY"), _absent(report.gpus))),
        ("Jobs", _jobs(report)),
        ("Links and rings", _links(report)),
        ("Collectors", _table(("NAME", "STATE", "TOOK", "NOT AVAILABLE"), _collectors(report))),
        ("Notes", report.notes),
        ("Problems: metrics that alerts need and this node lacks", report.problems),
        ("Faults, and what to do next (docs/alerts.md has the runbooks)", _faults(report.faults)),
    ]
    head = f"Pyrometer on {report.host}: {_verdict(report)}"
    return "\n".join([head, *_laid_out(sections)]) + "\n"


def _verdict(report: Report) -> str:
    counts = [(len(report.faults), "fault"), (len(report.problems), "problem")]
    totals = [f"{count} {word}{'s' * (count != 1)}" for count, word in counts if count]
    if not totals and not report.gpus:
        return "no fault found; without a GPU the GPU alert rules have nothing to check"
    return ", ".join(totals) or "no fault found, and the alert rules have everything they need"


def _faults(faults: Iterable[Fault]) -> Iterator[str]:
    for fault in faults:
        yield fault.what
        yield f"  next: {fault.next_step} ({fault.alert})"


def _laid_out(sections: Iterable[tuple[str, Iterable[str]]]) -> Iterator[str]:
    for title, lines in sections:
        body = list(lines)
        if body:
            yield from ("", title, *(f"  {line}".rstrip() for line in body))


def _driver(report: Report) -> Iterator[str]:
    versions = [f"{name.replace('_', ' ')} {version or 'unknown'}" for name, version in report.driver.items()]
    yield ", ".join(versions) if any(report.driver.values()) else "none found"
    words = {"pci": "on the PCI bus", "nvml": "listed by the driver", "expected": "expected"}
    counts = [f"{count} {words.get(source, source)}" for source, count in report.present.items()]
    yield f"GPUs: {', '.join(counts) or 'unknown'}"


def _gpus(report: Report) -> Iterator[tuple[str, ...]]:
    for gpu in report.gpus:
        state = f"down: {gpu.down}" if gpu.down else "up"
        yield gpu.gpu, gpu.model or "unknown", gpu.pci_bus_id or "unknown", state, str(gpu.metrics), _methods(gpu)


def _methods(gpu: GpuStatus) -> str:
    methods = list(gpu.clock_events.values())
    tally = [(methods.count(method), word) for method, word in (("counter", "by the driver"), ("sampled", "sampled"))]
    return ", ".join(f"{count} {word}" for count, word in tally if count)


def _absent(gpus: Sequence[GpuStatus]) -> Iterator[tuple[str, ...]]:
    by_complaint: dict[tuple[str, str], list[str]] = {}
    for gpu in gpus:
        for absent in gpu.absent:
            by_complaint.setdefault((absent.metric, absent.why), []).append(gpu.gpu)
    for (metric, why), numbers in sorted(by_complaint.items()):
        yield _range(numbers), metric, why


def _range(numbers: Sequence[str]) -> str:
    """Return ``0-7`` for consecutive numbers, else the list.

    >>> _range(["0", "1", "2"]), _range(["0", "2"])
    ('0-2', '0,2')
    """
    values = [int(number) for number in numbers if number.isdecimal()]
    whole = len(values) > 2 and values == list(range(values[0], values[0] + len(numbers)))
    return f"{values[0]}-{values[-1]}" if whole else ",".join(numbers)


def _jobs(report: Report) -> Iterator[str]:
    yield f"cgroups of processes: {report.attribution.cgroups}"
    words = {"job": "of a job", "none": "of no job", "hidden": "that can't be seen from here"}
    counts = [f"{count} {words.get(kind, kind)}" for kind, count in report.attribution.processes.items()]
    tried = any(report.attribution.processes.values())
    yield f"processes on GPUs: {', '.join(counts) if tried else 'none, so attribution could not be checked'}"


def _links(report: Report) -> Iterator[str]:
    links = report.links
    yield f"network ports: {links['ports_up']} up, {links['ports_down']} down"
    yield f"NVLinks: {links['nvlinks_up']} up, {links['nvlinks_down']} down"
    yield f"training: {report.rings['ranks']} ranks of {report.rings['runs']} runs"


def _collectors(report: Report) -> Iterator[tuple[str, ...]]:
    for collector in report.collectors:
        downs = ", ".join(f"{part} ({reason})" for part, reason in collector.down.items())
        yield collector.name, collector.state, f"{collector.milliseconds:.0f} ms", downs


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    body = list(rows)
    if body:
        widths = [max(len(row[column]) for row in (head, *body)) for column in range(len(head))]
        for row in (head, *body):
            yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
