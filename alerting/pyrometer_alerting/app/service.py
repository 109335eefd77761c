"""The assembled service: HTTP routes over store, intake, courier and diagnostician."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from pyrometer_alerting.app import api
from pyrometer_alerting.app.analysis import AnalysisWorkers, Worker
from pyrometer_alerting.app.gauges import Gauges, leader_gauge, store_gauges
from pyrometer_alerting.app.trouble import Readiness, trouble_lines
from pyrometer_alerting.channel import document, incident_page, runbooks
from pyrometer_alerting.channel.blocks import Style
from pyrometer_alerting.channel.clicks import BOX, WORKERS, Clicks
from pyrometer_alerting.channel.courier import Courier
from pyrometer_alerting.channel.digest.scheduler import Digests
from pyrometer_alerting.channel.evidence import build_evidence
from pyrometer_alerting.channel.interactions import Interactions
from pyrometer_alerting.channel.messages import ThreadReplies, build
from pyrometer_alerting.channel.outlets.courier import OutletCouriers
from pyrometer_alerting.channel.outlets.notice import Entry
from pyrometer_alerting.channel.slack import Slack, WebSlack
from pyrometer_alerting.channel.socket_mode import Listener
from pyrometer_alerting.diagnosis.diagnostician import Diagnostician
from pyrometer_alerting.incidents.alertmanager import Alertmanager
from pyrometer_alerting.incidents.alertmanager_payload import BadDelivery
from pyrometer_alerting.incidents.deliveries import Deliveries
from pyrometer_alerting.incidents.inbox import post_of
from pyrometer_alerting.incidents.intake import Intake, Outcome
from pyrometer_alerting.incidents.metrics import Metrics
from pyrometer_alerting.incidents.own_alerts import oversized
from pyrometer_alerting.incidents.reconcile import Reconciler
from pyrometer_alerting.incidents.storage.operation import Operation
from pyrometer_alerting.incidents.storage.store import KEPT_RESOLVED_SECONDS, Store, StoreError, Transaction
from pyrometer_alerting.model.routing import Routing
from pyrometer_alerting.policy.findings import Facts
from pyrometer_alerting.policy.policy_page import policy_page
from pyrometer_alerting.policy.rules import Policy
from pyrometer_alerting.policy.worker import PolicyWorker
from pyrometer_kit.auth import BearerTokens
from pyrometer_kit.clock import Clock
from pyrometer_kit.errors import UsageError
from pyrometer_kit.http_message import BlockingHandler, Request, Response, Route, text
from pyrometer_kit.negotiation import prefers_openmetrics
from pyrometer_kit.prometheus import Prometheus

_log = logging.getLogger(__name__)

WEBHOOK_PATH = "/api/v1/alertmanager"
MAX_DELIVERY_BYTES = 16 << 20  # 1000 alerts take about 1 MiB
_MAX_RELOAD_BYTES = 1 << 10  # of a body without meaning
_METRICS = "text/plain; version=0.0.4; charset=utf-8"
_OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_CLEAN_UP_SECONDS = 3600.0
_FIRST_BACKUP_SECONDS = 60.0


class Service:
    """Everything behind the HTTP server; `start` runs the workers, `stop` ends them and closes the store."""

    def __init__(
        self,
        store: Store,
        slack: Slack,
        channel: str,
        *,
        prometheus: Prometheus | None,
        style: Style,
        clock: Clock,
        tokens: BearerTokens | None = None,
        alertmanagers: Sequence[Alertmanager] = (),
        reload: Callable[[], tuple[Routing, frozenset[str]]] = lambda: (Routing(), frozenset()),
        outlets: Callable[[], Sequence[Entry]] = tuple,
        app_token: str = "",
        read_app_token: Callable[[], str] = str,
        digests: Digests | None = None,
        page_url: str = "",
        policy: Callable[[], Policy] = Policy,
        facts: Facts | None = None,
    ) -> None:
        self.metrics, self._page_url = Metrics(), page_url
        self._store, self._style, self._clock, self._tokens = store, style, clock, tokens
        replies = ThreadReplies(style)
        self.courier = Courier(store, slack, channel, style=style, clock=clock, metrics=self.metrics)
        self.outlets = OutletCouriers(store, style=style, clock=clock, metrics=self.metrics, prometheus=prometheus)
        self.diagnostician = (
            Diagnostician(store, prometheus, replies=replies, clock=clock, metrics=self.metrics, changed=self._wake)
            if prometheus is not None
            else None
        )
        self.analysis = AnalysisWorkers(
            store,
            slack,
            prometheus,
            digests or Digests(prometheus=prometheus),
            style=style,
            clock=clock,
            metrics=self.metrics,
            changed=self._wake,
            breaker=self.courier.limits.breaker,
        )
        self._intake = Intake(
            store, replies=replies, clock=clock, metrics=self.metrics, diagnoses=self.diagnostician is not None
        )
        if self.diagnostician is not None:
            self.diagnostician.topology = lambda: self._intake.topology
        self._inbox = post_of(store)
        self.deliveries = Deliveries(
            self._inbox, self._intake, clock=clock, metrics=self.metrics, changed=self._changed
        )
        self._readiness = Readiness(store, self.deliveries, clock)
        self.reconciler = Reconciler(
            store,
            self._intake,
            alertmanagers,
            prometheus,
            clock=clock,
            metrics=self.metrics,
            changed=self._changed,
        )
        self.policy = PolicyWorker(
            store,
            facts,
            clock=clock,
            page_url=page_url,
            changed=self.courier.wake,
            has_buttons=bool(app_token),
        )
        self._workers: list[Worker] = [self.deliveries, self.courier, self.reconciler, self.policy]
        self._workers += [*self.analysis.workers, *([self.diagnostician] if self.diagnostician is not None else [])]
        self._listener: Listener | None = None
        self._interactions: Interactions | None = None
        self._clicks: Clicks | None = None
        if app_token and isinstance(slack, WebSlack):
            self._interactions = Interactions(
                store, slack, alertmanagers, style=style, clock=clock, metrics=self.metrics, changed=self._acted
            )
            self._interactions.confirm = self.policy.confirm
            self._interactions.read_workspace = slack.workspaces
            self._clicks = Clicks(post_of(store, BOX), self._interactions, clock)
            breaker = self.courier.limits.breaker
            places = app_token, slack.client, self._interactions, self._clicks
            self._listener = Listener(*places, breaker=breaker, clock=clock, read_token=read_app_token)
            self.courier.composer.buttons = True
        self._reload, self._read_outlets, self._load_policy = reload, outlets, policy
        self._reload_successful, self._reloading = True, threading.Lock()
        self.reload()
        self.metrics.serve_gauges(self._gauges)
        self._threads: list[threading.Thread] = []
        self._listening = False
        self._stopping = threading.Event()

    def reload(self) -> None:
        """Reload routing, secrets and web configuration; either all or none of them take effect.

        Raises:
            UsageError: one of them is invalid.
        """
        self._reload_successful = False
        outlets = self._read_outlets()
        routing, users = self._reload()
        policy = self._load_policy()
        self._reload_successful = True
        self.policy.replace(policy, routing)
        self._intake.routing = self.courier.composer.routing = routing
        self.analysis.replace(routing)
        if self.diagnostician is not None:
            self.diagnostician.routing = routing
        if self._interactions is not None:
            self._interactions.users, self._interactions.routing = users, routing
        try:
            self.outlets.apply(outlets)
        except StoreError as error:
            raise UsageError(f"{error}: keeping the previous outlets") from None

    def listen(self) -> None:
        """Accept clicks and commands, which a replica that does not lead also accepts."""
        if self._listener is not None and not self._listening:
            self._listening = True
            self._run([self._listener.run])

    def start(self) -> None:
        """Run delivery, diagnosis and clean-up: lead.

        Raises:
            StoreError: the outlets could not be made known to the database.
        """
        self.outlets.start()
        self.listen()
        clicks = [self._clicks.run] * WORKERS if self._clicks is not None else []
        self._run([*(worker.run for worker in self._workers), *clicks, self._clean_up])

    def _run(self, targets: Sequence[Callable[[], None]]) -> None:
        threads = [threading.Thread(target=target, daemon=True, name=target.__qualname__) for target in targets]
        self._threads += threads
        for thread in threads:
            thread.start()

    def depose(self) -> None:
        """Stop everything that only the leader does, at once: another replica may already lead."""
        self._store.close()
        self.stop()

    def stop(self) -> None:
        """Finish the call in progress, keep the rest for the next start."""
        self._stopping.set()
        for worker in (*self._workers, self.outlets, self.analysis, self._listener, self._clicks):
            if worker is not None:
                worker.stop()
        for thread in self._threads:
            thread.join(timeout=15.0)
        self.outlets.join(15.0)
        self._store.close()

    def routes(self) -> dict[str, Route[BlockingHandler]]:
        """Return the routes of the HTTP server; all but the webhook and the reload only read."""
        pages: dict[str, Callable[[], Response]] = {
            "/": self._page,
            "/digest": self._digest,
            "/-/healthy": lambda: text(200, "healthy"),
            "/-/ready": self._ready,
            "/api/v1/incidents": lambda: self._query(lambda tx: api.incidents(tx, self._style)),
            "/api/v1/dead": lambda: self._query(api.dead),
            "/api/v1/audit": lambda: self._query(api.audit),
            "/api/v1/policy": lambda: self._query(api.policy),
            "/policy": lambda: self._query(self._policy_page),
        }
        routes = {
            path: Route(partial(_read, page), any_name=path.startswith("/-/"))
            for path, page in (pages | runbooks.pages()).items()
        }
        routes["/metrics"] = Route(self._metrics, any_name=True)
        routes["/-/reload"] = Route(self._reloaded, ("POST", "PUT"), max_body=_MAX_RELOAD_BYTES, tokens=self._tokens)
        routes[WEBHOOK_PATH] = Route(
            self._webhook, ("POST",), max_body=MAX_DELIVERY_BYTES, takes_oversized=True, tokens=self._tokens
        )
        return routes

    def rejected(self) -> None:
        """Count a request with wrong credentials."""
        self.metrics.rejected.labels("credentials").inc()

    def _webhook(self, request: Request) -> Response:
        response = self._too_large() if request.oversized else self._receive(request.body)
        self.metrics.webhooks.labels(str(response.status)).inc()
        return response

    def _receive(self, body: bytes) -> Response:
        """Answer 2xx only once the delivery is on disk; 503 makes Alertmanager retry, any 4xx would make it give up."""
        try:
            self.deliveries.take(body)
        except BadDelivery as error:
            self.metrics.rejected.labels(error.reason).inc()
            _log.warning("webhook: %s", error)
            return Response(400, f"{error}\n".encode())
        except StoreError as error:
            _log.error("webhook: %s", error)
            return Response(503, b"the store cannot be written now\n")
        return Response(200, b"ok\n")

    def _too_large(self) -> Response:
        """Accept an oversized delivery and raise an alert: Alertmanager would retry a refused one forever."""
        now = self._clock.wall()
        alert = oversized(f"{MAX_DELIVERY_BYTES >> 20} MiB", now)
        self.metrics.rejected.labels("oversized").inc()
        outcome = Outcome()
        try:
            with self._store.transaction() as tx:
                self._intake.fold(tx, [alert], 0, now, outcome)
                self._intake.fold(tx, [replace(alert, firing=False, ends_at=now)], 0, now, outcome)
        except StoreError as error:
            _log.error("webhook: %s", error)
            return Response(503, b"the store cannot be written now\n")
        self._changed(outcome)
        return Response(200, b"too large: see the channel\n")

    def _changed(self, outcome: Outcome) -> None:
        """Wake the workers that have something to do."""
        if self.diagnostician is not None:
            if outcome.cause_arrived:
                self.diagnostician.poke_all()
            for incident_id in outcome.diagnose:
                self.diagnostician.poke(incident_id)
        if outcome.has_parked or outcome.has_opened:
            self.reconciler.poke(at_once=outcome.has_opened)
        self._wake()

    def _wake(self) -> None:
        """Let the couriers of Slack and all outlets check the outbox now."""
        self.courier.wake()
        self.outlets.wake()

    def _acted(self) -> None:
        """Update the message and poll Alertmanager after somebody has acted."""
        self._wake()
        self.reconciler.poke()

    def _reloaded(self, _request: Request) -> Response:
        try:
            with self._reloading:
                self.reload()
        except UsageError as error:
            _log.error("reload: %s; keeping the previous configuration", error)
            return Response(500, f"{error}\n".encode())
        return Response(200, b"reloaded\n")

    def _metrics(self, request: Request) -> Response:
        as_openmetrics = prefers_openmetrics(request.headers.get("accept", ""))
        content_type = _OPENMETRICS if as_openmetrics else _METRICS
        return Response(200, self.metrics.render(as_openmetrics=as_openmetrics), content_type, {"Vary": "Accept"})

    def _ready(self) -> Response:
        self._readiness.check()
        return Response(200, b"ready\n")

    def _page(self) -> Response:
        now, style = self._clock.wall(), self._style
        with self._store.snapshot() as tx:
            pairs = [(incident, tx.outbox.root(incident.id)) for incident in tx.incidents(50)]
            trouble = trouble_lines(tx, self.courier, self.outlets, self.policy.trouble, now)
        cards = [
            incident_page.Card(incident, build(incident, style), build_evidence(incident, style), _delivery(root))
            for incident, root in pairs
        ]
        banner = incident_page.Banner(style.notice, trouble)
        return document.response(incident_page.render(cards, banner, now))

    def _digest(self) -> Response:
        """Return the digest as a page; while it is rendered, a page that refreshes itself."""
        page_html = self.analysis.digest_scheduler.page()
        body = page_html if page_html is not None else "The digest is being prepared; this page reloads in 3 s."
        return document.response(body, refresh="" if page_html is not None else "3")

    def _policy_page(self, tx: Transaction) -> Response:
        return document.response(policy_page(self.policy, tx.actions.newest(), self._clock.wall()))

    def _query(self, query: Callable[[Transaction], Response]) -> Response:
        with self._store.snapshot() as tx:
            return query(tx)

    def _gauges(self) -> Gauges:
        """Return the present gauges, without those of a store that cannot be read (absent, not zero)."""
        leads = self._store.engine.leads()
        gauges: Gauges = {
            "pyrometer_alerting_config_last_reload_successful": {(): float(self._reload_successful)},
            "pyrometer_alerting_leader": leader_gauge(self._store.engine),
            "pyrometer_alerting_store_writable": {(): float(self._readiness.writable)},
        }
        backed_up_at = self._store.backed_up_at()
        if backed_up_at is not None:
            gauges["pyrometer_alerting_backup_last_success_timestamp_seconds"] = {(): backed_up_at}
        if self._listener is not None:
            gauges["pyrometer_alerting_socket_mode_connected"] = {(): float(self._listener.connected)}
        if not leads:  # the others are exported by the leader: from two replicas they would count twice
            return gauges
        gauges["pyrometer_alerting_inbox_depth"] = {(): float(self._inbox.depth)}
        try:
            with self._store.snapshot() as tx:
                now = self._clock.wall()
                return gauges | store_gauges(
                    tx, self.courier, self.outlets, self.policy, page_url=self._page_url, now=now
                )
        except StoreError:
            return gauges

    def _clean_up(self) -> None:
        """Check the file and copy it once a day, and delete old resolved incidents every hour."""
        wait = _FIRST_BACKUP_SECONDS
        while not self._stopping.wait(wait):
            wait = _CLEAN_UP_SECONDS
            try:
                self._store.check()
                self._store.back_up(self._clock.wall())
                with self._store.transaction() as tx:
                    tx.forget(self._clock.wall() - KEPT_RESOLVED_SECONDS)
                self._store.shrink()
            except StoreError as error:
                _log.error("clean-up: %s", error)


def _read(page: Callable[[], Response], request: Request) -> Response:
    try:
        return page()
    except StoreError as error:
        _log.error("%s: %s", request.path, error)
        return text(503, "the store cannot be read now")


def _delivery(root: Operation | None) -> str:
    """Return how far the message got, for the page's corner."""
    if root is None:
        return "page only"
    words = {"done": "in the channel", "dead": f"refused: {root.error}", "lookup": "checking whether Slack has it"}
    return words.get(root.state, "on its way" if root.ts is None else "being edited")
