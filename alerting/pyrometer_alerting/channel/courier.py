"""Deliver the outbox to Slack, one call at a time, so that nothing is lost and nothing is posted twice.

The operation is marked `sending` on disk before the call and carries its op_id in the message's metadata. If it is
unknown whether Slack has the message (a crash, a timeout, a broken connection, `internal_error`), it is looked up in
the channel before it is posted again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from pyrometer_alerting.channel import reminders
from pyrometer_alerting.channel.blocks import Style
from pyrometer_alerting.channel.breaker import AWAY, SlackFailure, Trouble
from pyrometer_alerting.channel.composer import (
    Composer,
    degraded,
    has_native_charts_enabled,
    record_chart_refusal,
    stored_message,
)
from pyrometer_alerting.channel.delivery_loop import DeliveryLoop, SendLimits, Timing, slack_method
from pyrometer_alerting.channel.evidence import evidence_wait, has_evidence
from pyrometer_alerting.channel.messages import DEGRADE_LEVELS, WITHOUT_CHART, has_chart
from pyrometer_alerting.channel.slack import LONGEST_WAIT_SECONDS, Slack
from pyrometer_alerting.channel.slack_remedies import with_remedy
from pyrometer_alerting.channel.unheard import waits
from pyrometer_alerting.incidents.metrics import Metrics
from pyrometer_alerting.incidents.storage.actions import ASK, ASK_RETURN, ASKED
from pyrometer_alerting.incidents.storage.operation import Operation
from pyrometer_alerting.incidents.storage.store import NotLeadingError, Store, StoreError
from pyrometer_alerting.model.message import Message
from pyrometer_kit.clock import Clock

_log = logging.getLogger(__name__)

# Edits that can never work: a new message is posted instead.
_CANNOT_EDIT = frozenset({"cant_update_message", "edit_window_closed"})
_CANNOT_LOOK_UP = frozenset({"missing_scope", "not_allowed_token_type", "no_permission"})
TERMINAL = "terminal"  # the channel of a service without a token: nothing in it can be edited from Slack
_POSTED_AGAIN = "not found: posting again"
_CLOCK_SKEW_SECONDS = 60.0  # our clock against Slack's `ts`; NTP keeps it far smaller


class Courier(DeliveryLoop):
    """The one thread that calls Slack."""

    def __init__(
        self,
        store: Store,
        slack: Slack,
        channel: str,
        *,
        style: Style,
        clock: Clock,
        metrics: Metrics,
        timing: Timing | None = None,
    ) -> None:
        super().__init__("outbox", clock, timing)
        self._store, self._slack, self.channel, self._metrics = store, slack, channel, metrics
        self.composer, self._charts = Composer(style), style.charts
        self.limits = SendLimits(channel, self._timing)

    @property
    def blocked(self) -> str:
        """Slack's error code while nothing can be sent; empty otherwise."""
        return self.limits.blocked

    @property
    def parked(self) -> dict[str, str]:
        """Channels that cannot be reached, with Slack's error code; new messages go to the default channel."""
        return self.limits.parked

    def recover(self) -> None:
        """Look up what the last process was sending when it died; interrupted edits are simply repeated."""
        now = self._clock.wall()
        with self._store.transaction() as tx:
            tx.outbox.cap_waits(now, now + LONGEST_WAIT_SECONDS)  # the clock may have been set back meanwhile
            if self.channel != TERMINAL:
                tx.outbox.abandon(TERMINAL)
            for operation in tx.outbox.interrupted():
                if operation.edits:
                    tx.outbox.retry_at(operation.op_id, now, "interrupted")
                else:
                    tx.outbox.look_up_at(operation.op_id, now + self._timing.first_look, "interrupted", 0)

    def deliver_due(self, now: float) -> float:
        """Process the oldest operation that is due; return the seconds until the next step."""
        if not self.limits.probe(self._slack, now, self._count):
            return max(self.limits.blocked_until - now, 0.0)
        with self._store.transaction() as tx:
            reminders.send_due(tx, self.composer.routing, now)
            due = tx.outbox.due()
        wait = self._timing.idle
        for operation in due:
            at = self.limits.free_at(operation)
            if at <= now:
                self._process(operation, now)
                return 0.0
            wait = min(wait, at - now)
        return min(wait, self._remove_duplicates(now))

    def shorten_waits(self, now: float) -> None:
        """See `DeliveryLoop.shorten_waits`."""
        self.limits.shorten(now)
        with self._store.transaction() as tx:
            tx.outbox.cap_waits(now, now + self._timing.idle)

    def _process(self, operation: Operation, now: float) -> None:
        try:
            if operation.state == "lookup":
                self._look_up(operation, now)
            elif operation.kind == "root" or operation.is_evidence:
                self._send_root(operation, now)
            else:
                self._send_reply(operation, now)
        except StoreError:
            raise
        except Exception:  # noqa: BLE001 - one message that cannot be built must not keep the others from being sent
            _log.exception("outbox: operation %s failed", operation.op_id)
            self._postpone(operation, now + self._timing.probe)

    def _postpone(self, operation: Operation, until: float) -> None:
        with self._store.transaction() as tx:
            current = tx.outbox.get(operation.op_id)
            if current is not None and current.state == "sending" and current.ts is None:
                tx.outbox.look_up_at(operation.op_id, until, "internal error", 0)
            else:
                tx.outbox.retry_at(operation.op_id, until, "internal error")

    def _send_root(self, operation: Operation, now: float) -> None:
        """Post or edit an incident's message, or the evidence in its thread."""
        if operation.body is not None:
            self._send_fixed(operation, operation.body, now)
            return
        with self._store.transaction() as tx:
            incident = tx.incident(operation.incident_id)
            if incident is None:
                tx.outbox.discard(operation.incident_id)
                return
            if operation.is_evidence and not has_evidence(incident):
                tx.outbox.skip(operation)
                return
            if waits(tx.outbox, self.composer.routing, operation, incident, now):
                return
            native = has_native_charts_enabled(tx, self._charts, now)
            into = tx.incident(incident.joined_into)
            asked = [
                action
                for action in tx.actions.in_state(ASKED)
                if action.incident_id == incident.id and action.kind in (ASK, ASK_RETURN)
            ]
        # Outside the transaction: building a message of thousands of alerts must not keep Alertmanager waiting.
        target = self.limits.target(operation)
        builder = self.composer.builder(incident, into, operation, target, native=native, asked=asked)
        level, message = degraded(operation.degrade, builder)
        with self._store.transaction() as tx:
            if tx.outbox.get(operation.op_id) != operation:
                return  # it has changed meanwhile: the next step builds it again
            operation = replace(operation, degrade=level)
            if operation.channel and operation.ts and message.digest() == operation.shown:
                tx.outbox.finish(operation, operation.channel, operation.ts, message.digest(), now)
                if operation.kind == "root" and has_evidence(incident):
                    tx.outbox.follow(incident.id, now, evidence_wait(incident))
                return
            if operation.ts is None and operation.kind == "root":
                tx.outbox.drop_replies(operation.incident_id)
                operation = replace(operation, target=self.limits.target(operation))
            tx.outbox.start(operation.op_id, now, operation.target)
        delivered = self._deliver(operation, message, builder if native else None, now)
        if delivered and operation.kind == "root" and operation.posted_at is None:
            self._metrics.latency.observe(max(self._clock.wall() - incident.received_at, 0.0))

    def _send_fixed(self, operation: Operation, body: str, now: float) -> None:
        """Send a standalone message, such as a digest."""
        with self._store.transaction() as tx:
            native = has_native_charts_enabled(tx, self._charts, now)
            builder = stored_message(body, native=native)
            level, message = degraded(operation.degrade, builder)
            operation = replace(operation, degrade=level, target=self.limits.target(operation))
            tx.outbox.start(operation.op_id, now, operation.target)
        self._deliver(operation, message, builder if native else None, now)

    def _deliver(
        self, operation: Operation, message: Message, native_builder: Callable[[int], Message] | None, now: float
    ) -> bool:
        """Post or edit the message; return whether Slack has it.

        `native_builder` builds it by level if Slack draws the charts.
        """
        place = (operation.channel, operation.ts) if operation.channel and operation.ts else None
        delivered = self._attempt(operation, lambda: self._call_slack(operation, message, place))
        if (
            delivered
            and native_builder is not None
            and operation.degrade == WITHOUT_CHART
            and has_chart(native_builder(0))
        ):
            record_chart_refusal(self._store, operation.op_id, now)
        return delivered

    def _call_slack(
        self, operation: Operation, message: Message, place: tuple[str, str] | None
    ) -> tuple[str, str, str]:
        if place is None:
            where, thread = self._place(operation)
            # By its id once that is known: a channel that was renamed is followed.
            channel, ts = self._slack.post(self._known_id(where), message, operation.metadata, thread)
        else:
            channel, ts = place
            self._slack.update(channel, ts, message, operation.metadata)
        return channel, ts, message.digest()

    def _send_reply(self, operation: Operation, now: float) -> None:
        with self._store.transaction() as tx:
            level, message = degraded(operation.degrade, stored_message(operation.body or "{}", native=True))
            operation = replace(operation, degrade=level)
            tx.outbox.start(operation.op_id, now, operation.target)
        channel, thread = self._place(operation)
        self._attempt(operation, lambda: (*self._slack.post(channel, message, operation.metadata, thread), ""))

    def _place(self, operation: Operation) -> tuple[str, str | None]:
        """Return the channel to post in, and for a reply its thread."""
        if operation.kind == "root":
            return self.limits.target(operation), None
        with self._store.transaction() as tx:
            root = tx.outbox.root(operation.incident_id)
        channel, thread = (root.channel or "", root.ts) if root is not None else ("", None)
        return channel or self.limits.target(operation), thread

    def _attempt(self, operation: Operation, call: Callable[[], tuple[str, str, str]]) -> bool:
        """Make the call and store its outcome; return whether Slack has the message."""
        method = slack_method(operation)
        self._store.check_leading()
        try:
            channel, ts, digest = call()
        except SlackFailure as failure:
            self._count(method, failure.code)
            self._failed(operation, failure)
            return False
        self._count(method, "ok")
        try:
            self._finish(operation, channel, ts, digest)
        except NotLeadingError:
            self._report_stray(operation, ts)
            raise
        self.limits.record_success(operation)
        return True

    def _finish(self, operation: Operation, channel: str, ts: str, digest: str) -> None:
        with self._store.transaction() as tx:
            tx.outbox.finish(operation, channel, ts, digest, self._clock.wall())
            # Edits ping nobody, nor does the evidence, in a thread that nobody follows yet.
            if slack_method(operation) == "chat.postMessage" and not operation.is_evidence:
                tx.outbox.note_call(operation.incident_id, self._clock.wall())
            incident = tx.incident(operation.incident_id) if operation.kind == "root" else None
            if incident is not None and has_evidence(incident):
                tx.outbox.follow(incident.id, self._clock.wall(), evidence_wait(incident))
            if incident is not None:
                reminders.plan(tx, incident, self.composer.routing.reminder, self._clock.wall())
            if operation.kind == "root" and operation.ts is None:
                tx.save_fact(f"channel:{self.limits.target(operation)}", channel)
            if operation.error == _POSTED_AGAIN:
                due = self._clock.wall() + self._timing.sweep
                tx.outbox.plan_duplicate_check(operation.op_id, channel, ts, operation.sent_at or 0.0, due)

    def _report_stray(self, operation: Operation, ts: str) -> None:
        """Report to the next leader a call that was made after being deposed, because of a pause just before it."""
        now = self._clock.wall()
        _log.warning("outbox: %s: completed after another replica took over", slack_method(operation))
        try:
            with self._store.transaction(aside=True) as tx:
                tx.outbox.note_stray(operation, ts, now)
        except StoreError as error:
            _log.error("outbox: could not notify the other replica: %s", error)

    def _failed(self, operation: Operation, failure: SlackFailure) -> None:
        now = self._clock.wall()
        said = with_remedy(failure.code)
        _log.warning("outbox: %s: (%s) %s", slack_method(operation), failure.trouble.value, said)
        self.limits.record_failure(operation, failure, now)
        with self._store.transaction() as tx:
            outbox, op_id = tx.outbox, operation.op_id
            if failure.code == "channel_not_found":  # deleted: there may be another one of that name
                tx.forget_fact(f"channel:{self.limits.target(operation)}")
            edits = operation.edits
            if failure.trouble in (Trouble.RATE, Trouble.AUTH, Trouble.CHANNEL):
                outbox.retry_at(op_id, now + failure.retry_after, failure.code, refund=True)
            elif edits and (failure.trouble is Trouble.GONE or failure.code in _CANNOT_EDIT):
                outbox.renew(operation, now)
            elif failure.trouble is Trouble.GONE and (root := outbox.root(operation.incident_id)) is not None:
                outbox.renew(root, now)  # deleted in the channel: posted again it says what the reply would
                outbox.retry_at(op_id, now, failure.code)
            elif failure.trouble is Trouble.AMBIGUOUS and not edits:
                outbox.look_up_at(op_id, now + self._timing.first_look, failure.code, 0)
            elif failure.trouble in (Trouble.SAFE, Trouble.AMBIGUOUS, Trouble.UNKNOWN, Trouble.GONE):
                outbox.retry_at(op_id, now + self._timing.again(operation.attempts), failure.code)
            elif operation.degrade + 1 < DEGRADE_LEVELS:
                outbox.degrade(op_id, operation.degrade + 1, failure.code, now)
            else:
                outbox.give_up(op_id, failure.code)

    def _look_up(self, operation: Operation, now: float) -> None:
        """Look up our own message; post it again only after two lookups have not found it."""
        try:
            channel = operation.channel or self._channel_id(self.limits.target(operation))
            posts = self._find(operation, channel)
        except SlackFailure as failure:
            self._count(slack_method(operation), failure.code)
            self._lookup_failed(operation, failure, now)
            return
        self._count(slack_method(operation), "ok")
        self.limits.record_answer()
        with self._store.transaction() as tx:
            if posts:
                tx.outbox.adopt(operation, channel, posts[0], now)
            elif operation.lookups == 0:
                tx.outbox.look_up_at(operation.op_id, now + self._timing.second_look, "not found yet", 1)
            else:
                tx.outbox.retry_at(operation.op_id, now, _POSTED_AGAIN)
        for surplus in posts[1:]:
            self._delete(channel, surplus)

    def _find(self, operation: Operation, channel: str) -> list[str]:
        thread = None
        if operation.kind == "reply":
            with self._store.transaction() as tx:
                root = tx.outbox.root(operation.incident_id)
            thread = root.ts if root is not None else None
        oldest = (operation.sent_at or operation.since) - _CLOCK_SKEW_SECONDS
        return self._slack.find(channel, operation.op_id, oldest, thread)

    def _lookup_failed(self, operation: Operation, failure: SlackFailure, now: float) -> None:
        with self._store.transaction() as tx:
            if failure.code in _CANNOT_LOOK_UP:
                _log.warning(
                    "outbox: cannot look up our own messages (%s): posting again may create a duplicate", failure.code
                )
                tx.outbox.retry_at(operation.op_id, now, failure.code)
                return
            wait = max(failure.retry_after, self._timing.first_look)
            tx.outbox.look_up_at(operation.op_id, now + wait, failure.code, operation.lookups)
        self.limits.record_failure(operation, failure, now)

    def _remove_duplicates(self, now: float) -> float:
        """Delete late duplicates: first attempts that arrived after the message had been posted again."""
        wait = self._timing.idle
        with self._store.transaction() as tx:
            planned = tx.outbox.duplicate_checks()
        for sweep in planned:
            if sweep.due > now:
                wait = min(wait, sweep.due - now)
                continue
            try:
                self.limits.breaker.check(now)
                posts = self._slack.find(sweep.channel, sweep.op_id, sweep.oldest - _CLOCK_SKEW_SECONDS, sweep.thread)
            except SlackFailure as failure:
                if failure.code != AWAY:
                    _log.warning("outbox: duplicate check: %s", failure.code)
                    self._count("conversations.replies" if sweep.thread else "conversations.history", failure.code)
                    self.limits.breaker.record(failure, now)
                with self._store.transaction() as tx:
                    tx.outbox.repeat_duplicate_check(sweep.op_id, now + self._timing.sweep + failure.retry_after)
                continue
            self.limits.record_answer()
            for surplus in posts:
                if surplus != sweep.ts:
                    self._delete(sweep.channel, surplus)
            with self._store.transaction() as tx:
                tx.outbox.finish_duplicate_check(sweep.op_id)
        return wait

    def _channel_id(self, name: str) -> str:
        known = self._known_id(name)
        return known if known != name else self._slack.channel_id(name)

    def _known_id(self, name: str) -> str:
        with self._store.transaction() as tx:
            return tx.fact(f"channel:{name}") or name

    def _delete(self, channel: str, ts: str) -> None:
        try:
            self._slack.delete(channel, ts)
            self._count("chat.delete", "ok")
        except SlackFailure as failure:
            self._count("chat.delete", failure.code)

    def _count(self, method: str, outcome: str) -> None:
        self._metrics.slack_calls.labels(method, outcome).inc()
