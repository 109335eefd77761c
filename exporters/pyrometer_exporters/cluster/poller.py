"""Poll an outside program in a thread of its own: a scrape only reads the latest answer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from pyrometer_exporters.framework.outcome import LATE, Outcome, PartError, reason_of
from pyrometer_kit.clock import Clock
from pyrometer_kit.flags import number_between
from pyrometer_kit.prometheus import PrometheusError

T = TypeVar("T")

# Prometheus itself keeps a sample for five minutes; three lost turns in a row are a failure.
TURNS_KEPT = 3
# So that a turn saves what it has counted and served: a turn lasts milliseconds, and one that hangs is left behind.
CLOSE_SECONDS = 1.0


seconds = number_between(1.0, 3600.0, "a number of seconds from 1 to 3600")
"""Parse a flag's interval or deadline."""


class Poller(Generic[T]):
    """Calls ``job`` every ``interval`` seconds, and keeps its latest outcome.

    ``job`` should end within ``deadline``. If it hangs all the same, its answer is dropped after TURNS_KEPT turns:
    absent, not frozen.
    """

    def __init__(self, name: str, interval: float, deadline: float, job: Callable[[], T], clock: Clock) -> None:
        self._interval = interval
        self._kept = TURNS_KEPT * interval + deadline
        self._job = job
        self._clock = clock
        self._outcome: Outcome[T] | None = None
        self._at = 0.0
        self._answered = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"poll-{name}", daemon=True)

    def start(self) -> None:
        """Start the thread. Call once."""
        self._thread.start()

    def turn(self) -> None:
        """Poll once, now, and keep the answer."""
        try:
            outcome: Outcome[T] = Outcome(self._job())
        except PartError as error:
            outcome = Outcome(None, error.reason, error.detail)
        except PrometheusError as error:
            outcome = Outcome(None, error.reason, str(error))
        except Exception as error:  # noqa: BLE001  any failure concerns this part alone, and is served
            outcome = Outcome(None, reason_of(error), f"{type(error).__name__}: {error}")
        self._outcome, self._at = outcome, self._clock.monotonic()
        self._answered.set()

    def latest(self, wait: float = 0.0) -> Outcome[T]:
        """Return the latest outcome, waiting up to ``wait`` seconds for the very first one."""
        self._answered.wait(max(0.0, wait))
        outcome, age = self._outcome, self._clock.monotonic() - self._at
        if outcome is None:
            return Outcome(None, LATE, "no answer yet")
        if age > self._kept:
            return Outcome(None, LATE, f"no answer for {age:.0f} s")
        return outcome

    def close(self) -> None:
        """Stop the thread after its current turn, and wait up to CLOSE_SECONDS for that."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        while not self._stop.is_set():
            self.turn()
            self._stop.wait(self._interval)
