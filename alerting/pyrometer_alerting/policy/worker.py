"""The policy's thread: every quarter of a minute it looks at what is wrong, and acts within the limits.

It looks in this order: what a killed service left half done, what the rules find, which nodes may come back. Whoever
does not answer (Prometheus, a scheduler) stops that part of the look, and nothing is concluded from it.
"""

from __future__ import annotations

import logging
import re
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from pyrometer_alerting.channel.composer import CONFIRM_DRAIN, CONFIRM_RETURN
from pyrometer_alerting.incidents.storage.actions import (
    ASK,
    ASK_RETURN,
    ASKED,
    DONE,
    DRAIN,
    ENDED,
    OVERTAKEN,
    RETURN,
    WEBHOOK,
    WOULD,
    Action,
)
from pyrometer_alerting.incidents.storage.store import Store, StoreError
from pyrometer_alerting.model import text
from pyrometer_alerting.model.routing import Routing
from pyrometer_alerting.policy.drains import schedulers_of
from pyrometer_alerting.policy.executor import ANSWERED, SERVICE, UNKNOWN_NODE, Executor, what_and_link
from pyrometer_alerting.policy.findings import Finding, findings, passed
from pyrometer_alerting.policy.rules import Policy
from pyrometer_alerting.policy.schedulers import NodeState, Scheduler, SchedulerError
from pyrometer_kit.clock import Clock
from pyrometer_kit.prometheus import Prometheus, PrometheusError

_log = logging.getLogger(__name__)

EVERY_SECONDS = 15.0
# Nothing is done or asked of a node a second time so soon: whoever put it back knew why.
AGAIN_SECONDS = 6 * 3600.0
# A node that the policy has put back before is put back by people the next time.
RETURNED_SECONDS = 7 * 86_400.0
MOST_QUESTIONS = 5  # open at a time in a cluster: more are not read
BACK = "back"
_MARK = re.compile(r"\[pyrometer:([0-9a-f]{12})\]$")
_HELD = {
    "per_hour": "the limit of nodes per hour is reached", "percent": "the limit of its partition is reached",
    "keep": "it is the last node in service in its partition", UNKNOWN_NODE: "the scheduler does not know it",
    ANSWERED: "this was already answered",
}  # fmt: skip

States = Mapping[str, NodeState]


class PolicyWorker:
    """Runs in a thread of its own; `replace` may be called from another one, `confirm` too."""

    def __init__(
        self,
        store: Store,
        prometheus: Prometheus | None,
        *,
        clock: Clock,
        page_url: str,
        changed: Callable[[], None],
        has_buttons: bool = False,
    ) -> None:
        self._store, self._prometheus, self._clock, self._changed = store, prometheus, clock, changed
        self.executor = Executor(store, clock=clock, page_url=page_url, changed=changed)
        self._has_buttons = has_buttons
        self._stopping = threading.Event()
        self.trouble: tuple[str, ...] = ()
        """Who did not answer at the last look, one line each."""
        self.looked_at = 0.0
        """When everybody answered the last time; 0 before."""
        self.held: Counter[tuple[str, str]] = Counter()
        """Nodes that a limit holds back, by (cluster, limit)."""

    def replace(self, policy: Policy, routing: Routing) -> None:
        """Put another policy in force, and the routing that says what its messages may show."""
        self.executor.policy, self.executor.routing = policy, routing
        self.executor.schedulers = schedulers_of(policy.clusters)

    def run(self) -> None:
        """Look until stopped."""
        while not self._stopping.wait(EVERY_SECONDS):
            try:
                self.step()
            except StoreError as error:
                self.trouble = (str(error),)
                _log.error("policy: %s", error)
            except Exception:  # noqa: BLE001 - a look that fails must not be the last one
                self.trouble = ("the policy's last evaluation failed: see the service's log",)
                _log.exception("policy: a look failed")

    def stop(self) -> None:
        """Let `run` return."""
        self._stopping.set()

    def step(self) -> None:
        """Look once.

        Raises:
            StoreError: the store cannot be used; nothing is done without it.
        """
        self.executor.finish_interrupted()
        policy = self.executor.policy
        if not policy.rules:
            return
        trouble: list[str] = []
        asked_at = self._clock.wall()
        states = self._ask_schedulers(trouble)
        self._adopt(states)
        try:
            # First: a node that goes out of service in this look is not in what the schedulers said before.
            self._return(policy, states, asked_at)
            self._act(policy, states)
        except PrometheusError as error:
            trouble.append(f"nothing is done while the findings are unknown: {error}")
        self.trouble = tuple(trouble)
        if not trouble:
            self.looked_at = self._clock.wall()

    def confirm(self, action_id: str, person: str) -> str:
        """Do what was asked, now that somebody wants it; return what that person is told.

        Raises:
            StoreError: nothing was done.
        """
        with self._store.snapshot() as tx:
            asked = next((each for each in tx.actions.in_state(ASKED) if each.id == action_id), None)
        if asked is None:
            return "This was already answered, or no longer applies."
        if not self.executor.policy.is_on:
            return "The policy is in dry run: nothing is done. Set `mode: on` in its file to switch it on."
        scheduler: Scheduler | None = self.executor.schedulers.get(asked.cluster)
        if scheduler is None:
            return "The policy no longer names a scheduler for this cluster."
        try:
            states = scheduler.nodes()
        except SchedulerError as error:
            return f"Nothing was done: {text.mrkdwn(str(error), 300)}."
        return self._confirmed(asked, person, states)

    def _confirmed(self, asked: Action, person: str, states: States) -> str:
        kind = RETURN if asked.kind == ASK_RETURN else DRAIN
        what, _link = what_and_link(asked)
        action = self.executor.new(
            asked.cluster, asked.node, kind, rule=asked.rule, what=what, incident_id=asked.incident_id, by=person
        )
        node = states.get(asked.node)
        if node is None or node.held is (kind == DRAIN):
            return f"Nothing was done: {_HELD[UNKNOWN_NODE] if node is None else 'it is already so'}."
        held = (
            self.executor.take_out(action, states, asked) if kind == DRAIN else self.executor.bring_back(action, asked)
        )
        self._changed()
        return f"Nothing was done: {_HELD[held]}." if held else ""

    def _ask_schedulers(self, trouble: list[str]) -> dict[str, States]:
        found: dict[str, States] = {}
        for cluster, scheduler in self.executor.schedulers.items():
            try:
                found[cluster] = scheduler.nodes()
            except SchedulerError as error:
                trouble.append(f"nothing is done in cluster {cluster}: {error}")
        return found

    def _adopt(self, states: Mapping[str, States]) -> None:
        """Record drains of ours that a lost database does not know: they count, and the nodes may come back."""
        marked = [
            (cluster, state, mark[1])
            for cluster, nodes in states.items()
            for state in nodes.values()
            if state.held and (mark := _MARK.search(state.why)) is not None
        ]
        if not marked:
            return
        now = self._clock.wall()
        with self._store.transaction() as tx:
            known = {action.id for action in tx.actions.newest(10_000)} | {action.id for action in tx.actions.drained()}
            for cluster, state, found in marked:
                if found not in known:
                    reason = state.why.rpartition(" [pyrometer:")[0]
                    action = Action(found, cluster, state.name, DRAIN, DONE, "", "", reason, SERVICE, now, now, now)
                    tx.actions.add(action)
                    tx.audit(now, SERVICE, "drain_adopted", "", f"{state.name}: {reason}")

    def _act(self, policy: Policy, states: Mapping[str, States]) -> None:
        if self._prometheus is None:
            raise PrometheusError("--prometheus.url is not set")
        with self._store.snapshot() as tx:
            incidents = tx.recent_incidents(float("inf"))
            # A dry run only said so: once the policy is on, it is done.
            treated = tx.actions.places_since(self._clock.wall() - AGAIN_SECONDS, dry=not policy.is_on)
        held: Counter[tuple[str, str]] = Counter()
        for finding in findings(policy, self._prometheus, incidents, self._clock.wall()):
            known = states.get(finding.cluster)
            if known is None and finding.cluster in policy.clusters:
                continue  # its scheduler did not answer
            if (finding.cluster, finding.node) in treated:
                continue
            limit = self._treat(finding, known or {})
            if limit:
                held[finding.cluster, limit] += 1
        self.held = held

    def _treat(self, finding: Finding, states: States) -> str:
        """Do what the rule wants of one node; return the limit that holds it back, if one does."""
        state = states.get(finding.node)
        if state is not None and state.held:
            return ""
        kind = {"ask": ASK, "webhook": WEBHOOK}.get(finding.rule.do, DRAIN)
        action = self.executor.new(
            finding.cluster, finding.node, kind,
            rule=finding.rule.name, what=finding.what, incident_id=finding.incident_id, by=SERVICE,
        )  # fmt: skip
        if kind == ASK:
            return self._ask(action) if finding.node in states else UNKNOWN_NODE
        return self.executor.take_out(action, states)

    def _ask(self, action: Action) -> str:
        """Post the question with its button; return the limit if too many are open."""
        executor, now = self.executor, self._clock.wall()
        with self._store.transaction() as tx:
            if sum(each.cluster == action.cluster for each in tx.actions.in_state(ASKED)) >= MOST_QUESTIONS:
                return "questions"
            state = ASKED if executor.policy.is_on else WOULD
            tx.actions.add(Action(**{**vars(action), "state": state}))
            tx.audit(
                now, action.by_whom, f"{action.kind}_{state}", action.incident_id, f"{action.node}: {action.reason}"
            )
            verb = "may return to service" if action.kind == ASK_RETURN else "may have to be drained"
            if state == WOULD:
                executor.post(tx, action, state, f"{verb}: somebody would be asked (dry run)")
            else:
                executor.post(tx, action, state, verb, button=_button(action) if self._has_buttons else None)
        self._changed()
        return ""

    def _return(self, policy: Policy, states: Mapping[str, States], asked_at: float) -> None:
        """Settle drains that others have ended, forget old questions, and put back what has passed its tests."""
        now = self._clock.wall()
        with self._store.transaction() as tx:
            for asked in tx.actions.in_state(ASKED):
                if now - asked.planned_at > AGAIN_SECONDS:
                    tx.actions.set_state(asked, ENDED, now, "nobody answered")
            drained = tx.actions.drained()
        for drain in drained:
            state = states.get(drain.cluster, {}).get(drain.node)
            if state is None or drain.ended_at > asked_at:  # somebody has pressed the button meanwhile
                continue
            if not state.held:
                self._note(drain, ENDED, "somebody returned it to service")
            elif drain.mark not in state.why:
                self._note(drain, OVERTAKEN, f"somebody set another reason: {state.why}")
            elif policy.back.tests:
                self._judge(policy, drain)

    def _note(self, drain: Action, state: str, detail: str) -> None:
        now = self._clock.wall()
        with self._store.transaction() as tx:
            tx.actions.set_state(drain, state, now, detail)
            tx.audit(now, SERVICE, f"drain_{state}", drain.incident_id, f"{drain.node}: {text.plain(detail, 300)}")

    def _judge(self, policy: Policy, drain: Action) -> None:
        """Put a node back, or ask for it, if it has passed all tests since it was drained."""
        assert self._prometheus is not None  # noqa: S101 - _act has seen it
        now = self._clock.wall()
        with self._store.snapshot() as tx:
            recent = tx.actions.of_node(drain.cluster, drain.node, now - RETURNED_SECONDS)
        since = max(drain.planned_at, now - AGAIN_SECONDS)
        returns = [past for past in recent if past.planned_at > since and past.kind in (RETURN, ASK_RETURN)]
        if any(past.state != WOULD or not policy.is_on for past in returns):
            return
        is_good, _why = passed(
            self._prometheus, drain.cluster, drain.node, tests=policy.back.tests, since=drain.ended_at, now=now
        )
        if not is_good:
            return
        before = any(action.kind == RETURN and action.state == DONE for action in recent)
        kind = RETURN if policy.back.do == "return" and not before else ASK_RETURN
        what = f"passed {', '.join(policy.back.tests)} since it was drained"
        action = self.executor.new(
            drain.cluster, drain.node, kind, rule=BACK, what=what, incident_id=drain.incident_id, by=SERVICE
        )
        if kind == RETURN:
            self.executor.bring_back(action)
        else:
            self._ask(action)


def _button(action: Action) -> dict[str, Any]:
    """Return the button with Slack's own question before it acts; its value is only the question's id."""
    is_return = action.kind == ASK_RETURN
    label = "Put back" if is_return else "Drain"
    question = f"{label}: {text.plain(action.node, 100)}?"
    confirm = {
        "title": {"type": "plain_text", "text": label},
        "text": {"type": "plain_text", "text": question},
        "confirm": {"type": "plain_text", "text": label},
        "deny": {"type": "plain_text", "text": "Cancel"},
    }
    element = {
        "type": "button",
        "action_id": CONFIRM_RETURN if is_return else CONFIRM_DRAIN,
        "value": action.id,
        "text": {"type": "plain_text", "text": label, "emoji": True},
        "confirm": confirm,
    }
    return {"type": "actions", "elements": [element]}
