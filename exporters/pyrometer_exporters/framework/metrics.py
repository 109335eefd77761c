"""Metric families, each defined once under its full literal name, and their samples.

A family's definition drives the exposition, ``docs/metrics.md`` and the tests, so there is one place to look.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, compress
from typing import Literal, NamedTuple

from pyrometer_exporters.framework import deprecation

MetricType = Literal["counter", "gauge"]


class Sample(NamedTuple):
    """One value of one series."""

    family: Family
    labels: tuple[str, ...]
    value: float


def new_sample(family: Family, labels: tuple[str, ...], value: float) -> Sample:
    """Make a sample without any check, for collectors that make hundreds: validation checks them all together."""
    return _new(Sample, (family, labels, value))


_new = tuple.__new__


@dataclass(frozen=True, eq=False)
class Family:
    """A metric family.

    Attributes:
        name: the full name as scraped, ``_total`` included for counters, so that grep finds it.
        type: ``counter`` or ``gauge``; an info metric is a gauge that is always 1.
        help: one sentence, unit included, naming where the value comes from.
        labels: label names, in the order in which samples give their values.
    """

    name: str
    type: MetricType
    help: str
    labels: tuple[str, ...] = ()

    @property
    def is_deprecated(self) -> bool:
        """True if the next minor release removes it."""
        return self.name in deprecation.DEPRECATED

    @property
    def full_help(self) -> str:
        """The help text as served: a deprecated metric's says so."""
        return f"{self.help} {deprecation.NOTICE}" if self.is_deprecated else self.help

    def sample(self, value: float, *labels: str) -> Sample:
        """Make a sample of this family.

        Raises:
            ValueError: there are not as many label values as the family has label names.
        """
        if len(labels) != len(self.labels):
            msg = f"{self.name} has labels {self.labels}, got {labels}"
            raise ValueError(msg)
        return _new(Sample, (self, labels, value))


class Families:
    """Families declared in rows: the name as scraped, the help text, and labels beyond those that all rows share.

    Iterating gives all families in the order of their declaration, so no second list of them is needed.

    >>> PORT = Families("device", "port")
    >>> MTU = PORT.gauge("pyrometer_nic_mtu_bytes", "The interface's largest packet, in bytes. mtu.")
    >>> SETTING = PORT.gauge("pyrometer_nic_interface_setting", "A number that the interface is set to.", "setting")
    >>> LOSSES = PORT.counter("pyrometer_nic_link_down_events_total", "Losses of the link.")
    >>> [(family.type, family.labels) for family in PORT]
    [('gauge', ('device', 'port')), ('gauge', ('device', 'port', 'setting')), ('counter', ('device', 'port'))]
    """

    def __init__(self, *labels: str) -> None:
        self._labels = labels
        self._declared: list[Family] = []

    def __iter__(self) -> Iterator[Family]:
        """Yield the families in the order of their declaration."""
        return iter(self._declared)

    def gauge(self, name: str, text: str, *labels: str) -> Family:
        """Declare a gauge or an info metric; the shared labels come before its own."""
        return self.add(Family(name, "gauge", text, self._labels + labels))

    def counter(self, name: str, text: str, *labels: str) -> Family:
        """Declare a counter, ``_total`` included in its name; the shared labels come before its own."""
        return self.add(Family(name, "counter", text, self._labels + labels))

    def add(self, family: Family) -> Family:
        """Append a family whose labels are its own alone."""
        self._declared.append(family)
        return family


class Series(NamedTuple):
    """Points of one series, each a value and a timestamp in milliseconds since the epoch, in order of time."""

    family: Family
    labels: tuple[str, ...]
    points: Sequence[tuple[float, int]]


class Down(NamedTuple):
    """A part of a collector (a GPU, a device, a group of files) that can't be read now, and why.

    ``reason`` is a short fixed word such as ``deadline`` or ``no_driver``: it becomes a label value.
    """

    part: str
    reason: str
    detail: str = ""


class Columns(NamedTuple):
    """Samples by column, all of one length.

    The form of hundreds of samples: a collector that keeps the first two columns from scrape to scrape makes only the
    third again, and checking and comparing them is cheap (``benchmarks/bench_exposition.py``).
    """

    families: tuple[Family, ...]
    labels: tuple[tuple[str, ...], ...]
    values: tuple[float, ...]

    def samples(self) -> list[Sample]:
        """Return the samples one by one."""
        return [*map(Sample, self.families, self.labels, self.values)]

    def selected(self, chosen: Sequence[bool]) -> Columns:
        """Return the samples that are chosen, by place."""
        return Columns(
            tuple(compress(self.families, chosen)),
            tuple(compress(self.labels, chosen)),
            tuple(compress(self.values, chosen)),
        )


Item = Sample | Columns | Down
"""A part of what a collector returns."""
NO_SAMPLES = Columns((), (), ())


Row = Sample | tuple[Family, tuple[str, ...], float]
"""A sample; as a plain tuple, which costs less to make, where it becomes a part of columns at once."""


def columns_of(samples: Iterable[Row]) -> Columns:
    """Return samples by column."""
    return Columns(*columns) if (columns := tuple(zip(*samples, strict=True))) else NO_SAMPLES


def joined(parts: Iterable[Columns]) -> Columns:
    """Return all samples of some columns, one after the other."""
    return Columns(*(tuple(chain.from_iterable(column)) for column in zip(NO_SAMPLES, *parts, strict=True)))


def samples_in(items: Iterable[object]) -> list[Sample]:
    """Return all samples of what a collector returned, one by one."""
    parts = (item.samples() if isinstance(item, Columns) else [item] for item in items)
    return [item for part in parts for item in part if isinstance(item, Sample)]
