"""The schedules of digests, and the worker that sends each digest once, at its local time, through the outbox.

The digest is put into the outbox and marked as sent in one transaction: after a crash before it the digest is sent
later, after a crash behind it once, since the outbox looks up its own messages when in doubt.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone, tzinfo

from pyrometer_alerting.channel.blocks import Style
from pyrometer_alerting.channel.digest import digest_page
from pyrometer_alerting.channel.digest.data import DigestReport, gather
from pyrometer_alerting.channel.digest.digest_message import build_digest
from pyrometer_alerting.channel.digest.digest_pictures import DigestPictures
from pyrometer_alerting.channel.judgement import tally
from pyrometer_alerting.incidents.storage.store import Store, StoreError
from pyrometer_alerting.model.routing import Routing
from pyrometer_kit.clock import Clock
from pyrometer_kit.prometheus import Prometheus

DAY = 86_400.0
WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


@dataclass(frozen=True)
class Schedule:
    """The time of a digest: minutes of the local day, and the weekday of a weekly one (0 is Monday)."""

    kind: str
    minutes: int
    weekday: int | None = None

    def latest(self, now: float, zone: tzinfo) -> float:
        """Return the last time at or before now when it was due."""
        local = datetime.fromtimestamp(now, tz=zone)
        for back in range(9):
            day = local.date() - timedelta(days=back)
            at = datetime(day.year, day.month, day.day, self.minutes // 60, self.minutes % 60, tzinfo=zone)
            if at.timestamp() <= now and self.weekday in (None, day.weekday()):
                return at.timestamp()
        raise AssertionError("a week has every weekday")

    def span(self, end: float, zone: tzinfo) -> tuple[float, float]:
        """Return the day or week that a digest of that time covers (days of 23 or 25 hours when clocks change)."""
        local = datetime.fromtimestamp(end, tz=zone)
        days = 1 if self.kind == "daily" else 7
        day = local.date() - timedelta(days=days)
        start = datetime(day.year, day.month, day.day, local.hour, local.minute, tzinfo=zone)
        return start.timestamp(), end


@dataclass(frozen=True)
class Digests:
    """Which digests are sent, in which time zone; `prometheus` has a long timeout."""

    schedules: tuple[Schedule, ...] = ()
    zone: tzinfo = timezone.utc
    prometheus: Prometheus | None = None


_log = logging.getLogger(__name__)

LOOK_SECONDS = 30.0
# A digest that is later than this is skipped: the next one is near and covers as much.
LATE_SECONDS = {"daily": 12 * 3600.0, "weekly": 3 * DAY}
PAGE_SECONDS = 300.0


class DigestScheduler:
    """Sends digests from its own thread, and renders the page on demand."""

    def __init__(
        self,
        store: Store,
        digests: Digests,
        *,
        style: Style,
        clock: Clock,
        changed: Callable[[], None],
        pictures: DigestPictures | None = None,
    ) -> None:
        self._store, self._digests = store, digests
        self._style, self._clock, self._changed = style, clock, changed
        self._pictures = pictures
        self.routing = Routing()
        self._page: tuple[float, str] | None = None  # (time it was rendered, page)
        self._wake = threading.Event()
        self._stop = False

    def run(self) -> None:
        """Send what is due, and render the page when somebody opens it, until stopped."""
        while not self._stop:
            try:
                self.step()
                if self._pictures is not None:
                    self._pictures.step()
                if self._take_request():
                    self._page = (self._clock.wall(), self._render())
            except StoreError as error:
                _log.error("digest: %s", error)
            except Exception:  # noqa: BLE001 - a digest that cannot be made must not end the next one
                _log.exception("digest")
            if not self._stop:
                self._wake.wait(LOOK_SECONDS)

    def _take_request(self) -> bool:
        """Return whether somebody waits for the page; `stop` sets the same event, and must not be missed for it."""
        asked = self._wake.is_set()
        self._wake.clear()
        return asked and not self._stop

    def page(self) -> str | None:
        """Return the page if it is at most minutes old; None while it is rendered, which may take half a minute."""
        if self._page is None or self._clock.wall() - self._page[0] >= PAGE_SECONDS:
            self._wake.set()
        return None if self._page is None else self._page[1]

    def _render(self) -> str:
        now = self._clock.wall()
        reports = [self.report(kind, now) for kind in ("daily", "weekly")]
        return digest_page.render(reports, self._style.notice, self._digests.zone)

    def stop(self) -> None:
        """Let `run` return."""
        self._stop = True
        self._wake.set()

    def step(self) -> list[str]:
        """Send the digests that are due now; return their kinds."""
        now = self._clock.wall()
        return [schedule.kind for schedule in self._digests.schedules if self._send(schedule, now)]

    def report(self, kind: str, now: float, clusters: Sequence[str] = ()) -> DigestReport:
        """Return the digest of the last day or week as of now, of these clusters or of all."""
        return self._report(kind, now - (DAY if kind == "daily" else 7 * DAY), now, clusters)

    def _send(self, schedule: Schedule, now: float) -> bool:
        due, fact = schedule.latest(now, self._digests.zone), f"digest_{schedule.kind}"
        with self._store.transaction() as tx:
            last_sent = tx.fact(fact)
            if last_sent is None or now - due > LATE_SECONDS[schedule.kind]:
                # The first start, or an outage that was too long: the next digest is the first.
                tx.save_fact(fact, repr(max(due, float(last_sent or 0.0))))
                return False
        if float(last_sent) >= due:
            return False
        span = schedule.span(due, self._digests.zone)
        digests = self.routing.digests()
        bodies = {channel: self._body(schedule.kind, *span, clusters, channel) for channel, clusters in digests}
        with self._store.transaction() as tx:
            for channel, body in bodies.items():
                name = f"digest-{schedule.kind}-{due:.0f}"
                tx.outbox.post_once(f"{name}-{channel}" if channel else name, body, now, channel)
            tx.save_fact(fact, repr(due))
        self._changed()
        _log.info("digest: sending the %s digest", schedule.kind)
        return True

    def _body(self, kind: str, start: float, end: float, clusters: Sequence[str], channel: str) -> str:
        report, shows = self._report(kind, start, end, clusters), self.routing.rules(channel).shows
        runs = tuple(run if shows("run") else replace(run, run="a run", whose="") for run in report.runs)
        offenders = report.offenders if shows("node") else ()
        message = build_digest(replace(report, runs=runs, offenders=offenders), self._style, self._digests.zone)
        return json.dumps({"text": message.text, "blocks": message.blocks})

    def _report(self, kind: str, start: float, end: float, clusters: Sequence[str] = ()) -> DigestReport:
        with self._store.transaction() as tx:
            incidents = tx.recent_incidents(start)
            _depth, _oldest, dead = tx.outbox.depth()
            judged = tally(tx, start, end, clusters)
        zone = self._digests.zone
        return gather(
            self._digests.prometheus,
            incidents,
            kind,
            start=start,
            end=end,
            zone=zone,
            dead=0 if clusters else dead,  # of the service, not of a cluster
            judged=judged,
            clusters=clusters,
        )
