"""The collector ``ledger``: goodput, checkpoints and the estimated end of every run, from its batches in Prometheus.

A sample line: ``pyrometer_run_seconds_total{run="llama-8b",job_id="4711",state="rework"} 1834.25``.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterable

from pyrometer_exporters.cluster.ledger.families import FAMILIES, book_samples
from pyrometer_exporters.cluster.ledger.history import Ledger, decoded
from pyrometer_exporters.cluster.poller import Poller
from pyrometer_exporters.framework.collector import CollectorSpec, Context, FlagGroup
from pyrometer_exporters.framework.metrics import Down, Sample
from pyrometer_exporters.framework.outcome import reason_of
from pyrometer_kit.errors import UsageError
from pyrometer_kit.flags import number_between
from pyrometer_kit.prometheus import HttpPrometheus, Prometheus
from pyrometer_kit.statefile import StateFile

INTERVAL_SECONDS = 15.0
# A turn that catches up sends up to 32 queries.
TURN_SECONDS = 120.0
FIRST_SECONDS = 3.0
# For a new ledger: enough to see a run's day, and read in a minute.
LOOKBACK_HOURS = 24.0


class LedgerCollector:
    """Settles the books in a thread of its own; :meth:`collect` serves the settled state."""

    def __init__(self, context: Context, prometheus: Prometheus | None = None) -> None:
        self._targets = targets(getattr(context.flags, "collector.ledger.target") or ())
        self._match = _matcher(getattr(context.flags, "collector.ledger.match"))
        self._prometheus = prometheus or HttpPrometheus(getattr(context.flags, "prometheus.url"))
        self._clock = context.clock
        self._state = StateFile(context.state, "ledger.json", version=1)
        lookback: float = getattr(context.flags, "collector.ledger.lookback")
        self._ledger = self._state.load(decoded) or Ledger(int((context.clock.wall() - lookback * 3600) * 1000))
        self._lock = threading.Lock()
        self._served: list[Sample] = []
        self._state_error: OSError | None = None
        self._publish()
        self._poller = Poller("ledger", INTERVAL_SECONDS, TURN_SECONDS, self.turn, context.clock)
        self._poller.start()

    def collect(self, until: float) -> Iterable[Sample | Down]:
        """See :class:`~pyrometer_exporters.framework.collector.Collector`."""
        outcome = self._poller.latest(min(until - time.monotonic(), FIRST_SECONDS))
        if outcome.reason is not None:
            yield Down("prometheus", outcome.reason, outcome.detail)
        if self._state_error is not None:
            yield Down("state", reason_of(self._state_error), str(self._state_error))
        # Also while Prometheus is away: the counts are served with the time up to which they are settled.
        with self._lock:
            served = list(self._served)
        yield from served

    def close(self) -> None:
        """Stop settling."""
        self._poller.close()

    def turn(self) -> None:
        """Bring the books up to date.

        Raises:
            PartError: Prometheus failed.
        """
        while True:
            # On a copy: a failure halfway must not leave the books half settled.
            ledger = decoded(self._ledger.encoded())
            ledger.turn(self._prometheus, self._clock.wall(), self._match)
            self._ledger = ledger
            self._save()
            self._publish()
            if not ledger.behind:
                return

    def _save(self) -> None:
        try:
            self._state.save(self._ledger.encoded())
            self._state_error = None
        except OSError as error:
            self._state_error = error

    def _publish(self) -> None:
        samples = [
            sample for key, book in self._ledger.books.items() for sample in book_samples(key, book, self._targets)
        ]
        with self._lock:
            self._served = samples


def targets(given: Iterable[str]) -> dict[str, float]:
    """Parse the tokens to train on by run, from ``RUN=TOKENS``.

    Raises:
        UsageError: An item has another form, or names a run twice.
    """
    tokens_of: dict[str, float] = {}
    for item in given:
        run, _, text = item.rpartition("=")
        tokens = _number(text)
        if not run or run in tokens_of or not 0 < tokens < 1e30:
            raise UsageError(
                f"--collector.ledger.target={item}: give each run once, as RUN=TOKENS, such as llama-8b=15e12"
            )
        tokens_of[run] = tokens
    return tokens_of


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _matcher(text: str) -> str:
    """Return a flag's label matchers, ready to append to others; checked, as a wrong one could query anything."""
    matcher = r'[a-zA-Z_][a-zA-Z0-9_]*(=|!=|=~|!~)"(?:[^"\\]|\\.)*"'
    if text and not re.fullmatch(rf"{matcher}(,{matcher})*", text):
        raise UsageError(f'--collector.ledger.match={text}: not label matchers such as cluster="c1"')
    return f",{text}" if text else ""


_hours = number_between(0.1, 24 * 365, "a number of hours from 0.1 to 8760")


def _add_flags(parser: FlagGroup) -> None:
    add = parser.add_argument
    add("--collector.ledger.target", dest="collector.ledger.target", action="append", metavar="RUN=TOKENS",
        help="number of tokens that a run is to be trained on, for its estimated end; may be repeated")  # fmt: skip
    add("--collector.ledger.lookback", dest="collector.ledger.lookback", type=_hours, default=LOOKBACK_HOURS,
        metavar="HOURS", help="hours of history that a new ledger reads (default: %(default)s)")  # fmt: skip
    add("--collector.ledger.match", dest="collector.ledger.match", default="", metavar="MATCHERS",
        help='label matchers of this cluster, if Prometheus has several, such as cluster="c1"')  # fmt: skip


COLLECTOR = CollectorSpec(
    name="ledger",
    help="Account for the time of every training run, from its batches in Prometheus.",
    families=FAMILIES,
    build=LedgerCollector,
    add_flags=_add_flags,
)
