"""A subject made of field values, in two tiers: values that can change at any moment, and those that hardly ever do.

NVML's calls are not equally cheap: counts of retired pages or the state of the fabric come from the firmware or the
board's EEPROM. Those are read at most every :data:`SELDOM_SECONDS` and cached in between, so no value is ever older
than that; their HELP says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyrometer_exporters.framework.metrics import Columns, Family, Sample, columns_of
from pyrometer_exporters.node.gpu.clock_events import version_numbers
from pyrometer_exporters.node.gpu.families import SELDOM_SECONDS
from pyrometer_exporters.node.gpu.nvml import FieldKey, optional
from pyrometer_exporters.node.gpu.readings import MOST_COUNT
from pyrometer_exporters.node.gpu.subject import BoundSamples, OpenGpu


@dataclass(frozen=True)
class FieldSample:
    """A field value and its sample."""

    key: FieldKey
    family: Family
    labels: tuple[str, ...] = ()
    """Values of the labels that the family has beyond families.DCGM_LABELS or families.GPU_LABELS."""
    since_driver: tuple[int, ...] = ()
    """The first driver that has the field; an id that a driver doesn't know is not asked for."""


class FieldSubject:
    """A subject.Subject; ``always`` is read with every collection, ``seldom`` once in :data:`SELDOM_SECONDS`.

    A subclass may add to them, beyond field values, by :meth:`now` and :meth:`rare`.
    """

    def __init__(self, always: Sequence[FieldSample] = (), seldom: Sequence[FieldSample] = ()) -> None:
        self._defined = (always, seldom)
        self.gpu: OpenGpu
        self._always = self._seldom = BoundSamples({})
        self._wanted: list[FieldKey] = []
        self._wanted_seldom: list[FieldKey] = []
        self._kept: tuple[Columns, ...] = ()
        self._asked_at = 0.0
        self._read_at: float | None = None
        self.due = True
        """True in a collection that reads the seldom tier."""

    def open(self, gpu: OpenGpu) -> None:
        """Begin with a GPU that was opened: drop all cached values."""
        self.gpu = gpu
        always, seldom = self.defined(gpu)
        by_key, by_key_seldom = _bound(gpu, always), _bound(gpu, seldom)
        self._wanted, self._wanted_seldom = [*by_key], [*by_key, *by_key_seldom]
        # -1 in an unsigned is no count: a GPU in trouble may return it for a while before it is lost.
        self._always, self._seldom = (BoundSamples(bound, 0, MOST_COUNT) for bound in (by_key, by_key_seldom))
        self.again()

    def defined(self, _gpu: OpenGpu) -> tuple[Sequence[FieldSample], Sequence[FieldSample]]:
        """Return the field values for ``always`` and ``seldom``; a subclass may choose them by the GPU."""
        return self._defined

    def again(self) -> None:
        """Drop the cached values, so that the next collection reads all."""
        self._kept, self._read_at = (), None

    def fields(self) -> Sequence[FieldKey]:
        """Return the fields wanted now; also decides whether the coming :meth:`read` reads the seldom tier."""
        self._asked_at = self.gpu.context.clock.monotonic()
        self.due = self._read_at is None or self._asked_at - self._read_at >= SELDOM_SECONDS
        return self._wanted_seldom if self.due else self._wanted

    def read(self, fields: Mapping[FieldKey, float]) -> Iterable[Sample | Columns]:
        """Return the samples of now.

        Raises:
            NvmlError: the GPU as a whole is in trouble.
        """
        if self.due:
            # Stagger the GPUs: else all eight would read everything in the same scrape of each minute.
            early = SELDOM_SECONDS * (self.gpu.identity.index % 4) / 4 if self._read_at is None else 0.0
            self._read_at = self._asked_at - early
            self._kept = self._seldom.read(fields), columns_of(self.rare(fields))
        kept = self._kept
        return (self._always.read(fields), *self.now(fields), *kept)

    def now(self, _fields: Mapping[FieldKey, float]) -> Iterable[Sample | Columns]:
        """Return samples that a subclass reads on its own with every collection."""
        return ()

    def rare(self, _fields: Mapping[FieldKey, float]) -> Iterable[Sample]:
        """Return samples that a subclass reads on its own once in :data:`SELDOM_SECONDS`."""
        return ()

    def structure(self, name: str) -> Any:  # noqa: ANN401  pynvml is untyped
        """Make a structure of the binding for a call to fill; None where this release of it has none."""
        return optional(lambda: self.gpu.nvml.ask(name))

    def ask(self, function: str, *arguments: object) -> Any:  # noqa: ANN401  pynvml is untyped
        """Call a function on the GPU's handle; None where its result is unavailable here."""
        return optional(lambda: self.gpu.nvml.ask(function, self.gpu.handle, *arguments))

    def dcgm_number(self, family: Family, function: str, most: float) -> Iterable[Sample]:
        """Yield the sample of a DCGM family whose value is one call on the handle; none unless from 1 to ``most``."""
        value = self.ask_number(function)
        if value is not None and 1 <= value <= most:
            yield self.gpu.dcgm(family, value)

    def ask_number(self, function: str, *arguments: object) -> float | None:
        """Call a function on the GPU's handle and return its number; None where that is unavailable here."""
        return optional(lambda: float(self.gpu.nvml.ask(function, self.gpu.handle, *arguments)))


def _bound(gpu: OpenGpu, defined: Iterable[FieldSample]) -> dict[FieldKey, Sample]:
    """Bind the fields that this driver has to this GPU's labels."""
    driver = version_numbers(gpu.identity.driver)
    usable = [entry for entry in defined if driver >= entry.since_driver]
    return {
        entry.key: (gpu.dcgm if entry.family in gpu.context.dcgm else gpu.own)(entry.family, 0, *entry.labels)
        for entry in usable
    }
