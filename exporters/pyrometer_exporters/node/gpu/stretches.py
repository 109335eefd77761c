"""Divide time into stretches and read each once, at a random moment in it: long ones at rest, short ones when busy.

The whole stretch counts as what that one read shows. So the expected sum is exact whatever comes and goes, in step with
the stretches or not, and however their length was chosen, as long as that was before they began::

    stretches  |------- 0.2 s -------|------- 0.2 s -------|- 0.05 -|- 0.05 -|- 0.05 -|- 0.05 -|
    reads           x                            x            x          x     x            x
    throttled                                 #############################
    counted                          |=====================|========|========|
                                             0.2           +  0.05  +  0.05         of 0.29 s

A fixed interval counts a reason that comes and goes in a multiple of it, as a power cap does with the steps of a
training, a third too long or not at all. Counting the time since the previous read, with reads that are equally often,
is right as well, but not where a pulse itself makes the reads more frequent: its begin counts in full, its end not.
"""

from __future__ import annotations

import random
from collections.abc import Callable


class Stretches:
    """The stretches of one sampler; lengths in seconds."""

    __slots__ = ("_busy", "_chance", "_rest", "ends")

    def __init__(self, busy: float, rest: float, chance: Callable[[], float] = random.random) -> None:
        self._busy, self._rest, self._chance = busy, rest, chance
        self.ends = 0.0
        """When the present stretch ends, by the monotonic clock."""

    def begin(self, now: float, *, busy: bool) -> float:
        """Begin the next stretch, where the present one ends or later; return when it is to be read."""
        begins = max(self.ends, now)  # one that was read late doesn't make the next ones hurry
        length = self._busy if busy else self._rest
        self.ends = begins + length
        return begins + length * self._chance()
