"""Synthetic MFU curves with a known fault, on which the signature classifier is measured.

Every kind has random parameters, and all curves have white noise, single odd batches, tagged checkpoints and a slow
drift, like real runs. The generator is independent of the classifier's thresholds; the figures of the kinds are those
of the reports that described them (Imbue 70B, MegaScale, SmolLM3, Llama 3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
LEAST_STEPS, LEAST_SECONDS = 600, 3600.0  # the window of the classifier
CHECKPOINT_SECONDS = 900.0


@dataclass(frozen=True)
class Trace:
    """One run: end time, MFU and number of each batch, whether it is tagged, its attempt; the expected MFU."""

    kind: str
    at: Floats
    mfu: Floats
    step: Floats
    tagged: NDArray[np.bool_]
    attempt: NDArray[np.int64]
    expected: float
    silent_seconds: float = 0.0


@dataclass
class _Drawing:
    """A curve under construction: `ratio` by batch of `seconds` each, ending at `at` seconds."""

    random: np.random.Generator
    seconds: float
    at: Floats
    ratio: Floats
    attempt: NDArray[np.int64]
    silent_seconds: float = 0.0

    @property
    def span(self) -> float:
        return float(self.at[-1])

    def stall(self, when: float, factor: float) -> None:
        """Lengthen one batch by far."""
        self.ratio[min(int(np.searchsorted(self.at, when)), len(self.at) - 1)] *= factor

    def dip(self, when: float, lasts: float, factor: float) -> None:
        """Slow all batches in a period; a batch partly in it is slowed in proportion."""
        begin = self.at - self.seconds
        touched = np.clip(np.minimum(self.at, when + lasts) - np.maximum(begin, when), 0, None) / self.seconds
        self.ratio *= 1 / (1 + np.minimum(touched, 1.0) * (1 / factor - 1))


def _steady(_drawing: _Drawing) -> None:
    """Leave the curve unchanged."""


def _level(low: float, high: float) -> Callable[[_Drawing], None]:
    def paint(drawing: _Drawing) -> None:
        drawing.ratio *= drawing.random.uniform(low, high)

    return paint


def _regular_stalls(drawing: _Drawing) -> None:
    every = int(drawing.random.integers(max(len(drawing.at) // 40, 4), max(len(drawing.at) // 6, 6)))
    drawing.ratio[drawing.random.integers(every) :: every] *= drawing.random.uniform(0.05, 0.3)


def _rare_stalls(drawing: _Drawing) -> None:
    when = 0.0
    mean = min(drawing.random.uniform(420.0, 900.0), drawing.span / 4)
    while (when := when + drawing.random.exponential(mean)) < drawing.span:
        drawing.stall(when, drawing.random.uniform(0.05, 0.3))


def _stall_burst(drawing: _Drawing) -> None:
    """Stall the step several times in a row, as a flapping link does."""
    when, count = drawing.random.uniform(0.1, 0.8) * drawing.span, int(drawing.random.integers(3, 9))
    every = max(drawing.random.uniform(2.0, 15.0), 3 * drawing.seconds)
    for number in range(count):
        drawing.stall(when + number * every * drawing.random.uniform(0.8, 1.2), drawing.random.uniform(0.05, 0.4))


def _gradual_decline(drawing: _Drawing) -> None:
    depth = drawing.random.uniform(0.06, 0.25)
    restart = drawing.random.uniform(0.55, 0.8) if drawing.random.random() < 0.5 else 1.0
    place = np.linspace(0, 1, len(drawing.at))
    drawing.ratio *= 1 - depth * np.where(place < restart, place, place - restart)
    drawing.attempt += (place >= restart).astype(np.int64)


def _frequent_dips(drawing: _Drawing) -> None:
    every, factor = drawing.random.uniform(10.0, 30.0), drawing.random.uniform(0.6, 0.8)
    lasts = drawing.random.uniform(0.15, 0.35) * every
    when = drawing.random.uniform(0.0, 0.5) * drawing.span
    while (when := when + every * drawing.random.normal(1.0, 0.06)) < drawing.span:
        drawing.dip(when, lasts, factor)


def _noisy(drawing: _Drawing) -> None:
    drawing.ratio *= drawing.random.uniform(0.90, 1.0, len(drawing.at))


def _step_down(drawing: _Drawing) -> None:
    when = drawing.random.uniform(0.2, 0.9) * drawing.span
    drawing.ratio[drawing.at >= when] *= drawing.random.uniform(0.55, 0.92)


def _spell(drawing: _Drawing) -> None:
    start, lasts = drawing.random.uniform(0.15, 0.6), drawing.random.uniform(0.1, 0.25)
    inside = (drawing.at >= start * drawing.span) & (drawing.at < (start + lasts) * drawing.span)
    drawing.ratio[inside] *= drawing.random.uniform(0.55, 0.9)


def _stopped(drawing: _Drawing) -> None:
    drawing.silent_seconds = max(30 * drawing.seconds, 120.0)


def _mixture(drawing: _Drawing) -> None:
    """Let the level wander: a real fault of no known kind."""
    steps = drawing.random.normal(0, 1, len(drawing.at) // max(len(drawing.at) // 12, 1) + 2)
    wander = np.interp(np.linspace(0, 1, len(drawing.at)), np.linspace(0, 1, len(steps)), np.cumsum(steps))
    wander -= wander.max()
    drawing.ratio *= np.clip(1 + wander / max(-wander.min(), 1e-9) * drawing.random.uniform(0.2, 0.4), 0.2, 1)


KINDS: Mapping[str, Callable[[_Drawing], None]] = {
    "steady": _steady,
    "tenth_from_start": _level(0.04, 0.12),
    "third_from_start": _level(0.22, 0.38),
    "low_from_start": _level(0.55, 0.84),
    "regular_stalls": _regular_stalls,
    "rare_stalls": _rare_stalls,
    "stall_burst": _stall_burst,
    "gradual_decline": _gradual_decline,
    "frequent_dips": _frequent_dips,
    "noisy": _noisy,
    "step_down": _step_down,
    "spell": _spell,
    "stopped": _stopped,
    "unknown": _mixture,
}


def trace(kind: str, seed: int, step_seconds: float, rough: float = 1.0) -> Trace:
    """Return the curve of a run with this fault, deterministic in the arguments; times start at 0.

    `rough` multiplies the noise of the curve.
    """
    random = np.random.default_rng([seed, list(KINDS).index(kind), round(1000 * step_seconds)])
    steps = max(LEAST_STEPS, round(LEAST_SECONDS / step_seconds))
    at = step_seconds * np.arange(1, steps + 1, dtype=float)
    noise = rough * random.uniform(0.003, 0.01)
    drift = random.uniform(-0.004, 0.004) * np.sin(np.linspace(0, random.uniform(2, 7), steps))
    ratio = 1 + random.normal(0, noise, steps) + drift
    odd = random.random(steps) < 0.0005  # the single slow batches of every real run: shallow and rare
    ratio[odd] *= random.uniform(0.75, 0.95, int(odd.sum()))
    drawing = _Drawing(random, step_seconds, at, ratio, np.zeros(steps, dtype=np.int64))
    KINDS[kind](drawing)
    tagged = np.zeros(steps, dtype=np.bool_)
    every = max(round(CHECKPOINT_SECONDS / step_seconds), 20)
    tagged[every - 1 :: every] = True
    drawing.ratio[tagged] *= random.uniform(0.05, 0.4, int(tagged.sum()))
    expected = random.uniform(0.25, 0.55)
    return Trace(
        kind=kind,
        at=at,
        mfu=drawing.ratio * expected,
        step=np.arange(1, steps + 1, dtype=float),
        tagged=tagged,
        attempt=drawing.attempt,
        expected=expected,
        silent_seconds=drawing.silent_seconds,
    )


@dataclass(frozen=True)
class Fall:
    """A healthy run that drops at `began` and recovers at `back`, or never (seconds as of `run`)."""

    run: Trace
    began: float
    back: float = float("inf")


SLOW = ("gradual_decline", "unknown")  # kinds whose first batch is not slow
FLAPS, FLAP_EVERY_SECONDS, FLAPS_UNTIL_SECONDS = 3, 3.0, 4.0


def fall(kind: str, seed: int, step_seconds: float, *, flaps: bool = True) -> Fall:
    """Return a healthy hour, a link that flaps three times at its end, and 4 s later a fault that starts then.

    The fault starts with its first slow batch; the kinds of `SLOW` decline from a good level.
    """
    random = np.random.default_rng([7, seed, list(KINDS).index(kind), round(1000 * step_seconds)])
    good = max(LEAST_STEPS, round(LEAST_SECONDS / step_seconds))
    trouble = _trouble(kind, random, step_seconds, good)
    ratio = np.concatenate([np.ones(good), trouble])
    if flaps:
        ratio[_flaps(good, step_seconds)] *= step_seconds / (step_seconds + random.uniform(1.0, 4.0, FLAPS))
    ratio *= 1 + random.normal(0, random.uniform(0.003, 0.01), len(ratio))
    at = step_seconds * np.arange(1, len(ratio) + 1, dtype=float)
    low = np.flatnonzero(trouble < 0.95)
    back = float(at[good + low[-1]]) if kind == "spell" else float("inf")
    whole = np.zeros(len(at), dtype=np.int64)
    run = Trace(kind, at, ratio, at / step_seconds, whole.astype(np.bool_), whole, expected=1.0)
    return Fall(run, began=float(at[good - 1]), back=back)


def _trouble(kind: str, random: np.random.Generator, seconds: float, steps: int) -> Floats:
    at = seconds * np.arange(1, steps + 1, dtype=float)
    drawing = _Drawing(random, seconds, at, np.ones(steps), np.zeros(steps, dtype=np.int64))
    KINDS[kind](drawing)
    if kind in SLOW:
        gentle: Floats = drawing.ratio / drawing.ratio[0]
        return gentle
    return drawing.ratio[int(np.argmax(drawing.ratio < 0.95)) :]


def _flaps(good: int, seconds: float) -> NDArray[np.int64]:
    """Return the batches that wait for the link, never two in a row."""
    before = np.maximum(
        FLAPS_UNTIL_SECONDS + FLAP_EVERY_SECONDS * np.arange(FLAPS), seconds * 2 * np.arange(1, FLAPS + 1)
    )
    found: NDArray[np.int64] = good - 1 - np.round(before / seconds).astype(np.int64)
    return found
