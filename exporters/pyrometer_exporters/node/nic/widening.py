"""Continue counters that wrap at 32 bits to 64.

At 10 million requests a second 32 bits last 7 minutes, and PromQL takes the wrap for a reset and undercounts.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pyrometer_exporters.node.nic.counters import Counter

WRAP, CLEARED = "wrap", "cleared"


@dataclass
class Widening:
    """The wraps of one port's counters, by file; ``last`` holds their latest raw values.

    ``wrapped`` and ``cleared`` count the counters that did so since the last call of :meth:`settle`.
    """

    wraps: dict[str, int] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)
    wrapped: int = 0
    cleared: int = 0

    def value(self, counter: Counter, raw: int) -> int:
        """Return the counter's value, with its wraps added."""
        file = counter.file
        if raw < self.last.get(file, 0) and counter.counts:
            self._went_back(counter, raw)
        self.last[file] = raw
        wraps = self.wraps.get(file) if self.wraps else None
        return (raw + (wraps << counter.bits) if wraps else raw) * counter.factor

    def settle(self) -> dict[str, int]:
        """Return and reset how often counters restarted, by reason; counters cleared together count once."""
        restarts = {WRAP: self.wrapped, CLEARED: int(self.cleared > 0)}
        self.wrapped = self.cleared = 0
        return restarts

    def _went_back(self, counter: Counter, raw: int) -> None:
        last = self.last[counter.file]
        # Three quarters and one quarter: a counter that was cleared was hardly ever so high. A counter beyond its
        # width is wider than the table says.
        quarter = counter.maximum // 4
        if counter.wraps and 3 * quarter < last <= counter.maximum and raw < quarter:
            self.wraps[counter.file] = self.wraps.get(counter.file, 0) + 1
            self.wrapped += 1
        else:
            self.wraps.pop(counter.file, None)
            self.cleared += 1
