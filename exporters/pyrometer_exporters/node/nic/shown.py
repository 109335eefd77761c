"""What is shown of the ports: samples are made anew only of what is new, and given in batches that stay the same.

A port's samples come in parts: one for each group of counters, one for its link. Of a node's thousand series, a scrape
changes a few dozen; all others cost nothing here, and nothing where they are checked and written.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import NamedTuple

from pyrometer_exporters.framework.metrics import Batch, Family, Sample


class _Part(NamedTuple):
    """``state`` is what the samples were made from."""

    state: object
    samples: list[Sample]


class _Batches(NamedTuple):
    """Those of all ports' parts of one kind, and the parts that they were made from."""

    parts: list[list[Sample]]
    by_family: dict[Family, Batch]


class Shown:
    """The parts of the scrape before and of this one, by kind and port."""

    def __init__(self) -> None:
        self._before: dict[tuple[Hashable, Hashable], _Part] = {}
        self._now: dict[tuple[Hashable, Hashable], _Part] = {}
        self._kinds: dict[Hashable, list[list[Sample]]] = {}
        self._batches: dict[Hashable, _Batches] = {}

    def begin(self) -> None:
        """A scrape begins: what the one before did not show is forgotten."""
        self._before, self._now, self._kinds = self._now, {}, {}

    def show(self, kind: Hashable, of: Hashable, state: object, make: Callable[[], list[Sample]]) -> None:
        """A part: what ``make`` gives, or gave when ``state`` was the same or an equal tuple."""
        part = self._before.get((kind, of))
        if part is None or not (part.state is state or part.state == state):
            part = _Part(state, make())
        self._now[kind, of] = part
        self._kinds.setdefault(kind, []).append(part.samples)

    def batches(self) -> Iterator[Batch]:
        """All that was shown in this scrape."""
        before, self._batches = self._batches, {}
        for kind, parts in self._kinds.items():
            known = before.get(kind) or _Batches([], {})
            if known.parts != parts:
                known = _Batches(parts, _by_family(parts, known.by_family))
            self._batches[kind] = known
            yield from known.by_family.values()


def _by_family(parts: list[list[Sample]], before: dict[Family, Batch]) -> dict[Family, Batch]:
    families: dict[Family, list[Sample]] = {}
    for samples in parts:
        for sample in samples:
            families.setdefault(sample.family, []).append(sample)
    return {family: _batch(family, tuple(samples), before.get(family)) for family, samples in families.items()}


def _batch(family: Family, samples: tuple[Sample, ...], before: Batch | None) -> Batch:
    return before if before is not None and before.samples == samples else Batch(family, samples)
