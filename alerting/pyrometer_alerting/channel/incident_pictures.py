"""Pictures of incidents for workspaces without chart blocks, added by an edit so that they never delay the text.

There are few: one when the drop is diagnosed, one every five minutes while it lasts, and one of the whole drop when
it is over.
"""

from __future__ import annotations

import importlib
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar, cast

from pyrometer_alerting.channel.breaker import Breaker, SlackFailure
from pyrometer_alerting.channel.card import headline
from pyrometer_alerting.channel.composer import has_native_charts_enabled
from pyrometer_alerting.channel.slack import Slack
from pyrometer_alerting.incidents.metrics import Metrics
from pyrometer_alerting.incidents.storage.store import Store, StoreError
from pyrometer_alerting.model.incident import Incident
from pyrometer_alerting.model.routing import Routing
from pyrometer_kit.clock import Clock
from pyrometer_kit.prometheus import Prometheus, PrometheusError

_log = logging.getLogger(__name__)

T = TypeVar("T")

READY_WAITS = (1.0, 2.0, 4.0, 8.0)  # seconds between checks of an upload, which Slack processes asynchronously


class PictureUploader:
    """Uploads pictures while Slack is reachable; `sleep` waits for that many seconds."""

    def __init__(self, slack: Slack, sleep: Callable[[float], object], breaker: Breaker, clock: Clock) -> None:
        self._slack, self.sleep, self._breaker, self._clock = slack, sleep, breaker, clock

    def upload(self, name: str, content: bytes, title: str) -> str | None:
        """Return Slack's id of the picture; None if Slack does not process it in time.

        Raises:
            SlackFailure: the upload failed.
        """
        file_id = self._guarded(lambda: self._slack.upload(name, content, title))
        if self._ready(file_id):
            return file_id
        _log.warning("pictures: Slack did not process %s in time: the message has no picture", file_id)
        return None

    def _ready(self, file_id: str) -> bool:
        for wait in (0.0, *READY_WAITS):
            if wait:
                self.sleep(wait)
            if self._guarded(lambda: self._slack.is_ready(file_id)):
                return True
        return False

    def _guarded(self, call: Callable[[], T]) -> T:
        now = self._clock.wall()
        self._breaker.check(now)
        try:
            answer = call()
        except SlackFailure as failure:
            self._breaker.record(failure, now)
            raise
        self._breaker.close()
        return answer


EVERY_SECONDS = 5.0
AGAIN_SECONDS = 300.0
AFTER_FAILURE_SECONDS = 60.0
WITHOUT_LIBRARY_SECONDS = 3600.0
RECENT_SECONDS = 600.0  # a resolved incident's last picture is made within this period


DrawIncident = Callable[[Prometheus, Incident, float], bytes | None]
"""Draws an incident as PNG as of now; None if there is nothing to draw. It raises PrometheusError."""


def load_draw_incident() -> DrawIncident:
    """Import Matplotlib and its users when the first picture is needed.

    Raises:
        ImportError: Matplotlib is not installed.
    """
    return cast(DrawIncident, importlib.import_module("pyrometer_alerting.channel.figures").draw_incident)


class IncidentPictures:
    """Runs in its own thread; calls `changed` when a message has a new picture."""

    def __init__(
        self,
        store: Store,
        uploader: PictureUploader,
        prometheus: Prometheus,
        *,
        charts: str,
        clock: Clock,
        metrics: Metrics,
        changed: Callable[[], None],
    ) -> None:
        self._store, self._uploader, self._prometheus, self._charts = store, uploader, prometheus, charts
        self._clock, self._metrics, self._changed = clock, metrics, changed
        self._made: dict[str, tuple[float, bool]] = {}  # incident -> (time of its picture, whether it shows the end)
        self._not_before = 0.0
        self._stop = threading.Event()
        self.load: Callable[[], DrawIncident] = load_draw_incident
        self.routing = Routing()

    def run(self) -> None:
        """Make pictures until stopped."""
        while not self._stop.wait(EVERY_SECONDS):
            try:
                self.step()
            except StoreError as error:
                _log.error("pictures: %s", error)

    def stop(self) -> None:
        """Let `run` return."""
        self._stop.set()

    def step(self) -> bool:
        """Make the picture of one incident that needs one; return whether one was made."""
        now = self._clock.wall()
        incident = self._next(now) if now >= self._not_before else None
        if incident is None:
            return False
        started = time.monotonic()
        try:
            success = self._make(incident, now)
        except ImportError:
            _log.warning("pictures: Matplotlib is not installed: pip install matplotlib, or set --slack.charts=off")
            self._not_before, success = now + WITHOUT_LIBRARY_SECONDS, False
        except (PrometheusError, SlackFailure) as error:
            _log.warning("pictures: incident %s: %s", incident.id, error)
            self._made.pop(incident.id, None)
            self._not_before, success = now + AFTER_FAILURE_SECONDS, False
        except Exception:  # noqa: BLE001 - a picture that cannot be drawn must not end all others
            _log.exception("pictures: incident %s", incident.id)
            self._made[incident.id], success = (now, not incident.firing), False
        self._metrics.pictures.labels("made" if success else "failed").inc()
        _log.debug("pictures: incident %s took %.2f s", incident.id, time.monotonic() - started)
        return success

    def _next(self, now: float) -> Incident | None:
        """Return the newest incident whose picture is missing or outdated."""
        with self._store.transaction() as tx:
            if self._charts == "off" or has_native_charts_enabled(tx, self._charts, now):
                return None
            candidates = [
                incident for incident in tx.recent_incidents(now - RECENT_SECONDS) if _wants_picture(incident)
            ]
        self._made = {
            key: picture for key, picture in self._made.items() if key in {incident.id for incident in candidates}
        }
        return next((incident for incident in candidates if self._is_due(incident, now)), None)

    def _is_due(self, incident: Incident, now: float) -> bool:
        at, of_the_end = self._made.get(incident.id, (0.0, False))
        return now - at >= AGAIN_SECONDS if incident.firing else not of_the_end

    def _make(self, incident: Incident, now: float) -> bool:
        visible = self.routing.redacted(incident)  # without its run's name there is no curve to draw
        content = self.load()(self._prometheus, visible, now)
        self._made[incident.id] = (now, not incident.firing)
        if content is None:
            return False
        file_id = self._uploader.upload("mfu.png", content, headline(visible))
        if file_id is None:
            return False
        with self._store.transaction() as tx:
            current = tx.incident(incident.id)
            if current is None:
                return False
            tx.save_incident(replace(current, picture=file_id), self._clock.wall())
            if tx.outbox.is_posted(incident.id):
                tx.outbox.follow(incident.id, now)
        self._changed()
        return True


def _wants_picture(incident: Incident) -> bool:
    return incident.is_posted and incident.diagnosis is not None and incident.diagnosis.curve is not None
