"""Reconciliation: the worker that polls for what the webhook never delivered, and closes or completes incidents.

Alertmanager never sends some things (observed on a real one): the resolve of an alert that ended while silenced or
inhibited or that it forgot in a crash, and whatever fired and ended while it or this service was down. So it is polled
every half minute, together with Prometheus, which evaluates the rules and therefore has the truth.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pyrometer_alerting.incidents.alertmanager import ActiveAlert, Alertmanager
from pyrometer_alerting.incidents.heartbeat import obstacle
from pyrometer_alerting.incidents.intake import CLUSTER_WATCHDOG, OUR_ALERT, OUR_RECEIVER, Intake, Outcome
from pyrometer_alerting.incidents.lifecycle import LAGGING_SECONDS
from pyrometer_alerting.incidents.metrics import Metrics
from pyrometer_alerting.incidents.missed import MissedAlertScan, due_loss, is_ours, is_refill_due, refilled
from pyrometer_alerting.incidents.own_alerts import PATH_DEAD, WATCHDOG_RARE, is_own, path_dead, rare_watchdog
from pyrometer_alerting.incidents.storage.store import Store, StoreError, Transaction
from pyrometer_alerting.incidents.topology import topology
from pyrometer_alerting.incidents.upstream import Upstream, ask_upstream, is_subset, muted_note, without_state
from pyrometer_alerting.model.alert_names import COMPONENTS, WATCHDOG, is_signal
from pyrometer_alerting.model.incident import Alert, Incident
from pyrometer_kit.clock import Clock, Jumps
from pyrometer_kit.prometheus import Prometheus, PrometheusError
from pyrometer_kit.promql import any_of, quoted

_log = logging.getLogger(__name__)

MISSED_RESOLVE = "Alertmanager resolved it without a notification"
UNHEARD_OF = "neither Alertmanager nor Prometheus has had it"  # somebody else has posted it
UNKNOWN = "Alertmanager and Prometheus don't have it"  # it has just ended, or somebody else has posted it


@dataclass(frozen=True)
class Pace:
    """Intervals in seconds. A late notification is not lost: Alertmanager's defaults delay them by up to 5 minutes."""

    every: float = 30.0
    soon: float = 2.0  # after a suspect delivery arrived
    at_once: float = 0.2  # after something new: before its first message goes out, if Alertmanager is quick
    gone: float = 60.0  # before an alert that no source reports any more is closed, if Prometheus agrees
    gone_alone: float = 360.0  # without a Prometheus to ask: just over Alertmanager's resolve_timeout of 5 minutes
    undelivered: float = 360.0  # before an active alert that was never delivered counts as lost
    hidden: float = 15.0  # before one that a foreign alert inhibits is taken: of two evaluations one may come first
    doubt: float = 300.0  # for which a parked alert may turn out to be true
    watchdog: float = 180.0  # it arrives every minute; two may be lost to a restart
    abandoned: float = 7 * 86_400.0  # after which a missing heartbeat means that the cluster was removed
    wiring: float = 300.0


class Reconciler:
    """Runs in its own thread; calls `changed` when a message must be updated."""

    def __init__(
        self,
        store: Store,
        intake: Intake,
        alertmanagers: Sequence[Alertmanager],
        prometheus: Prometheus | None,
        *,
        clock: Clock,
        metrics: Metrics,
        changed: Callable[[Outcome], None],
        pace: Pace | None = None,
    ) -> None:
        self._jumps = Jumps(clock)
        self._store, self._intake, self._alertmanagers = store, intake, alertmanagers
        self._prometheus, self._clock, self._metrics, self._changed = prometheus, clock, metrics, changed
        self._pace = pace or Pace()
        self._started_at = clock.wall()
        self._gone_since: dict[str, tuple[float, float]] = {}
        """Of each alert that nobody has, since when: monotonic, and by the wall clock."""
        self._ends: dict[str, tuple[float, float]] = {}
        """Of each end that is in doubt, when it was first (monotonic), and until when the alert was active."""
        intake.asks_of_ends = bool(alertmanagers)
        self._wired_at = 0.0
        self._undelivered_at = 0.0
        self._missed_scan = MissedAlertScan(clock.wall())
        self._wake = threading.Event()
        self._at_once = threading.Event()
        self._stopping = threading.Event()

    def poke(self, *, at_once: bool = False) -> None:
        """Reconcile soon: something suspect arrived, or something new of which nobody has heard yet."""
        if at_once:
            self._at_once.set()
        self._wake.set()

    def stop(self) -> None:
        """Let `run` return."""
        self._stopping.set()
        self._wake.set()

    def run(self) -> None:
        """Reconcile until stopped."""
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                self.step()
            except StoreError as error:
                _log.error("reconciliation: %s", error)
            except Exception:  # noqa: BLE001 - one odd answer must not end it for good
                _log.exception("reconciliation")
            self._rest(4 * (time.monotonic() - began))

    def _rest(self, least: float = 0.0) -> None:
        """Wait for the next round, soon after a `poke`, which anybody can cause, and not before `least` seconds."""
        poked = self._wake.wait(self._pace.every)
        self._wake.clear()
        if poked:
            soon = self._pace.at_once if self._at_once.is_set() else self._pace.soon
            self._stopping.wait(max(soon, min(least, self._pace.every)))
            self._wake.clear()
        self._at_once.clear()

    def step(self) -> None:
        """Poll all sources once and correct what differs.

        Raises:
            StoreError: the store failed.
        """
        now = self._clock.wall()
        if self._jumps.happened():  # as after a start: heartbeats and gaps of before are of another time
            _log.warning("reconciliation: this host's clock was set")
            self._started_at, self._missed_scan = now, MissedAlertScan(now)
        self._refresh_topology(now)
        upstream = ask_upstream(self._alertmanagers, self._prometheus, now)
        outcome = Outcome()
        with self._store.transaction() as tx:
            receivers = set(tx.facts(OUR_RECEIVER))
            self._check_watchdog(tx, upstream, receivers, now, outcome)
            self._refill(tx, upstream, receivers, now, outcome)
            self._decide_parked(tx, upstream, now, outcome)
            self._take_undelivered(tx, upstream, receivers, now, outcome)
            self._take_hidden(tx, upstream, receivers, now, outcome)
            for incident in tx.recent_incidents(float("inf")):
                self._close_gone(tx, incident, upstream, now, outcome)
            for incident in tx.recent_incidents(float("inf")):
                self._note_muted(tx, incident, upstream, receivers, now)
        missed_alert = self._missed_scan.missed(self._store, self._prometheus, upstream, now)
        if missed_alert is not None:
            with self._store.transaction() as tx:
                self._correct(tx, "missed", [replace(missed_alert, firing=True, ends_at=None)], now, outcome)
                self._correct(tx, "missed", [missed_alert], now, outcome)
        self._changed(outcome)

    def _refresh_topology(self, now: float) -> None:
        if self._prometheus is None or abs(now - self._wired_at) < self._pace.wiring:
            return
        try:
            self._intake.topology = topology(self._prometheus, now)
            self._wired_at = now
        except PrometheusError as error:
            _log.warning("reconciliation: topology: %s", error)

    def _check_watchdog(
        self, tx: Transaction, upstream: Upstream, receivers: set[str], now: float, outcome: Outcome
    ) -> None:
        """Open an incident when a heartbeat stops and end it when it returns.

        Before the first only one that Alertmanager has is expected. Where it has it and delivers what else there is, it
        only repeats it too rarely, or a rule or route of its own takes it.
        """
        heard_of = {cluster: float(fact) for cluster, fact in tx.facts(CLUSTER_WATCHDOG).items()}
        for cluster, fact in (self._unheard(tx, upstream) | heard_of).items():
            heard = min(fact, now)
            if heard < fact:  # the clock was set back: it is missed from now on
                tx.save_fact(CLUSTER_WATCHDOG + cluster, repr(heard))
            active = upstream.watchdog(cluster)
            gone = cluster not in heard_of and active is None and upstream.asked_all
            removed = gone or (cluster in heard_of and now - heard > self._pace.abandoned)
            late = not removed and now - max(heard, self._started_at) > self._pace.watchdog
            rare = late and active is not None and self._undelivered_at <= heard
            why = obstacle(active, upstream, self._alertmanagers, receivers) if late and active is not None else ""
            if removed:
                tx.forget_fact(CLUSTER_WATCHDOG + cluster)
            for name, wanted, build in (
                (PATH_DEAD, late and not rare, partial(path_dead, silent=upstream.silent, obstacle=why)),
                (WATCHDOG_RARE, rare, partial(rare_watchdog, obstacle=why)),
            ):
                fact_name = f"{name}:{cluster}"
                since = tx.fact(fact_name)
                if since is None and wanted:
                    tx.save_fact(fact_name, repr(heard))
                    self._correct(tx, "watchdog", [build(cluster, heard, now)], now, outcome)
                elif since is not None and not wanted and (late or removed or heard > float(since)):
                    if name == WATCHDOG_RARE and not removed and heard - float(since) > self._pace.watchdog:
                        tx.save_fact(fact_name, repr(heard))  # once more, as rarely as before
                        continue
                    tx.forget_fact(fact_name)
                    self._correct(tx, "watchdog", [build(cluster, float(since), now, ends_at=now)], now, outcome)

    @staticmethod
    def _unheard(tx: Transaction, upstream: Upstream) -> dict[str, float]:
        """Return since when Alertmanager has each heartbeat of ours, of which none ever arrived; and those told of."""
        ours = [
            alert
            for view in upstream.views
            for alert in view.values()
            if alert.labels.get("alertname") == WATCHDOG and alert.labels.get("component") == "stack"
        ]
        told = {cluster: float(since) for cluster, since in tx.facts(f"{WATCHDOG_RARE}:").items()}
        return told | {alert.labels.get("cluster", ""): alert.starts_at for alert in ours}

    def _decide_parked(self, tx: Transaction, upstream: Upstream, now: float, outcome: Outcome) -> None:
        """Decide whether parked alerts are true or repeated by a lagging peer. Without any source they are true."""
        has_sources = bool(self._alertmanagers) or self._prometheus is not None
        parked = tx.parked_alerts()
        self._ends = {
            alert.fingerprint: self._ends[alert.fingerprint] for alert, _ in parked if alert.fingerprint in self._ends
        }
        for alert, heard in parked:
            if not alert.firing:
                self._decide_end(tx, alert, upstream, now, outcome)
                continue
            if upstream.fires(alert) or (not has_sources and now - heard >= LAGGING_SECONDS):
                self._correct(tx, "refired", [alert], now, outcome)
            elif now - heard < self._pace.doubt:
                continue
            tx.release_alert(alert.fingerprint)

    def _decide_end(self, tx: Transaction, alert: Alert, upstream: Upstream, now: float, outcome: Outcome) -> None:
        """Believe a posted end once no Alertmanager has the alert; Prometheus is asked if none of them answers."""
        doubted_at, active_until = self._ends.get(alert.fingerprint, (self._clock.monotonic(), 0.0))
        too_long = self._clock.monotonic() - doubted_at >= self._pace.doubt
        is_active = upstream.known(alert.fingerprint) or (
            not upstream.views and upstream.fires_in_prometheus(alert.labels)
        )
        if is_active:
            self._ends[alert.fingerprint] = doubted_at, now
            if too_long:
                tx.release_alert(alert.fingerprint)
                self._metrics.corrections.labels("not_ended").inc()
                _log.warning("reconciliation: %s was posted as resolved, and is active", alert.name)
        elif too_long or upstream.views or upstream.firing is not None:
            ended = replace(alert, ends_at=min(max(alert.ends_at or now, active_until), now))
            self._intake.fold(tx, [ended], 0, now, outcome)
        else:
            self._ends[alert.fingerprint] = doubted_at, active_until

    def _take_undelivered(
        self, tx: Transaction, upstream: Upstream, receivers: set[str], now: float, outcome: Outcome
    ) -> None:
        """Add our alerts that are not muted, have long been active in every Alertmanager and were never delivered."""
        for alert, active in self._active_elsewhere(tx, upstream, receivers):
            _, heard = tx.known_alert(alert.fingerprint)
            late = now - max(alert.starts_at, heard) > self._pace.undelivered
            if late and receivers & set(active.receivers):
                self._correct(tx, "undelivered", [alert], now, outcome)
                self._undelivered_at = now

    def _take_hidden(
        self, tx: Transaction, upstream: Upstream, receivers: set[str], now: float, outcome: Outcome
    ) -> None:
        """Add our alerts that every Alertmanager hides for the sake of an alert about something else."""
        hidden = []
        for fingerprint, active in upstream.views[0].items() if upstream.asked_all else ():
            reports = upstream.known(fingerprint)
            labels = active.labels
            if is_signal(labels) or labels.get("component") not in COMPONENTS or not receivers & set(active.receivers):
                continue
            if len(reports) < len(upstream.views) or not all(map(upstream.hider, reports)):
                continue
            known, _heard = tx.known_alert(fingerprint)
            fresh = (
                0 <= now - active.starts_at < self._pace.hidden
            )  # a start in the future is a start that nobody named
            if (known is None or not known.firing) and not fresh:
                began = min(active.starts_at, now)
                hidden.append(Alert(fingerprint, True, labels, active.annotations, began))  # noqa: FBT003
        if hidden:
            self._correct(tx, "hidden", hidden, now, outcome)

    def _refill(self, tx: Transaction, upstream: Upstream, receivers: set[str], now: float, outcome: Outcome) -> None:
        """After the database was lost or damaged, read all firing alerts, and report the loss to the channel once."""
        taken = 0
        if is_refill_due(tx) and (upstream.asked_all or not self._alertmanagers):
            names = set(tx.facts(OUR_ALERT))
            alerts = [
                alert
                for alert, active in self._active_elsewhere(tx, upstream, receivers)
                if receivers & set(active.receivers) or is_ours(alert.labels, names)
            ]
            taken = len(alerts)
            if alerts:
                self._correct(tx, "refilled", alerts, now, outcome)
            refilled(tx)
        loss = due_loss(tx, taken, now)
        if loss is not None:
            self._correct(tx, "lost", [replace(loss, firing=True, ends_at=None)], now, outcome)
            self._correct(tx, "lost", [loss], now, outcome)

    @staticmethod
    def _active_elsewhere(
        tx: Transaction, upstream: Upstream, receivers: set[str]
    ) -> Iterator[tuple[Alert, ActiveAlert]]:
        """Yield alerts that are active and not muted in every Alertmanager but not firing here."""
        for fingerprint, active in upstream.views[0].items() if upstream.asked_all else ():
            known, _heard = tx.known_alert(fingerprint)
            muted = active.is_muted_to(receivers)
            if (known is not None and known.firing) or is_signal(active.labels) or muted:
                continue
            if len(upstream.known(fingerprint)) == len(upstream.views):
                alert = Alert(fingerprint, True, active.labels, active.annotations, active.starts_at)  # noqa: FBT003
                yield alert, active

    def _close_gone(
        self, tx: Transaction, incident: Incident, upstream: Upstream, now: float, outcome: Outcome
    ) -> None:
        gone = []
        for alert in incident.members:
            if not alert.firing or is_own(alert.fingerprint):
                continue
            if not upstream.is_gone(alert):
                self._gone_since.pop(alert.fingerprint, None)
                continue
            since, at = self._gone_since.setdefault(alert.fingerprint, (self._clock.monotonic(), now))
            patience = self._pace.gone if upstream.firing is not None else self._pace.gone_alone
            if self._clock.monotonic() - since >= patience:
                gone.append(replace(alert, firing=False, ends_at=at))
        if gone:
            ends = len(gone) == sum(alert.firing for alert in incident.members)
            if ends and incident.note != UNHEARD_OF:
                tx.save_incident(replace(incident, note=MISSED_RESOLVE), now)
            tx.forget_deliveries()  # a repeated delivery with the same content must count as new
            self._correct(tx, "closed", gone, now, outcome)
            for alert in gone:
                self._gone_since.pop(alert.fingerprint, None)

    def _note_muted(
        self, tx: Transaction, incident: Incident, upstream: Upstream, receivers: set[str], now: float
    ) -> None:
        if not upstream.views:
            return
        firing = [alert for alert in incident.members if alert.firing]
        note = muted_note(firing, upstream, receivers)
        if firing and all(upstream.is_gone(alert) and not is_own(alert.fingerprint) for alert in firing):
            heard = incident.note == UNKNOWN or tx.outbox.is_posted(incident.id) or tx.outbox.is_reported(incident.id)
            forged = not heard and self._is_forged(firing, upstream, receivers, now)
            note = UNHEARD_OF if incident.note == UNHEARD_OF or forged else UNKNOWN
        if note != incident.note:
            tx.save_incident(replace(incident, note=note), now)
            if incident.is_posted and note != UNHEARD_OF:
                tx.outbox.request(incident.id, now, now, incident.channel)

    def _is_forged(self, firing: Sequence[Alert], upstream: Upstream, receivers: set[str], now: float) -> bool:
        """Return whether nobody has had these alerts but who posted them.

        That is known where Alertmanager is the one that posts to us, as it has others for all receivers that do, and
        where Prometheus answers, knows their clusters, and has had none of these firing for five minutes: one that has
        just ended was true.
        """
        served = {name for view in upstream.views for active in view.values() for name in active.receivers}
        if self._prometheus is None or upstream.firing is None or not receivers or not receivers <= served:
            return False
        clusters = {quoted(alert.labels.get("cluster", "")) for alert in firing}
        names = any_of(sorted({alert.name for alert in firing}))
        lately = f'last_over_time(ALERTS{{alertstate="firing",alertname=~{quoted(names)}}}[5m])'
        try:
            if any(not self._prometheus.instant(f"group(up{{cluster={cluster}}})", now) for cluster in clusters):
                return False  # of what another Prometheus watches, through another Alertmanager
            found = [without_state(series.labels) for series in self._prometheus.instant(lately, now)]
        except PrometheusError:
            return False
        return not any(is_subset(series, alert.labels) for series in found for alert in firing)

    def _correct(self, tx: Transaction, kind: str, alerts: list[Alert], now: float, outcome: Outcome) -> None:
        self._intake.fold(tx, alerts, 0, now, outcome)
        self._metrics.corrections.labels(kind).inc(len(alerts))
        _log.info("reconciliation: %s: %s", kind, ", ".join(sorted({alert.name for alert in alerts})))
