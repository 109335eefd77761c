"""Measure why a GPU's clocks are low, and for how long: eleven reasons, from driver counters or our sampler.

The driver counts nanoseconds per reason under field ids that NVIDIA has renumbered twice: on the wrong driver the id
of "software thermal slowdown" reads a power-smoothing switch. So the ids are chosen from the driver's version, never
from the binding's constants, and a counter that does what time can't do is not believed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

Method = Literal["counter", "sampled"]
NANOSECONDS = 1e9


@dataclass(frozen=True)
class Reason:
    """A clock-event reason: its label, its bit in the bitmask, and the first driver whose bitmask has that bit."""

    name: str
    bit: int
    since_driver: int = 0


# Names are those of dcgm-exporter's DCGM_EXP_CLOCK_EVENTS_COUNT, the last two ours; bits are nvml.h's.
REASONS = (
    Reason("gpu_idle", 0x1),
    Reason("clocks_setting", 0x2),
    Reason("power_cap", 0x4),
    Reason("hw_slowdown", 0x8),
    Reason("sync_boost", 0x10),
    Reason("sw_thermal", 0x20),
    Reason("hw_thermal", 0x40),
    Reason("hw_power_brake", 0x80),
    Reason("display_clocks", 0x100),
    # Before R615 the bitmask can't show these two, so sampling it would call an unknown 0.
    Reason("board_limit", 0x200, since_driver=615),
    Reason("reliability", 0x400, since_driver=615),
)
_NAMES = tuple(reason.name for reason in REASONS)
KNOWN_BITS = 0x7FF
# gpu_idle and clocks_setting last: they begin and end with a job, or by an administrator.
LASTING_BITS = 0x3
# Reasons of the driver's counters that show that a GPU was slowed down; power_cap is how a busy one works.
_SLOWDOWNS = frozenset({"sw_thermal", "hw_thermal", "hw_power_brake", "reliability"})

# NVML_FI_DEV_PERF_POLICY_*: the same ids since Volta.
_STABLE_FIELDS = {"power_cap": 74, "sync_boost": 76, "board_limit": 77, "reliability": 79}
_THERMAL_REASONS = ("sw_thermal", "hw_thermal", "hw_power_brake")

# A driver may add up its counters only now and then (nobody says how often); what is further ahead of time than this
# is no counter of nanoseconds.
COUNTER_SLACK_SECONDS = 10.0
# No driver stays loaded for thirty years; -1 in an unsigned is 585.
MOST_SECONDS = 1e9


def version_numbers(driver: str) -> tuple[int, ...]:
    """Parse a driver's version for comparisons; return an empty tuple if it isn't numbers.

    >>> version_numbers("580.65.06")
    (580, 65, 6)
    """
    parts = driver.split(".")
    return tuple(int(part) for part in parts) if all(part.isdecimal() for part in parts) else ()


def counter_fields(driver: str) -> dict[str, int]:
    """Return the field id of each reason's nanosecond counter on this driver; reasons without one are left out.

    NVIDIA's list of known issues: ids 251-273 differ between CUDA 13.0 and 13.0 U1. In 575 and up to 580.65 the three
    thermal and brake counters are 251-253; from 580.82 on 269-271, and 251 is the power-smoothing switch; between
    these nobody says, and below 575 there are none.
    """
    return {**_STABLE_FIELDS, **_thermal_fields(version_numbers(driver))}


def _thermal_fields(version: tuple[int, ...]) -> dict[str, int]:
    if version < (575,) or (580, 66) <= version < (580, 82):
        return {}
    first = 251 if version < (580, 66) else 269
    return {name: first + offset for offset, name in enumerate(_THERMAL_REASONS)}


def sampled_reasons(driver: str) -> frozenset[str]:
    """Return the reasons that this driver's bitmask can show."""
    major = (version_numbers(driver) or (0,))[0]
    return frozenset(reason.name for reason in REASONS if major >= reason.since_driver)


def seconds_by_reason(seconds_by_mask: Mapping[int, float]) -> dict[str, float]:
    """Return seconds per reason from seconds per bitmask; all eleven reasons, 0 for those never seen."""
    seconds_of = dict.fromkeys(_NAMES, 0.0)
    for mask, seconds in seconds_by_mask.items():
        if mask:
            for reason in REASONS:
                if mask & reason.bit:
                    seconds_of[reason.name] += seconds
    return seconds_of


class ClockEvent(NamedTuple):
    """A reason's accumulated time in seconds, and how it was measured."""

    reason: str
    seconds: float
    method: Method


def sampled_bits(events: Iterable[ClockEvent]) -> int:
    """Return the bits of the reasons that only the sampler can measure, those that last left out."""
    sampled = {event.reason for event in events if event.method == "sampled"}
    return sum(reason.bit for reason in REASONS if reason.name in sampled) & ~LASTING_BITS


def counted_slowdowns(events: Iterable[ClockEvent]) -> float:
    """Return the seconds of slowdowns that the driver has counted, all reasons together."""
    return sum(event.seconds for event in events if event.method == "counter" and event.reason in _SLOWDOWNS)


class ClockEvents:
    """One GPU's accumulated times, each from the best source that has proved reliable.

    Per reason: the driver's counter if the first read has one, else the sampler. A counter that goes backwards while
    the GPU stayed open, grows faster than time or stops answering isn't asked again; the sampler carries the sum on
    from there, so that what we export never falls.
    """

    def __init__(self) -> None:
        self._counted: dict[str, float] = {}  # reason -> the counter's nanoseconds, as last believed
        self._when: dict[str, float] = {}  # reason -> when they were read
        self._sampler_at: Mapping[str, float] = {}  # reason -> the sampler's seconds at the last update
        self._by_sampler: set[str] = set()
        self._events: dict[str, ClockEvent] = {}

    def reopened(self) -> None:
        """Start over after the GPU was away: its counters may have been reset to 0."""
        self._counted.clear()
        self._when.clear()

    def update(self, counters: Mapping[str, float], sampled: Mapping[str, float], now: float) -> list[ClockEvent]:
        """Return the times as of the monotonic time ``now``.

        Args:
            counters: the driver's nanoseconds, for the reasons that have a counter.
            sampled: the sampler's seconds, for the reasons that it can see; kept, so not to be changed.
            now: when ``counters`` were read.
        """
        events = [self._event(reason, counters.get(reason), sampled.get(reason), now) for reason in _NAMES]
        self._sampler_at = sampled
        return [event for event in events if event is not None]

    def _event(self, reason: str, counted: float | None, sampled: float | None, now: float) -> ClockEvent | None:
        if counted is not None and reason not in self._by_sampler:
            if counted == self._counted.get(reason):  # as nearly all are, nearly always
                self._when[reason] = now
                return self._events[reason]
            if self._plausible(reason, counted, now):
                self._counted[reason], self._when[reason] = counted, now
                return self._set(reason, counted / NANOSECONDS, "counter")
        return None if sampled is None else self._sampled(reason, sampled)

    def _sampled(self, reason: str, sampled: float) -> ClockEvent:
        self._by_sampler.add(reason)
        before = self._events.get(reason)
        # From the last sum on; where there is none, all that the sampler has seen.
        grown = sampled - self._sampler_at.get(reason, sampled if before else 0.0)
        if before is not None and before.method == "sampled" and grown <= 0:
            return before
        return self._set(reason, (before.seconds if before else 0.0) + max(0.0, grown), "sampled")

    def _set(self, reason: str, seconds: float, method: Method) -> ClockEvent:
        event = self._events[reason] = ClockEvent(reason, seconds, method)
        return event

    def _plausible(self, reason: str, counted: float, now: float) -> bool:
        before, when = self._counted.get(reason, max(0.0, counted)), self._when.get(reason, now)
        if counted > MOST_SECONDS * NANOSECONDS:
            return False
        return 0 <= (counted - before) / NANOSECONDS <= (now - when) + COUNTER_SLACK_SECONDS
