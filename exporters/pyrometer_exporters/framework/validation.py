"""Check a collector's samples before they are written: one that can't be written must not cost the others."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Sequence
from itertools import chain, groupby
from typing import NamedTuple, TypeGuard, cast

from pyrometer_exporters.framework.metrics import NO_SAMPLES, Columns, Down, Sample, columns_of, joined

_NUMBERS = {int, float, bool}


class Validated(NamedTuple):
    """The samples that can be written, and the parts that are down."""

    columns: Columns
    downs: list[Down]


class Validator:
    """Checks the samples of one collector.

    A sample can be served if its value is a number and it has as many label values as its family has names, all of
    them texts. Families of the names in ``left_out`` are dropped. Series are hardly ever others than in the scrape
    before: those that passed there are not looked at again.
    """

    def __init__(self, left_out: Collection[str] = ()) -> None:
        self._left_out = frozenset(left_out)
        self._passed = NO_SAMPLES

    def validate(self, items: Iterable[object]) -> Validated:
        """Split what a collector returned into samples and downs; report all that can't be served as one more Down."""
        columns, others = _split(items)
        downs = [item for item in others if _is_down(item)]
        bad = [item for item in others if not _is_down(item)]
        if self._has_passed(columns):
            # With the labels of before, which the writer of the page compares faster.
            columns = self._passed._replace(values=columns.values)
        else:
            if not (_fit(columns) and _are_numbers(columns.values)):
                served = [(sample, _served(sample)) for sample in columns.samples()]
                bad += [sample for sample, good in served if good is None]
                columns = columns_of(good for _, good in served if good is not None)
            self._passed = columns
        if self._left_out:
            columns = columns.selected([family.name not in self._left_out for family in columns.families])
        if bad:
            name = str(getattr(getattr(bad[0], "family", None), "name", type(bad[0]).__name__))
            downs.append(Down("", "bad_sample", f"samples that can't be served: {len(bad)}, the first of {name}"))
        return Validated(columns, downs)

    def _has_passed(self, columns: Columns) -> bool:
        passed = self._passed
        return columns.families == passed.families and columns.labels == passed.labels and _are_numbers(columns.values)


def _split(items: Iterable[object]) -> tuple[Columns, list[object]]:
    """Return the samples, in order, and the items that are none."""
    parts: list[Columns] = []
    others: list[object] = []
    for kind, run in groupby(items, type):
        if kind is Sample:
            parts.append(columns_of(cast("Iterable[Sample]", run)))
        elif kind is Columns:
            for columns in cast("Iterable[Columns]", run):
                (parts if len({*map(len, columns)}) == 1 else others).append(columns)
        else:
            others += run
    return joined(parts), others


def _is_down(item: object) -> TypeGuard[Down]:
    return isinstance(item, Down) and all(isinstance(text, str) for text in item)


def _fit(columns: Columns) -> bool:
    """Return whether all labels are texts, as many as the family has names."""
    try:
        "".join(chain.from_iterable(columns.labels))
        return [*map(len, columns.labels)] == [len(family.labels) for family in columns.families]
    except (TypeError, AttributeError):
        return False


def _are_numbers(values: Sequence[float]) -> bool:
    """Return whether all values are Python's own numbers, none of them beyond all floats."""
    try:
        array("d", values)
    except (TypeError, OverflowError):
        return False
    return _NUMBERS.issuperset(map(type, values))


def _served(sample: Sample) -> Sample | None:
    """Return the sample as it is served, with another library's number as a float; None if it can't be served."""
    family, labels, value = sample
    try:
        "".join(labels)
        number = float(value + 0.0)  # the sum refuses texts, which float() alone would not
        if len(labels) != len(family.labels):
            return None
    except (TypeError, ValueError, OverflowError, AttributeError):
        return None
    return sample if type(value) in _NUMBERS else Sample(family, labels, number)
