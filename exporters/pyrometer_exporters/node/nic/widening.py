"""Counters that start again at 0 after 32 bits, continued to 64.

At 10 million requests a second 32 bits last 7 minutes, and PromQL takes the wrap for a reset and undercounts.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pyrometer_exporters.node.nic.counters import Counter


@dataclass
class Widening:
    """The wraps of one port's counters, by file; ``last`` holds their latest raw values."""

    wraps: dict[str, int] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)

    def value(self, counter: Counter, raw: int) -> int:
        """The counter's value, wider than the device's where it has wrapped."""
        if counter.bits < 64 and not counter.pins:
            last = self.last.get(counter.file, 0)
            if raw < last:
                self._went_back(counter, last, raw)
            self.last[counter.file] = raw
        return (raw + (self.wraps.get(counter.file, 0) << counter.bits)) * counter.factor

    def clear(self) -> None:
        """The device's counters are new ones: after a reboot or a driver reload."""
        self.wraps.clear()
        self.last.clear()

    def _went_back(self, counter: Counter, last: int, raw: int) -> None:
        # Three quarters and one quarter: a counter that was cleared hardly ever stood so high.
        quarter = counter.maximum // 4
        if last > 3 * quarter and raw < quarter:
            self.wraps[counter.file] = self.wraps.get(counter.file, 0) + 1
        else:
            self.wraps.pop(counter.file, None)
