"""What of a collector's samples can be written, found by looking at those only that it did not give the time before.

A node has three thousand samples, nine in ten of them as they were. One that can't be written would cost everyone the
scrape: it is left out and told of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import compress, count, repeat
from operator import ne
from typing import NamedTuple, cast

from pyrometer_exporters.framework.collector import Collector
from pyrometer_exporters.framework.metrics import Batch, Down, Family, Sample


class Found(NamedTuple):
    """What a collector gave, as far as it can be written."""

    items: list[Sample | Batch]
    downs: list[Down]


class Sound:
    """What one collector gave, from scrape to scrape; for one thread at a time.

    A family all of whose samples are as they were is given as the same batch again, which costs nothing where it is
    written.
    """

    def __init__(self) -> None:
        self._before: list[Sample | Batch | Down] | None = None
        """All that was given the time before; None if some of it could not be written."""
        self._places: dict[Family, list[int]] = {}
        self._others: list[int] = []
        """The places of what is no sample."""
        self._batches: dict[Family, Batch] = {}

    def job(self, collector: Collector, until: float) -> Callable[[], Found]:
        """One collection."""
        return lambda: self.found(collector.collect(until))

    def found(self, given: Iterable[Sample | Batch | Down]) -> Found:
        """The items that can be written; for the others one Down."""
        items = list(given)
        bad: list[object] = []
        changed = self._changed(items)
        if changed is None:
            changed = self._sorted(items, bad)
        for family in changed:
            samples = cast("list[Sample]", [items[place] for place in self._places[family]])
            self._batches[family] = _batch(samples, self._batches[family], bad)
        found = self._served(items, bad)
        self._before = None if bad else items
        return found

    def _changed(self, items: list[Sample | Batch | Down]) -> Iterable[Family] | None:
        """The families with another sample somewhere; None where they are not in the same places as before."""
        if self._before is None or len(items) != len(self._before):
            return None
        changed: dict[Family, None] = {}
        for place in _differing(items, self._before):
            item, before = items[place], self._before[place]
            if isinstance(item, Sample) and isinstance(before, Sample) and item[0] is before[0]:
                changed[item[0]] = None
            elif isinstance(item, Sample) or isinstance(before, Sample):
                return None
        return changed

    def _sorted(self, items: list[Sample | Batch | Down], bad: list[object]) -> Iterable[Family]:
        """Find the places of all anew; the families."""
        self._places, self._others = {}, []
        for place, item in enumerate(items):
            if not isinstance(item, Sample):
                self._others.append(place)
                continue
            try:
                self._places.setdefault(item[0], []).append(place)
            except TypeError:  # what can't even be looked up
                bad.append(item)
        # In the order in which they come now.
        self._batches = {family: self._batches.get(family) or Batch(family, ()) for family in self._places}
        return self._places

    def _served(self, items: list[Sample | Batch | Down], bad: list[object]) -> Found:
        found = Found([], [])
        for place in self._others:
            _take(items[place], found, bad)
        found.items.extend(batch for batch in self._batches.values() if batch.samples)
        if bad:
            name = str(getattr(getattr(bad[0], "family", None), "name", type(bad[0]).__name__))
            found.downs.append(Down("", "bad_sample", f"{len(bad)} samples that can't be served, the first of {name}"))
        return found


def _differing(items: Sequence[object], before: Sequence[object]) -> Iterable[int]:
    """The places where they differ, or all where they can't be compared."""
    try:
        return [*compress(count(), map(ne, items, before))]
    except Exception:  # noqa: BLE001  whatever a collector took for a value
        return range(len(items))


def _take(item: Sample | Batch | Down, found: Found, bad: list[object]) -> None:
    """What is no sample."""
    if isinstance(item, Batch):
        item.checked = item.checked or all(_fits(one) and one.family is item.family for one in item.samples)
        if item.checked:
            found.items.append(item)
        else:
            found.items.extend(sample for sample in item.samples if _fits(sample))
            bad.extend(sample for sample in item.samples if not _fits(sample))
    elif isinstance(item, Down) and _fits(item):
        found.downs.append(item)
    else:
        bad.append(item)


def _batch(samples: list[Sample], before: Batch, bad: list[object]) -> Batch:
    """Those that can be written: the batch before where all are the same, else its samples where they are."""
    if _same(before.samples, tuple(samples)):
        return before
    known: Iterable[Sample | None] = before.samples if len(before.samples) == len(samples) else repeat(None)
    fit = []
    for old, new in zip(known, samples, strict=False):
        if old is not None and _same(old, new):
            fit.append(old)
        elif _fits(new):
            fit.append(new)
        else:
            bad.append(new)
    batch = Batch(before.family, tuple(fit))
    batch.checked = True
    return batch


def _same(old: tuple[object, ...], new: tuple[object, ...]) -> bool:
    try:
        return old == new
    except Exception:  # noqa: BLE001  whatever a collector took for a value
        return False


def _fits(item: Sample | Down) -> bool:
    try:
        if isinstance(item, Sample):
            family, labels, value = item
            if type(value) is not float:
                float(value + 0.0)  # the sum refuses texts, which float() alone would not
            "".join(labels)
            return len(labels) == len(family.labels)
        "".join(item)
    except (TypeError, ValueError, OverflowError, AttributeError):
        return False
    return isinstance(item, Down)
