"""What the doctor found, as data; ``text.py`` makes it readable."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Absent:
    """A metric that a GPU doesn't have, and why."""

    metric: str
    why: str


@dataclass(frozen=True)
class GpuFound:
    """One GPU; ``down`` is None or the reason why it can't be read."""

    gpu: str
    uuid: str
    model: str
    pci_bus_id: str
    down: str | None
    detail: str
    """What stands behind that reason, in a few more words; empty where nothing does."""
    metrics: int
    """How many kinds of metric it has."""
    clock_events: dict[str, str]
    """Reason to method: counter or sampled; reasons that can't be known are left out."""
    absent: list[Absent]


@dataclass(frozen=True)
class Attribution:
    """Whether a GPU's processes can be joined to jobs."""

    cgroups: str
    """``readable``, or why other users' processes' cgroups aren't."""
    processes: dict[str, int]
    """Processes on GPUs: of a job, of none, hidden."""


@dataclass(frozen=True)
class CollectorFound:
    """A collector; ``state`` is ok, partly, or the reason why all of it failed."""

    name: str
    state: str
    milliseconds: float
    down: dict[str, str]
    """Part to reason."""


@dataclass(frozen=True)
class Report:
    """Everything."""

    host: str
    driver: dict[str, str]
    """Versions of driver, library and kernel_module; empty where unknown."""
    driver_down: str
    """Why the driver as a whole can't be used, as one of our reasons; empty where it can."""
    driver_detail: str
    """What stands behind that reason."""
    present: dict[str, int]
    """GPUs by who says so: pci, nvml, expected."""
    gpus: list[GpuFound]
    attribution: Attribution
    links: dict[str, int]
    """Ports up and down, and NVLinks."""
    rings: dict[str, int]
    """Training runs and ranks that left a ring."""
    collectors: list[CollectorFound]
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """What the alert rules need and don't get."""
