"""The policy's thread: every quarter of a minute it looks at what is wrong, and acts within the limits.

It looks in this order: what a killed service left half done, which questions have lost their ground, which nodes may
come back, what the rules find. Whoever does not answer (Prometheus, a scheduler) stops that part of the look, and
nothing is concluded from it. Each node is looked at again right before something is done to it.
"""

from __future__ import annotations

import logging
import re
import threading
from collections import Counter
from collections.abc import Callable, Mapping

from pyrometer_alerting.incidents.storage.actions import (
    ASK,
    ASK_RETURN,
    ASKED,
    DONE,
    DRAIN,
    RETURN,
    SERVICE,
    WEBHOOK,
    WOULD,
    Action,
)
from pyrometer_alerting.incidents.storage.store import Store, StoreError
from pyrometer_alerting.model import text
from pyrometer_alerting.model.routing import Routing
from pyrometer_alerting.policy.brake import States, affected, is_common
from pyrometer_alerting.policy.drains import schedulers_of
from pyrometer_alerting.policy.executor import ANSWERED, UNKNOWN_NODE, Executor, what_and_link
from pyrometer_alerting.policy.findings import Facts, Finding, Look, Topic, look
from pyrometer_alerting.policy.questions import Questions
from pyrometer_alerting.policy.returns import AGAIN_SECONDS, Returns
from pyrometer_alerting.policy.rules import CHECK, Policy
from pyrometer_alerting.policy.schedulers import AGAIN, NodeState, SchedulerError
from pyrometer_kit.clock import Clock
from pyrometer_kit.prometheus import PrometheusError

_log = logging.getLogger(__name__)

EVERY_SECONDS = 15.0
DAY_SECONDS = 86_400.0
SET_SECONDS = 300.0  # between two looks: a clock that is set makes of a test of before a drain one of after it
# Use of space and mounts comes and goes with jobs and servers (compose/slurm/health.sh): no sign of a bad repair.
PASSING = frozenset({"filesystem_full", "inodes", "shared_memory", "network_mounts"})
STOPPED, MANY = "stopped", "common_cause"
_MARK = re.compile(r"\[pyrometer:([0-9a-f]{12})\]$")
_HELD = {
    "per_hour": "the limit of nodes per hour is reached", "percent": "the limit of its partition is reached",
    "keep": "it is the last node in service in its partition", UNKNOWN_NODE: "the scheduler does not know it",
    ANSWERED: "this was already answered", STOPPED: "drains are stopped (pyrometer-alerting drains start)",
    MANY: "many nodes have it at once: a common cause",
}  # fmt: skip


class PolicyWorker:
    """Runs in a thread of its own; `replace` may be called from another one, `confirm` too."""

    def __init__(
        self,
        store: Store,
        prometheus: Facts | None,
        *,
        clock: Clock,
        page_url: str,
        changed: Callable[[], None],
        has_buttons: bool = False,
    ) -> None:
        self._store, self._prometheus, self._clock, self._changed = store, prometheus, clock, changed
        self.executor = Executor(store, clock=clock, page_url=page_url, changed=changed)
        self.questions = Questions(store, self.executor, clock=clock, changed=changed, has_buttons=has_buttons)
        self.returns = Returns(store, self.executor, self.questions.ask, clock)
        self._began: float | None = None
        self._set_at: float | None = None
        """Prometheus' time when our monotonic clock was 0, and when (monotonic) it was found to be another one."""
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
        policy = self.executor.policy
        trouble: list[str] = []
        asked_at = 0.0
        try:
            asked_at = self._read_clock() if policy.rules else 0.0
        except PrometheusError as error:
            trouble.append(f"nothing is done while the findings are unknown: {error}")
        self.executor.finish_interrupted()
        if not policy.rules:
            return
        states = self._ask_schedulers(trouble)
        self._adopt(states)
        self.returns.note_ends(states, asked_at or self.executor.now())
        if asked_at:
            try:
                # Returns first: a node that goes out of service in this look is not in what the schedulers said before.
                found = self._look(policy)
                self.questions.close_lost(self._facts(), found, states)
                self.returns.bring_back(policy, self._facts(), states, found.now)
                self._act(policy, states, found, trouble)
            except PrometheusError as error:
                trouble.append(f"nothing is done while the findings are unknown: {error}")
        self.trouble = tuple(trouble)
        if not trouble:
            self.looked_at = self._clock.wall()

    def _facts(self) -> Facts:
        if self._prometheus is None:
            raise PrometheusError("--prometheus.url is not set")
        return self._prometheus

    def _read_clock(self) -> float:
        """Ask Prometheus for its time, in which all limits and durations are, and return it."""
        now, passed = self._facts().now(), self._clock.monotonic()
        began = now - passed
        moved = abs(began - (began if self._began is None else self._began))
        if moved > SET_SECONDS:
            self._set_at = passed if self._set_at is None else self._set_at
            if passed - self._set_at < AGAIN_SECONDS:
                raise PrometheusError(f"its clock was set by {text.duration(moved)}; it is believed after six hours")
        self._began, self._set_at = began, None
        self.executor.ahead = now - self._clock.wall()
        return now

    def _look(self, policy: Policy) -> Look:
        with self._store.snapshot() as tx:
            incidents = tx.recent_incidents(float("inf"))
            asked = [Topic.read(question.detail) for question in tx.actions.in_state(ASKED, WOULD)]
        now = self._read_clock()
        return look(policy, self._facts(), incidents, now, asked=asked, ahead=self.executor.ahead)

    def confirm(self, action_id: str, person: str) -> str:
        """Do what was asked, if it is still right on today's facts; return what that person is told.

        Raises:
            StoreError: nothing was done.
        """
        with self._store.snapshot() as tx:
            asked = next((each for each in tx.actions.in_state(ASKED) if each.id == action_id), None)
        if asked is None:
            return "This was already answered, or no longer applies."
        policy = self.executor.policy
        if not policy.is_on:
            return "The policy is in dry run: nothing is done. Set `mode: on` in its file to switch it on."
        if asked.cluster not in self.executor.schedulers:
            return "The policy no longer names a scheduler for this cluster."
        try:
            lost, states = self._today(asked)
        except (PrometheusError, SchedulerError) as error:
            lost, states = str(error), {}
        if not lost:
            return self._confirmed(asked, person, states)
        shown = self.executor.shows_nodes  # a reason or an error may name it
        return f"Nothing was done: {text.mrkdwn(lost, 300) if shown else 'it no longer applies, or nobody answers'}."

    def _today(self, asked: Action) -> tuple[str, Mapping[str, States]]:
        """Look again for a question; return why it no longer applies, which closes it, and what the schedulers say."""
        found = self._look(self.executor.policy)
        silent: list[str] = []
        states = self._ask_schedulers(silent)
        if asked.cluster not in states:
            raise SchedulerError(silent[0])
        lost = self.questions.lost_ground(asked, self._facts(), found, states)
        if lost:
            self.questions.close(asked, lost)
        return lost, states

    def _confirmed(self, asked: Action, person: str, states: Mapping[str, States]) -> str:
        kind = RETURN if asked.kind == ASK_RETURN else DRAIN
        what, _link = what_and_link(asked)
        state = states[asked.cluster].get(asked.node)
        if state is None or state.held is (kind == DRAIN):
            return f"Nothing was done: {_HELD[UNKNOWN_NODE] if state is None else 'it is already so'}."
        action = self.executor.new(
            asked.cluster, asked.node, kind, rule=asked.rule, incident_id=asked.incident_id, by=person,
            what=self._again(state, what, asked.detail) if kind == DRAIN else what, topic=asked.detail,
        )  # fmt: skip
        if kind == RETURN:
            held = self.executor.bring_back(action, state.why, asked)
        else:
            held = _stopped(states) or self.executor.take_out(action, states[asked.cluster], asked)
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
        now = self.executor.now()
        with self._store.transaction() as tx:
            known = {action.id for action in tx.actions.newest(10_000)} | {action.id for action in tx.actions.drained()}
            for cluster, state, found in marked:
                if found not in known:
                    reason = state.why.rpartition(" [pyrometer:")[0]
                    at = state.claim.since if state.claim is not None else now
                    tx.actions.add(Action(found, cluster, state.name, DRAIN, DONE, "", "", reason, SERVICE, at, at, at))
                    tx.audit(self._clock.wall(), SERVICE, "drain_adopted", "", f"{state.name}: {reason}")

    def _act(self, policy: Policy, states: Mapping[str, States], found: Look, trouble: list[str]) -> None:
        with self._store.snapshot() as tx:
            # A dry run only said so: once the policy is on, it is done.
            treated = tx.actions.places_since(found.now - AGAIN_SECONDS, dry=not policy.is_on)
            questions = {
                (asked.cluster, asked.node): asked for asked in tx.actions.in_state(ASKED) if asked.kind == ASK
            }
        held: Counter[tuple[str, str]] = Counter()
        common: set[tuple[Topic, float]] = set()
        for finding in found.found:
            place = finding.cluster, finding.node
            if place in treated or (finding.cluster in policy.clusters and finding.cluster not in states):
                continue  # or its scheduler did not answer
            asked = questions.get(place)
            if asked is not None and not _is_worse(policy, finding, asked):
                continue
            try:
                limit = MANY if (finding.topic, finding.since) in common else self._treat(finding, states, found, asked)
            except SchedulerError as error:
                trouble.append(f"{finding.node} is not drained: {error}")
                continue
            if limit == MANY:
                common.add((finding.topic, finding.since))
            if limit:
                held[finding.cluster, limit] += 1
        self.held = held

    def _treat(self, finding: Finding, states: Mapping[str, States], found: Look, asked: Action | None) -> str:
        """Do what the rule wants of one node; return the limit that holds it back, if one does."""
        cluster, node = finding.cluster, finding.node
        state = states.get(cluster, {}).get(node)
        if state is not None and state.held:
            return ""
        kind = {"ask": ASK, "webhook": WEBHOOK}.get(finding.rule.do, DRAIN)
        action = self.executor.new(
            cluster, node, kind, rule=finding.rule.name, incident_id=finding.incident_id, by=SERVICE,
            what=self._again(state, finding.what, str(finding.topic)), topic=str(finding.topic),
        )  # fmt: skip
        limit = self._limit(finding, action, states, found)
        if limit:
            return limit
        if asked is not None:
            self.questions.close(asked, f"replaced by a worse finding: {finding.what}")
        if kind == ASK:
            return self.questions.ask(action)
        if cluster in states:  # right before the call, it is decided again
            now = dict(states) | {cluster: self.executor.schedulers[cluster].nodes()}
            fresh = now[cluster].get(node)
            if fresh is not None and fresh.held:
                return ""
            return self._limit(finding, action, now, found) or self.executor.take_out(action, now[cluster])
        return self.executor.take_out(action, {})

    def _limit(self, finding: Finding, action: Action, states: Mapping[str, States], found: Look) -> str:
        """Return what keeps a node from being drained or asked for; a common cause is asked about, once."""
        nodes = affected(finding.topic, finding.since, found, states)
        nodes.setdefault(finding.cluster, set()).add(finding.node)
        if is_common(nodes, states):
            self.questions.ask_common(finding, nodes, states)
            return MANY
        if action.kind == ASK:
            return "" if finding.node in states.get(finding.cluster, {}) else UNKNOWN_NODE
        return _stopped(states) or self.executor.holds_back(action, states.get(finding.cluster, {}))

    def _again(self, state: NodeState | None, what: str, topic: str) -> str:
        """Return `what`, with AGAIN before it if we returned the node less than a day ago, unless such faults pass."""
        about = Topic.read(topic)
        is_passing = about.kind == CHECK and about.name in PASSING
        returned_at = state.returned_at if state is not None else 0.0
        is_again = self.executor.now() - returned_at < DAY_SECONDS and not is_passing
        return f"{AGAIN}{what}" if is_again and not what.startswith(AGAIN) else what


def _stopped(states: Mapping[str, States]) -> str:
    """Return the limit if somebody has stopped the drains, in whichever cluster."""
    return STOPPED if any(state.stops for nodes in states.values() for state in nodes.values()) else ""


def _is_worse(policy: Policy, finding: Finding, asked: Action) -> bool:
    """Return whether a finding is of an earlier rule than an open question: the first rule counts."""
    names = [rule.name for rule in policy.rules]
    return asked.rule not in names or names.index(finding.rule.name) < names.index(asked.rule)
