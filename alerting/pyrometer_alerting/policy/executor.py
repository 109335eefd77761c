"""Does actions at most once: each is committed before the call, confirmed after it, and settled after a crash.

A crash between the two leaves the action `doing`. Then the scheduler is asked: its mark at the node says that the call
arrived, whatever has become of the node since; without the mark it did not, and the next look decides again on what is
true by then. Nothing is concluded from silence. A webhook can't be asked: it gets the same id again, which it knows,
unless the scheduler says that the node is out of service by now.
"""

from __future__ import annotations

import json
import logging
import math
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from pyrometer_alerting.incidents.storage.actions import (
    ASKED,
    DOING,
    DONE,
    DRAIN,
    LOST,
    OVERTAKEN,
    REFUSED,
    RETURN,
    SERVICE,
    UNKNOWN,
    WEBHOOK,
    WOULD,
    Action,
)
from pyrometer_alerting.incidents.storage.store import Store, Transaction
from pyrometer_alerting.model import text
from pyrometer_alerting.model.message import Block
from pyrometer_alerting.model.routing import Routing
from pyrometer_alerting.policy import drain_webhook
from pyrometer_alerting.policy.findings import Topic
from pyrometer_alerting.policy.rules import Limits, Policy
from pyrometer_alerting.policy.schedulers import AGAIN, OURS, Claim, NodeState, RefusedError, Scheduler, SchedulerError
from pyrometer_kit.clock import Clock

HOUR_SECONDS = 3600.0
PER_HOUR, PERCENT, KEEP, UNKNOWN_NODE = "per_hour", "percent", "keep", "unknown_node"


def holding(limits: Limits, states: Mapping[str, NodeState], node: str, taken: Collection[str], begun: int) -> str:
    """Return the limit that holds a node back; empty if it may be taken out of service.

    Args:
        limits: those of the policy.
        states: what the scheduler says of all nodes.
        node: the node in question.
        taken: nodes that are just being taken out: they count as gone, whatever the scheduler says.
        begun: how many nodes of the cluster were taken out in the last hour.
    """
    state = states.get(node)
    if state is None:
        return UNKNOWN_NODE
    if begun >= limits.per_hour:
        return PER_HOUR
    for pool in state.pools or ("",):
        members = [member for member in states.values() if pool in member.pools or not pool]
        gone = {member.name for member in members if not member.in_service or member.name in taken} | {node}
        if len(members) - len(gone) < limits.keep:
            return KEEP
        # One at least, or a pool of four could not spare any: `keep` holds there.
        if len(gone) > max(1, math.floor(len(members) * limits.percent / 100)):
            return PERCENT
    return ""


_log = logging.getLogger(__name__)

ANSWERED = "answered"
# A scontrol of a service that was killed may live on for its own deadline: only then is the state settled.
SETTLE_SECONDS = 30.0
_DID = {
    (DRAIN, DONE): "is drained", (DRAIN, REFUSED): "was not drained",
    (DRAIN, OVERTAKEN): "was drained, and is back already", (DRAIN, LOST): "was not drained",
    (DRAIN, WOULD): "would be drained (dry run)", (WEBHOOK, DONE): "was reported to the webhook",
    (WEBHOOK, REFUSED): "was not accepted by the webhook", (WEBHOOK, WOULD): "would be reported to the webhook "
                                                                             "(dry run)",
    (WEBHOOK, UNKNOWN): "was reported to the webhook, which may not have received it: it is not reported again",
    (RETURN, LOST): "was not returned to service",
    (RETURN, DONE): "is back in service", (RETURN, REFUSED): "was not returned to service",
    (RETURN, OVERTAKEN): "should have returned to service, but somebody else has drained it",
    (RETURN, WOULD): "would return to service (dry run)",
}  # fmt: skip


def what_and_link(action: Action) -> tuple[str, str]:
    """Return the reason of an action without our name before it, and its incident's link, empty if it has none."""
    reason = action.reason.removeprefix(OURS)
    if action.incident_id and reason.endswith(f"/#{action.incident_id}"):
        what, _, link = reason.rpartition(" ")
        return what, link
    return reason, ""


class Executor:
    """Begins, does and settles actions; `policy` and `schedulers` are replaced on reload."""

    def __init__(self, store: Store, *, clock: Clock, page_url: str, changed: Callable[[], None]) -> None:
        self._store, self._clock, self._page_url, self._changed = store, clock, page_url, changed
        self.policy, self.routing = Policy(), Routing()
        self.schedulers: Mapping[str, Scheduler] = {}
        self.ahead = 0.0
        """How far Prometheus' clock is ahead of ours, in seconds: limits and durations are in its time."""

    def now(self) -> float:
        """Return Prometheus' time, as far as it is known (Unix seconds)."""
        return self._clock.wall() + self.ahead

    def new(
        self, cluster: str, node: str, kind: str, *, rule: str, what: str, incident_id: str, by: str, topic: str = ""
    ) -> Action:
        """Return an action that is not recorded yet; `topic` is what it is about, as :class:`Topic` is written."""
        link = f" {self._page_url}/#{incident_id}" if incident_id and self._page_url else ""
        reason = f"{OURS}{text.plain(what, 170)}{link}"
        return Action(
            uuid.uuid4().hex[:12], cluster, node, kind, DOING, rule, incident_id, reason, by, self.now(), detail=topic
        )

    def take_out(self, action: Action, states: Mapping[str, NodeState], asked: Action | None = None) -> str:
        """Do a drain or webhook unless a limit holds it back; return that limit, empty if it was begun.

        With `asked` somebody has confirmed that question, which is closed in the same commit: twice is once.

        Raises:
            StoreError: nothing was done.
        """
        return self._start(action, asked, lambda tx, now: self._held(tx, action, states, now))

    def holds_back(self, action: Action, states: Mapping[str, NodeState]) -> str:
        """Return the limit that would hold a drain or webhook back now; empty if none does."""
        with self._store.snapshot() as tx:
            return self._held(tx, action, states, self.now())

    def _held(self, tx: Transaction, action: Action, states: Mapping[str, NodeState], now: float) -> str:
        limits, since = self.policy.limits, now - HOUR_SECONDS
        begun = tx.actions.begun_since(action.cluster, since)
        # By the scripts, or by a service with another database: the scheduler knows.
        claimed = {state.name for state in states.values() if state.held and state.claim and state.claim.since > since}
        count = len(begun) + len(claimed.difference(begun))
        if action.kind == WEBHOOK and not states:  # without a scheduler nobody knows its partitions
            return PER_HOUR if count >= limits.per_hour else ""
        would_since = math.inf if self.policy.is_on else since
        return holding(limits, states, action.node, tx.actions.taken(action.cluster, would_since), count)

    def bring_back(self, action: Action, why: str, asked: Action | None = None) -> str:
        """Do a return of a node with this reason; return ANSWERED if the question is closed already, else nothing.

        Raises:
            StoreError: nothing was done.
        """
        return self._start(action, asked, lambda _tx, _now: "", why)

    def _start(
        self, action: Action, asked: Action | None, limit: Callable[[Transaction, float], str], why: str = ""
    ) -> str:
        """Begin an action and close its question in one commit, then do it; return what holds it back, if anything."""
        now = self.now()
        with self._store.transaction() as tx:
            if asked is not None and asked.id not in {question.id for question in tx.actions.in_state(ASKED)}:
                return ANSWERED
            if held := limit(tx, now):
                return held
            if asked is not None:
                tx.actions.set_state(asked, DONE, now, action.by_whom)
            self._begin(tx, action, now)
        if self.policy.is_on:
            self._do(replace(action, began_at=now), why)
        return ""

    def finish_interrupted(self) -> None:
        """Finish what was being done when the service ended, as far as the scheduler says what is true.

        Raises:
            StoreError: the store cannot be used.
        """
        with self._store.snapshot() as tx:
            interrupted = tx.actions.in_state(DOING)
        for action in interrupted:
            if abs(self.now() - action.began_at) >= SETTLE_SECONDS:
                self._finish(action)

    def _begin(self, tx: Transaction, action: Action, now: float) -> None:
        if self.policy.is_on:
            tx.actions.add(replace(action, state=DOING, began_at=now))
        else:
            tx.actions.add(replace(action, state=WOULD, began_at=now))
            self._say(tx, action, WOULD, "")

    def _do(self, action: Action, why: str = "", *, again: bool = False) -> None:
        try:
            self._call(action, why)
        except RefusedError as error:
            # A webhook may have taken the first POST, whose answer was lost.
            self._end(action, UNKNOWN if again and action.kind == WEBHOOK else REFUSED, str(error))
        except SchedulerError as error:
            _log.warning("policy: %s %s: %s; it will ask again", action.kind, action.node, error)
            if action.kind == WEBHOOK and not self._may_post_again(action):
                self._end(action, UNKNOWN, str(error))
        else:
            self._confirm(action)

    def _call(self, action: Action, why: str) -> None:
        if action.kind == WEBHOOK:
            if self.policy.webhook is None:
                raise RefusedError("the policy no longer has a webhook")
            drain_webhook.post(self.policy.webhook, action)
            return
        scheduler = self._scheduler(action)
        if action.kind == DRAIN:
            claim = Claim((Topic.read(action.detail).name,), action.planned_at, again=AGAIN in action.reason)
            scheduler.drain(action.node, action.reason, action.mark, claim)
        else:
            scheduler.resume(action.node, action.mark, why, action.planned_at)

    def _confirm(self, action: Action) -> None:
        """Record how it ended, by what the scheduler shows: one that says yes may do nothing.

        It stays `doing` where the scheduler is silent, and is settled later.
        """
        if action.kind == WEBHOOK:
            self._end(action, DONE, "")
            return
        try:
            state = self._scheduler(action).nodes().get(action.node)
        except SchedulerError as error:
            _log.warning("policy: %s %s: %s; it will ask again", action.kind, action.node, error)
            return
        self._settle(action, state, REFUSED, "the scheduler accepted it, and the node is as it was")

    def _finish(self, action: Action) -> None:
        if action.kind == WEBHOOK:
            self._finish_webhook(action)
            return
        try:
            states = self._scheduler(action).nodes()
        except SchedulerError as error:
            _log.warning("policy: %s %s is not settled: %s", action.kind, action.node, error)
            return
        # Its ground may have gone since: the next look decides again.
        self._settle(action, states.get(action.node), LOST, "it did not reach the scheduler")

    def _settle(self, action: Action, state: NodeState | None, without: str, detail: str) -> None:
        """End an action by the state of its node: as `without`, for this reason, if it left no mark and no effect."""
        if state is None:
            self._end(action, REFUSED, "the scheduler no longer knows the node")
        elif state.held is (action.kind == DRAIN) and (action.mark in state.marks or without == REFUSED):
            self._end(action, DONE, state.why)
        elif action.mark in state.marks:
            self._end(action, OVERTAKEN, state.why)
        elif state.held is (action.kind == DRAIN):
            self._end(action, REFUSED, f"somebody else was faster: {state.why or 'it is in service'}")
        else:
            self._end(action, without, detail)

    def _finish_webhook(self, action: Action) -> None:
        """Post it again, unless it is known by now that it must not be; whether it was taken is not known then."""
        if not self._posts(action):
            self._end(action, UNKNOWN, "the policy no longer posts")
            return
        if not self._may_post_again(action):
            self._end(action, UNKNOWN, "no answer came in time")
            return
        scheduler = self.schedulers.get(action.cluster)
        if scheduler is not None:  # without one nobody can be asked
            try:
                state = scheduler.nodes().get(action.node)
            except SchedulerError as error:
                _log.warning("policy: %s %s is not repeated: %s", action.kind, action.node, error)
                return
            if state is None:
                self._end(action, UNKNOWN, "the scheduler no longer knows the node")
                return
            if state.held:  # by a person, or by the receiver of the first POST
                self._end(action, UNKNOWN, f"somebody has drained it: {state.why}")
                return
        self._do_again(action)

    def _posts(self, action: Action) -> bool:
        """Return whether the policy in force would still post this: a reload may have changed it."""
        policy = self.policy
        has_rule = any((rule.do, rule.name) == (WEBHOOK, action.rule) for rule in policy.rules)
        return policy.is_on and policy.webhook is not None and has_rule

    def _may_post_again(self, action: Action) -> bool:
        hook = self.policy.webhook
        return hook is not None and self._posts(action) and self.now() - action.planned_at < hook.retry

    def _do_again(self, action: Action) -> None:
        again = self.now()
        with self._store.transaction() as tx:
            tx.actions.renew(action, again)
        self._do(replace(action, began_at=again), again=True)

    def _scheduler(self, action: Action) -> Scheduler:
        scheduler = self.schedulers.get(action.cluster)
        if scheduler is None:
            raise SchedulerError(f"the policy names no scheduler for cluster {action.cluster!r}")
        return scheduler

    def _end(self, action: Action, state: str, detail: str) -> None:
        now = self.now()
        with self._store.transaction() as tx:
            tx.actions.set_state(action, state, now, detail)
            if action.kind == RETURN and state == DONE:
                tx.actions.return_node(action, now)
            if state != LOST or action.by_whom != SERVICE:  # a person waits for it
                self._say(tx, action, state, detail)
        _log.info("policy: %s of %s: %s %s", action.kind, action.node, state, detail)
        self._changed()

    def _say(self, tx: Transaction, action: Action, state: str, detail: str) -> None:
        """Write it into the audit trail, and post it."""
        now = self._clock.wall()
        tx.audit(now, action.by_whom, f"{action.kind}_{state}", action.incident_id, f"{action.node}: {action.reason}")
        said = _DID.get((action.kind, state), f"{action.kind}: {state}")
        self.post(tx, action, state, said, detail=detail)

    @property
    def shows_nodes(self) -> bool:
        """True if the channel of the policy may show names of nodes."""
        return self.routing.rules("").shows("node")

    def post(
        self, tx: Transaction, action: Action, state: str, said: str, *, detail: str = "", button: Block | None = None
    ) -> None:
        """Post a message of its own, once: there are few of them, and a reply in a thread gives way to a newer one."""
        if self.shows_nodes:
            why = f" ({text.mrkdwn(detail, 300)})" if detail else ""
            name = action.node or action.cluster or "All clusters"
            line = f"\U0001f6e0 *{text.mrkdwn(name, 100)}* {said}: {text.mrkdwn(action.reason, 400)}{why}"
        else:
            line = f"\U0001f6e0 {'A node' if action.node else 'A common cause'} {said}"
        if action.by_whom != SERVICE:
            line += f", by {text.mrkdwn(action.by_whom, 120)}"
        section = {"type": "section", "text": {"type": "mrkdwn", "text": line, "verbatim": True}}
        body = json.dumps({"text": line, "blocks": [section, *([button] if button else [])]})
        tx.outbox.post_once(f"policy:{action.id}:{state}", body, self._clock.wall())
