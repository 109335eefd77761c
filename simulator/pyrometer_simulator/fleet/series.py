"""The cluster's series at a moment: what each kind of exporter would tell."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pyrometer_simulator.fleet.plan import EPOCH

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Values = Callable[[float], Array]


@dataclass(frozen=True)
class Family:
    """Series of one name: the text of each with its labels, and their values at a moment; NaN is absent.

    ``slow`` ones hardly change: in a history they need a sample within Prometheus' lookback, no more.
    """

    name: str
    series: Sequence[str]
    values: Values
    slow: bool = False


def family(name: str, labels: Sequence[str], values: Values | Array, *, slow: bool = False) -> Family:
    """Series of a name with those labels; an array is what they always are."""
    return Family(
        name, [f"{name}{{{each}}}" for each in labels], values if callable(values) else constant(values), slow
    )


def constant(value: Array) -> Values:
    """The same at every moment."""
    return lambda _: value


def growing(rate: Array, digits: int = 3) -> Values:
    """Counters that grow by so much a second; NaN stays absent."""
    return lambda at: np.round(rate * (at - EPOCH), digits)


def turning(before: Array, after: Array, since: float, digits: int = 4) -> Values:
    """Counters whose rate changes at a moment, and that never jump."""
    return lambda at: np.round(before * (min(at, since) - EPOCH) + after * max(0.0, at - since), digits)


def stepping(rate: Array, since: float) -> Values:
    """Counters of events that come so often a second from a moment on, the first at once."""
    return lambda at: np.ceil(rate * max(0.0, at - since))


def waving(base: Array, phase: Array, much: float, digits: int = 1) -> Values:
    """Gauges that wander around a value, each in its own time."""
    return lambda at: np.round(base + much * np.sin(at / 97 + phase), digits)


def chosen(everyone: Sequence[tuple[int, int]], where: tuple[int, int] | None) -> Mask:
    """Which of (node, part) is that one; none where there is none."""
    return np.array([each == where for each in everyone], dtype=bool)


def absent_where(gone: Mask, value: Array | float) -> Array:
    """Values that are absent for some."""
    return np.where(gone, np.nan, value)


def together(*groups: Iterator[Family]) -> list[Family]:
    """All families of some groups."""
    return [each for group in groups for each in group]
