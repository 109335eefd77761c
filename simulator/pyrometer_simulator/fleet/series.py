"""Series whose values are functions of time, and the shapes that these functions take."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pyrometer_simulator.fleet.plan import EPOCH
from pyrometer_simulator.vocabulary import text

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Values = Callable[[float], Array]
"""The values of a family's series at a time (seconds since the epoch); NaN is absent."""


@dataclass(frozen=True)
class Family:
    """The series of one metric name.

    Attributes:
        series: each series' text, with its labels.
        values: their values at a time.
        slow: True for series that hardly change: in a history they need a sample within Prometheus' lookback.
    """

    name: str
    series: Sequence[str]
    values: Values
    slow: bool = False


def family(name: str, labels: Sequence[str], values: Values | Array, *, slow: bool = False) -> Family:
    """Return the series of a name with these labels; an array stands for constant values."""
    return Family(
        name, [f"{name}{{{each}}}" for each in labels], values if callable(values) else constant(values), slow
    )


def rows(
    labels: Sequence[str], values: Mapping[str, Values | Array | float], *, slow: bool = False
) -> Iterator[Family]:
    """Yield families with the same labels, by their names."""
    for name, value in values.items():
        yield family(name, labels, np.full(len(labels), value) if isinstance(value, (int, float)) else value, slow=slow)


def with_labels(labels: Sequence[str], **more: str) -> list[str]:
    """Return the labels of series with further ones."""
    return [f"{each},{text(more)}" for each in labels]


def constant(value: Array) -> Values:
    """Return the same values at every time."""
    return lambda _: value


def counter(rate: Array, digits: int = 3) -> Values:
    """Return counters with a constant rate per second; NaN stays absent."""
    return lambda at: np.round(rate * (at - EPOCH), digits)


def counter_with_turn(before: Array, after: Array, since: float, digits: int = 4) -> Values:
    """Return counters whose rate changes at ``since``, without a jump."""
    return lambda at: np.round(before * (min(at, since) - EPOCH) + after * max(0.0, at - since), digits)


def event_counter(rate: Array, since: float) -> Values:
    """Return counters of events with a rate per second, the first of them at ``since``."""
    return lambda at: np.ceil(rate * max(0.0, at - since))


def oscillating(base: Array, phase: Array, amplitude: float, digits: int = 1) -> Values:
    """Return gauges that oscillate around a value, each with its own phase."""
    return lambda at: np.round(base + amplitude * np.sin(at / 97 + phase), digits)


def mask_of(pairs: Sequence[tuple[int, int]], wanted: tuple[int, int] | None) -> Mask:
    """Return where a (node, device) pair is the wanted one; nowhere for None."""
    return np.array([each == wanted for each in pairs], dtype=bool)


def nan_where(absent: Mask, value: Array | float) -> Array:
    """Return the values with NaN where they are absent."""
    return np.where(absent, np.nan, value)


def flatten(*groups: Iterator[Family]) -> list[Family]:
    """Return all families of several groups."""
    return [each for group in groups for each in group]
