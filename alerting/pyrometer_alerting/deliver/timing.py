"""How long delivery waits for what."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Timing:
    """Seconds. How soon after a post the history shows it is not documented: hence two looks, 2 s and 10 s later."""

    first_look: float = 2.0
    second_look: float = 10.0
    probe: float = 60.0
    backoff: float = 1.0
    backoff_limit: float = 60.0
    idle: float = 15.0  # also how soon a replay from the command line is noticed
    sweep: float = 60.0  # after posting again: by then a first try that was on its way has arrived

    def again(self, attempts: int) -> float:
        """1, 2, 4 ... 60 s, each shortened by up to half so that many do not come back at once."""
        longest = min(self.backoff * float(2 ** min(attempts, 10)), self.backoff_limit)
        return longest * (1 - random.random() / 2)  # noqa: S311 - spreading load needs no secret
