"""Drive the real alerting service through an incident on a clock of its own: every query at its moment, 15 minutes.

Nothing sees the future. The clock moves only between the service's own steps; queries are answered from a Prometheus
that has the whole incident, as of the clock's time, and one that asks for later times fails the watch. The batches of a
world are scraped just before each evaluation; those that no scrape has brought yet are taken out of the answers.
"""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

from pyrometer_alerting.app.service import WEBHOOK_PATH, Service
from pyrometer_alerting.channel.blocks import Style
from pyrometer_alerting.channel.incident_pictures import EVERY_SECONDS, IncidentPictures, PictureUploader
from pyrometer_alerting.channel.slack import WebSlack
from pyrometer_alerting.channel.terminal import render
from pyrometer_alerting.diagnosis.diagnostician import load_diagnose
from pyrometer_alerting.incidents.metrics import Metrics
from pyrometer_alerting.incidents.storage.store import Store
from pyrometer_alerting.model.incident import Diagnosis, Incident
from pyrometer_alerting.model.message import Message
from pyrometer_kit.http_message import Request
from pyrometer_kit.prometheus import HttpPrometheus, Prometheus, Series
from pyrometer_simulator.incidents.faults import DisturbedPrometheus, Faults
from pyrometer_simulator.incidents.rules import Annotations, Firing, body
from pyrometer_simulator.slack import FakeSlack
from pyrometer_simulator.slack_channel import RateLimits

CHANNEL, TOKEN = "gpu-alerts", "xoxb-fake-token"
GROUP_WAIT = 1.0  # compose/alertmanager: group_wait
RECONCILE_SECONDS = 30.0
SETTLED = 12.0  # after a delivery looks are not thinned out for so long
_OF_BATCHES = re.compile(r"(?<![:\w])pyrometer_train_batch_\w+[^:\w]")  # not a rule's own series


class VirtualClock:
    """A clock that moves only when set."""

    def __init__(self, now: float) -> None:
        self.now = now

    def wall(self) -> float:
        """Return the time of the watch."""
        return self.now

    def monotonic(self) -> float:
        """Return the time of the watch."""
        return self.now


class FutureError(AssertionError):
    """A query that asks for what has not happened yet."""


class PresentPrometheus:
    """Prometheus as of a clock's time, with one cluster alone; counts its queries."""

    def __init__(self, prometheus: Prometheus, clock: VirtualClock, interval: float, cluster: str) -> None:
        self._prometheus, self._clock, self._interval = prometheus, clock, interval
        self._cluster = cluster
        self.queries = 0

    def instant(self, query: str, at: float) -> list[Series]:
        """Answer a query at a time that is not in the future.

        Raises:
            FutureError: it is.
        """
        self._check(query, at)
        return self._known(query, self._prometheus.instant(query, at))

    def range(self, query: str, start: float, end: float, step: float) -> list[Series]:
        """Answer a query over a stretch that does not reach into the future.

        Raises:
            FutureError: it does.
        """
        self._check(query, end)
        return self._known(query, self._prometheus.range(query, start, end, step))

    def _check(self, query: str, at: float) -> None:
        self.queries += 1
        if at > self._clock.now + 1e-3 or "offset -" in query or "@ end" in query:
            raise FutureError(f"asked at {self._clock.now:.3f} for {at:.3f}: {query}")

    def _known(self, query: str, result: list[Series]) -> list[Series]:
        """Take out other clusters, and samples of batches that have not been scraped yet."""
        result = [series for series in result if series.labels.get("cluster", self._cluster) == self._cluster]
        if not _OF_BATCHES.search(query):
            return result
        scraped = self._clock.now // self._interval * self._interval
        if not any(series.points[-1][0] > scraped for series in result):
            return result
        kept = [Series(series.labels, tuple(each for each in series.points if each[0] <= scraped)) for series in result]
        # The result of an instant query over a vector has the query's own time, which is no sample's.
        return [new if new.points else old for new, old in zip(kept, result, strict=True) if new.points or "[" in query]


@dataclass(frozen=True)
class Look:
    """The incident after one diagnosis: when, its causes, how long it took to find them."""

    at: float
    diagnosis: Diagnosis
    incident: Incident
    firing: bool
    seconds: float
    queries: int


class SlackCall(NamedTuple):
    """A call to Slack: when, and its message as plain text.

    Attributes:
        incident: the id of the incident that it is about.
        on_evidence: whether it is on the evidence, which follows its card.
        pings: whether it is a post or a reply, which ping people, but for the evidence; an edit pings nobody.
        seen: whether the channel sees it as new: a post, or a reply that the channel is shown.
    """

    at: float
    method: str
    text: str
    incident: str
    on_evidence: bool
    pings: bool = False
    seen: bool = False


@dataclass
class Watched:
    """One incident, watched: looks at the run's incident, and calls to Slack, also on the cluster's other incidents."""

    webhook: float | None = None
    looks: list[Look] = field(default_factory=list)
    calls: list[SlackCall] = field(default_factory=list)
    incidents: list[Incident] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    seconds: float = 0.0


@dataclass(frozen=True)
class _Delivery:
    at: float
    name: str
    alerts: tuple[dict[str, Any], ...]


def watch(
    url: str,
    cluster: str,
    firings: Sequence[Firing],
    *,
    interval: float,
    begin: float,
    lasts: float,
    ends: float = float("inf"),
    every: float = 0.0,
    faults: Faults | None = None,
) -> Watched:
    """Watch one cluster's incident for some seconds from the first alert on the run; without one it is over at once.

    Args:
        url: the Prometheus that has the incident.
        cluster: whose alerts are delivered.
        firings: those of all clusters.
        interval: seconds between evaluations in this cluster.
        begin: alerts that began before are not delivered: the service starts then.
        lasts: seconds.
        ends: when the last samples are from; the watch ends there as well.
        every: least seconds between two looks after the first minute; 0 leaves it to the service.
        faults: how Prometheus is disturbed; None for not at all.
    """
    watched, started = Watched(), time.perf_counter()
    mine = [firing for firing in firings if firing.labels.get("cluster") == cluster and firing.end > begin]
    prometheus = HttpPrometheus(url, 60.0)
    deliveries = _deliveries(mine, Annotations(prometheus))
    first = next((each.at for each in deliveries if _is_symptom(each)), None)
    if first is None:
        return watched
    watched.webhook = first
    with tempfile.TemporaryDirectory() as folder:
        clock = VirtualClock(min(deliveries[0].at, first) - 1.0)
        present = PresentPrometheus(prometheus, clock, interval, cluster)
        bench = _Bench(present, clock, Path(folder), watched, faults or Faults())
        bench.every = every
        try:
            until = min(first + lasts, ends)
            bench.run([each for each in deliveries if each.at <= until], until)
        finally:
            bench.close()
            prometheus.close()
    watched.seconds = time.perf_counter() - started
    return watched


def _is_symptom(delivery: _Delivery) -> bool:
    return any(alert["labels"].get("run") and alert["labels"].get("component") == "train" for alert in delivery.alerts)


def _deliveries(firings: Sequence[Firing], annotations: Annotations) -> list[_Delivery]:
    """Return what Alertmanager would send: each change of a group, with all of the group that fires or just ended."""
    groups: dict[tuple[str, str], list[Firing]] = {}
    for firing in firings:
        groups.setdefault((firing.rule.name, firing.labels.get("run", "")), []).append(firing)
    deliveries = []
    for (name, _run), members in groups.items():
        moments = {each.begin for each in members} | {each.end for each in members if each.end != float("inf")}
        for moment in sorted(moments):
            present = [each for each in members if each.begin <= moment <= each.end]
            alerts = tuple(_alert(each, moment, annotations) for each in present)
            if any(alert["labels"]["severity"] != "info" for alert in alerts):
                deliveries.append(_Delivery(moment + GROUP_WAIT, name, alerts))
    return sorted(deliveries, key=lambda each: each.at)


def _alert(firing: Firing, now: float, annotations: Annotations) -> dict[str, Any]:
    labels, over = dict(firing.labels), firing.end <= now
    texts = {
        name: annotations.render(template, labels, firing.value_at(now), now)
        for name, template in firing.rule.annotations.items()
    }
    return {
        "status": "resolved" if over else "firing",
        "labels": labels,
        "annotations": texts,
        # Prometheus reports when the expression began to hold, Alertmanager passes that on.
        "startsAt": _iso(firing.begin),
        "endsAt": _iso(firing.end) if over else "0001-01-01T00:00:00Z",
        "generatorURL": "http://prometheus:9090/graph",
        "fingerprint": hashlib.sha256(json.dumps(sorted(labels.items())).encode()).hexdigest()[:16],
    }


def _iso(unix: float) -> str:
    return datetime.fromtimestamp(unix, tz=timezone.utc).isoformat().replace("+00:00", "Z")


def _about(args: Mapping[str, Any]) -> tuple[str, str]:
    """Return the incident and the operation that a call to Slack is about, from the message's metadata."""
    metadata = args.get("metadata") or {}
    known = json.loads(metadata) if isinstance(metadata, str) else metadata
    payload = known.get("event_payload", {})
    return str(payload.get("incident_id", "")), str(payload.get("op_id", ""))


def _shown(args: Mapping[str, Any]) -> str:
    """Return what a reader sees of a call's message, as plain text."""
    blocks = args.get("blocks") or []
    return render(Message(str(args.get("text", "")), json.loads(blocks) if isinstance(blocks, str) else list(blocks)))


def _draw(prometheus: Prometheus, incident: Incident, now: float) -> bytes:
    """Return a picture's first bytes: how it looks is not measured."""
    del prometheus, incident, now
    return b"\x89PNG\r\n\x1a\n" + bytes(100)


class _Bench:
    """The service with its own store and a simulated Slack."""

    def __init__(
        self, prometheus: PresentPrometheus, clock: VirtualClock, folder: Path, watched: Watched, faults: Faults
    ) -> None:
        self._watched, self.clock, self._present = watched, clock, prometheus
        asked = DisturbedPrometheus(prometheus, clock, faults)
        limits = RateLimits(post_per_second=1000, post_burst=1000, tier3_per_minute=60000, tier3_burst=1000)
        self._slack = FakeSlack(channel_names=[CHANNEL], token=TOKEN, limits=limits)
        self._slack.up()
        self._store = Store(folder / "store")
        slack = WebSlack(TOKEN, self._slack.url)
        # A workspace without chart blocks: pictures are edits of their own, so it is the one with the most calls.
        style = Style(charts="picture")
        self._service = Service(self._store, slack, CHANNEL, prometheus=asked, style=style, clock=self.clock)
        courier = self._service.courier
        self._pictures = IncidentPictures(
            self._store,
            PictureUploader(slack, lambda _seconds: None, courier.limits.breaker, self.clock),
            asked,
            charts=style.charts,
            clock=self.clock,
            metrics=Metrics(),
            changed=courier.wake,
        )
        self._pictures.load = lambda: _draw
        self._webhook = self._service.routes()[WEBHOOK_PATH]
        self._load = load_diagnose()
        self._seen = 0
        self.every, self._looked, self._delivered, self._pictured = 0.0, 0.0, 0.0, 0.0
        self._last: dict[str, float] = {}

    def close(self) -> None:
        """Stop everything."""
        self._service.stop()
        self._slack.down()

    def run(self, deliveries: Sequence[_Delivery], until: float) -> None:
        """Deliver alerts at their times and let the service work until a time."""
        pending, reconciled = list(deliveries), 0.0
        while self.clock.now < until:
            while pending and pending[0].at <= self.clock.now:
                self._deliver(pending.pop(0))
            if self.clock.now - reconciled >= RECONCILE_SECONDS:
                self._service.reconciler.step()
                reconciled = self.clock.now
            waits = [self._diagnoses(), self._deliver_to_slack(), reconciled + RECONCILE_SECONDS - self.clock.now]
            if self.clock.now - self._pictured >= EVERY_SECONDS:
                self._pictures.step()
                self._pictured = self.clock.now
            waits.append(self._pictured + EVERY_SECONDS - self.clock.now)
            if pending:
                waits.append(pending[0].at - self.clock.now)
            self.clock.now = min(self.clock.now + max(min(waits), 0.05), until)
        with self._store.transaction() as tx:
            self._watched.incidents = tx.incidents(50)

    def _deliver(self, delivery: _Delivery) -> None:
        self._delivered = self.clock.now
        request = Request("POST", WEBHOOK_PATH, body=body(delivery.name, delivery.alerts))
        response = self._webhook.handler(request)
        self._service.deliveries.step()
        if response.status != 200:
            self._watched.errors.append(f"webhook: {response.status}")

    def _diagnoses(self) -> float:
        """Make the diagnoses that are due; return the seconds until the next."""
        diagnostician = self._service.diagnostician
        assert diagnostician is not None  # noqa: S101 - the bench gives it a Prometheus
        rest = self._looked + self.every - self.clock.now
        if (
            rest > 0
            and self.clock.now - self._delivered > SETTLED
            and self.clock.now - (self._watched.webhook or self.clock.now) > 60.0
        ):
            return rest
        while True:
            before, started = self._present.queries, time.perf_counter()
            wait = diagnostician.step(self._diagnose)
            if wait > 0:
                return wait
            self._looked = self.clock.now
            self._note(time.perf_counter() - started, self._present.queries - before)

    def _diagnose(self, prometheus: Prometheus, incident: Incident, others: list[Incident], now: float) -> Diagnosis:
        """Diagnose as the service does, and keep what goes wrong: its worker survives it."""
        try:
            return self._load(prometheus, incident, others, now)
        except Exception as error:
            self._watched.errors.append(f"{type(error).__name__}: {error}")
            raise

    def _note(self, seconds: float, queries: int) -> None:
        with self._store.transaction() as tx:
            found = [
                each for each in tx.recent_incidents(float("inf")) if each.wants_diagnosis and not each.joined_into
            ]
        for incident in found:
            diagnosis = incident.diagnosis
            if diagnosis is not None and self._last.get(incident.id) != diagnosis.at:
                self._last[incident.id] = diagnosis.at
                self._watched.looks.append(Look(self.clock.now, diagnosis, incident, incident.firing, seconds, queries))

    def _deliver_to_slack(self) -> float:
        """Send what is due; return the seconds until more is."""
        while True:
            wait = self._service.courier.step()
            for call in self._slack.calls[self._seen :]:
                incident, op_id = _about(call.args)
                with self._store.transaction() as tx:
                    operation = tx.outbox.get(op_id)
                on_evidence = operation is not None and operation.is_evidence
                pings = call.method == "chat.postMessage" and not on_evidence
                seen = pings and (not call.args.get("thread_ts") or bool(call.args.get("reply_broadcast")))
                told = SlackCall(self.clock.now, call.method, _shown(call.args), incident, on_evidence, pings, seen)
                self._watched.calls.append(told)
            self._seen = len(self._slack.calls)
            if wait > 0:
                return wait
