"""Check a collector's samples before they are written: one that can't be written must not cost the others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pyrometer_exporters.framework.metrics import Down, Sample


class Validated(NamedTuple):
    """The samples that can be written, and the parts that are down."""

    samples: list[Sample]
    downs: list[Down]


def validate(items: Iterable[object]) -> Validated:
    """Split what a collector returned into samples and downs; report all that can't be served as one more Down.

    A sample can be served if its value is a number and it has as many label values as its family has names, all of
    them texts.
    """
    samples: list[Sample] = []
    downs: list[Down] = []
    bad: list[object] = []
    for item in items:
        if isinstance(item, Sample):
            # Not in a function of its own: there are thousands.
            family, labels, value = item
            try:
                "".join(labels)
                if len(labels) == len(family.labels):
                    sample = item
                    if isinstance(value, int):
                        _ = value + 0.0  # OverflowError if it is beyond all floats
                    elif type(value) is not float:
                        sample = Sample(family, labels, _number(value))
                    samples.append(sample)
                    continue
            except (TypeError, ValueError, OverflowError, AttributeError):
                pass
        elif isinstance(item, Down) and all(isinstance(text, str) for text in item):
            downs.append(item)
            continue
        bad.append(item)
    if bad:
        name = str(getattr(getattr(bad[0], "family", None), "name", type(bad[0]).__name__))
        downs.append(Down("", "bad_sample", f"samples that can't be served: {len(bad)}, the first of {name}"))
    return Validated(samples, downs)


def _number(value: float) -> float:
    """Return another library's number as a float.

    Raises:
        TypeError, ValueError, OverflowError: it is none.
    """
    return float(value + 0.0)  # the sum refuses texts, which float() alone would not
