"""Counters that start again at 0 after 32 bits, continued to 64.

At 10 million requests a second 32 bits last 7 minutes, and PromQL takes the wrap for a reset and undercounts.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pyrometer_exporters.node.nic.counters import Counter

WRAP, CLEARED = "wrap", "cleared"


@dataclass
class Widening:
    """The wraps of one port's counters, by file; ``last`` holds their latest raw values.

    ``wrapped`` and ``cleared`` say how many counters did so since :meth:`settle` was last asked; ``era`` is another one
    whenever the device's counters are new ones.
    """

    wraps: dict[str, int] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)
    wrapped: int = 0
    cleared: int = 0
    era: int = 0

    def value(self, counter: Counter, raw: int) -> int:
        """The counter's value, wider than the device's where it has wrapped."""
        file = counter.file
        if raw < self.last.get(file, 0) and counter.counts:
            self._went_back(counter, raw)
        self.last[file] = raw
        wraps = self.wraps.get(file) if self.wraps else None
        return (raw + (wraps << counter.bits) if wraps else raw) * counter.factor

    def settle(self) -> dict[str, int]:
        """How often counters began again since this was last asked, by reason: those cleared together count once."""
        found = {WRAP: self.wrapped, CLEARED: int(self.cleared > 0)}
        self.wrapped = self.cleared = 0
        return found

    def clear(self) -> None:
        """The device's counters are new ones: after a reboot or a driver reload."""
        self.wraps.clear()
        self.last.clear()
        self.era += 1

    def _went_back(self, counter: Counter, raw: int) -> None:
        last = self.last[counter.file]
        # Three quarters and one quarter: a counter that was cleared hardly ever stood so high. One that stood beyond
        # its width is wider than the table says.
        quarter = counter.maximum // 4
        if counter.wraps and 3 * quarter < last <= counter.maximum and raw < quarter:
            self.wraps[counter.file] = self.wraps.get(counter.file, 0) + 1
            self.wrapped += 1
        else:
            self.wraps.pop(counter.file, None)
            self.cleared += 1
