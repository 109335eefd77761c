"""A subject made of field values, in two tiers: what can change at any moment, and what changes once in months.

NVML's calls are not equally cheap: counts of retired pages or the state of the fabric take a way through the firmware
or the board's EEPROM. Those are read at most every :data:`SELDOM_SECONDS` and served in between as they were, so no
value is ever older than that; their HELP says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pyrometer_exporters.framework.metrics import Family, MetricType, Sample, new_sample
from pyrometer_exporters.node.gpu import families
from pyrometer_exporters.node.gpu.clock_events import version_numbers
from pyrometer_exporters.node.gpu.nvml import FieldKey
from pyrometer_exporters.node.gpu.readings import MOST_COUNT
from pyrometer_exporters.node.gpu.subject import Opened, optional

SELDOM_SECONDS = 60.0
SELDOM_HELP = "read at most every 60 s"


@dataclass(frozen=True)
class FieldSample:
    """A field value and the sample it becomes."""

    key: FieldKey
    family: Family
    labels: tuple[str, ...] = ()
    """Values of the labels that the family has beyond families.DCGM_LABELS or families.GPU_LABELS."""
    since_driver: tuple[int, ...] = ()
    """The first driver that has the field; an id that a driver doesn't know is not asked for."""


class _Bound(NamedTuple):
    """A :class:`FieldSample` of one GPU."""

    key: FieldKey
    family: Family
    labels: tuple[str, ...]


class _Tier:
    """Samples of one GPU that are made anew only when a value is another: most are not for weeks."""

    def __init__(self, entries: Sequence[_Bound] = ()) -> None:
        self._entries = entries
        self.keys = [entry.key for entry in entries]
        self._values: list[float | None] = []
        self._samples: list[Sample] = []

    def samples(self, fields: Mapping[FieldKey, float]) -> Sequence[Sample]:
        """Those that the GPU has a value for; not to be changed."""
        values = [*map(fields.get, self.keys)]
        if values != self._values:
            self._values = values
            # -1 in an unsigned is no count: a GPU in trouble may say so for a while before it is lost.
            self._samples = [
                new_sample(family, labels, value)
                for (_, family, labels), value in zip(self._entries, values, strict=True)
                if value is not None and value <= MOST_COUNT
            ]
        return self._samples


class FieldSubject:
    """See subject.Subject; ``always`` is read with every collection, ``seldom`` once in :data:`SELDOM_SECONDS`.

    A subclass may say by :meth:`now` and :meth:`rare` what else it has, beyond field values.
    """

    def __init__(self, always: Sequence[FieldSample] = (), seldom: Sequence[FieldSample] = ()) -> None:
        self._defined = (always, seldom)
        self.gpu: Opened
        self._always = _Tier()
        self._seldom = _Tier()
        self._wanted: list[FieldKey] = []
        self._wanted_seldom: list[FieldKey] = []
        self._kept: tuple[Sample, ...] = ()
        self._asked_at = 0.0
        self._read_at: float | None = None
        self.due = True
        """Whether this is a collection that reads what is seldom read."""

    def open(self, gpu: Opened) -> None:
        """Everything is new: nothing is kept from before."""
        self.gpu = gpu
        always, seldom = self.defined(gpu)
        self._always, self._seldom = _Tier(_bound(gpu, always)), _Tier(_bound(gpu, seldom))
        self._wanted = self._always.keys
        self._wanted_seldom = [*self._wanted, *self._seldom.keys]
        self.again()

    def defined(self, _gpu: Opened) -> tuple[Sequence[FieldSample], Sequence[FieldSample]]:
        """The field values for ``always`` and ``seldom``, where a subclass makes them up for each GPU."""
        return self._defined

    def again(self) -> None:
        """Forget what is kept; the next collection reads all."""
        self._kept, self._read_at = (), None

    def fields(self) -> Sequence[FieldKey]:
        """Also decides whether the coming :meth:`read` is one for what is seldom read."""
        self._asked_at = self.gpu.shared.clock.monotonic()
        self.due = self._read_at is None or self._asked_at - self._read_at >= SELDOM_SECONDS
        return self._wanted_seldom if self.due else self._wanted

    def read(self, fields: Mapping[FieldKey, float]) -> Iterable[Sample]:
        """See subject.Subject; errors: NvmlError only where the GPU as a whole is ill."""
        if self.due:
            # The first time, GPUs part ways: else all eight would read everything in the same scrape of each minute.
            early = SELDOM_SECONDS * (self.gpu.identity.index % 4) / 4 if self._read_at is None else 0.0
            self._read_at = self._asked_at - early
            self._kept = (*self._seldom.samples(fields), *self.rare(fields))
        kept = self._kept
        return (*self._always.samples(fields), *self.now(fields), *kept)

    def now(self, _fields: Mapping[FieldKey, float]) -> Iterable[Sample]:
        """What a subclass reads by itself with every collection."""
        return ()

    def rare(self, _fields: Mapping[FieldKey, float]) -> Iterable[Sample]:
        """What a subclass reads by itself once in :data:`SELDOM_SECONDS`."""
        return ()

    def structure(self, name: str) -> Any:  # noqa: ANN401  pynvml is untyped
        """A structure of the binding's for a call to fill; None where this release of it has none."""
        return optional(lambda: self.gpu.nvml.ask(name))

    def ask(self, function: str, *arguments: object) -> Any:  # noqa: ANN401  pynvml is untyped
        """What a call on the GPU's handle gives, None where it can't be had here."""
        return optional(lambda: self.gpu.nvml.ask(function, self.gpu.handle, *arguments))

    def dcgm_number(self, family: Family, function: str, most: float) -> Iterable[Sample]:
        """The sample of a DCGM family whose value is one call on the GPU's handle; none unless from 1 to ``most``."""
        value = self.ask_number(function)
        if value is not None and 1 <= value <= most:
            yield self.gpu.dcgm(family, value)

    def ask_number(self, function: str, *arguments: object) -> float | None:
        """What a call on the GPU's handle gives, where that is a number."""
        return optional(lambda: float(self.gpu.nvml.ask(function, self.gpu.handle, *arguments)))


def _bound(gpu: Opened, defined: Iterable[FieldSample]) -> list[_Bound]:
    """The samples as they are on this GPU and driver, their labels made up once."""
    driver = version_numbers(gpu.identity.driver)
    found = []
    for entry in defined:
        if driver >= entry.since_driver:
            make = gpu.dcgm if entry.family in gpu.shared.dcgm else gpu.own
            sample = make(entry.family, 0, *entry.labels)
            found.append(_Bound(entry.key, sample.family, sample.labels))
    return found


def dcgm_family(name: str, kind: MetricType, text: str, *, seldom: bool = False) -> Family:
    """A DCGM family; ``seldom`` has its help say so."""
    return Family(name, kind, _help(text, seldom=seldom), families.DCGM_LABELS)


def own_family(name: str, kind: MetricType, text: str, *labels: str, seldom: bool = False) -> Family:
    """A family of ours about one GPU; ``labels`` beyond families.GPU_LABELS."""
    return Family(name, kind, _help(text, seldom=seldom), (*families.GPU_LABELS, *labels))


def _help(text: str, *, seldom: bool) -> str:
    return f"{text.removesuffix('.')}; {SELDOM_HELP}." if seldom else text
