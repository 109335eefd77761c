"""The questions that a policy asks people: each is posted once, and closed when it is answered or no longer applies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from pyrometer_alerting.channel.composer import question_button
from pyrometer_alerting.incidents.storage.actions import (
    ASK,
    ASK_RETURN,
    ASKED,
    COMMON,
    ENDED,
    SERVICE,
    WOULD,
    Action,
)
from pyrometer_alerting.incidents.storage.store import Store
from pyrometer_alerting.policy.brake import States, still_common
from pyrometer_alerting.policy.executor import Executor
from pyrometer_alerting.policy.findings import Facts, Finding, Look, Topic
from pyrometer_alerting.policy.returns import AGAIN_SECONDS, is_untouched, missing
from pyrometer_alerting.policy.rules import CHECK
from pyrometer_alerting.policy.schedulers import NodeState
from pyrometer_kit.clock import Clock

MOST_QUESTIONS = 5  # of one kind open at a time in a cluster: more are not read


class Questions:
    """Asks people, and closes what they were asked; with `has_buttons` a question about one node has a button."""

    def __init__(
        self, store: Store, executor: Executor, *, clock: Clock, changed: Callable[[], None], has_buttons: bool
    ) -> None:
        self._store, self._executor, self._clock, self._changed = store, executor, clock, changed
        self._has_buttons = has_buttons

    def ask_common(self, finding: Finding, nodes: Mapping[str, set[str]], states: Mapping[str, States]) -> None:
        """Ask about a fault that many nodes have, once while it lasts, all clusters together where it is in several."""
        topic, state = str(finding.topic), ASKED if self._executor.policy.is_on else WOULD
        cluster = finding.cluster if len(nodes) == 1 else ""
        count, all_nodes = sum(map(len, nodes.values())), sum(len(states.get(name, ())) for name in nodes)
        name = f"{'the check ' if finding.topic.kind == CHECK else ''}{finding.topic.name}"
        what = f"{name} on {count} of {all_nodes} nodes{f' in {len(nodes)} clusters' if not cluster else ''}"
        drained = sum(
            node.is_ours for name in nodes for node in states.get(name, {}).values() if node.name in nodes[name]
        )
        if drained:
            what += f", {drained} of them drained by us (pyrometer-alerting drains list)"
        action = self._executor.new(
            cluster, "", COMMON, rule=finding.rule.name, what=what, incident_id="", by=SERVICE, topic=topic
        )
        with self._store.transaction() as tx:
            open_ones = tx.actions.in_state(state)
            if any((asked.kind, asked.detail) == (COMMON, topic) for asked in open_ones):
                return
            singles = [asked for asked in open_ones if (asked.kind, asked.detail, asked.state) == (ASK, topic, ASKED)]
            tx.actions.add(replace(action, state=state))
            tx.audit(self._clock.wall(), SERVICE, f"{COMMON}_{state}", "", action.reason)
            said = "has a common cause, so no node is drained for it, decide yourself"
            self._executor.post(tx, action, state, said if state == ASKED else f"{said} (dry run)")
        for asked in singles:
            self.close(asked, "many nodes have it by now: a common cause")
        self._changed()

    def ask(self, action: Action) -> str:
        """Post the question with its button, unless it is open already; return the limit if too many are open."""
        executor = self._executor
        with self._store.transaction() as tx:
            open_ones = [each for each in tx.actions.in_state(ASKED) if each.cluster == action.cluster]
            if any((each.node, each.kind) == (action.node, action.kind) for each in open_ones):
                return ""
            if sum(each.kind == action.kind for each in open_ones) >= MOST_QUESTIONS:
                return "questions"
            state = ASKED if executor.policy.is_on else WOULD
            tx.actions.add(replace(action, state=state))
            tx.audit(
                self._clock.wall(), action.by_whom, f"{action.kind}_{state}", action.incident_id,
                f"{action.node}: {action.reason}",
            )  # fmt: skip
            verb = "may return to service" if action.kind == ASK_RETURN else "may have to be drained"
            if state == WOULD:
                executor.post(tx, action, state, f"{verb}: somebody would be asked (dry run)")
            else:
                executor.post(tx, action, state, verb, button=self._button(action) if self._has_buttons else None)
            if self._has_buttons and tx.outbox.is_posted(action.incident_id):
                tx.outbox.refresh(action.incident_id, self._clock.wall(), 0.0)  # its card gets the button as well
        self._changed()
        return ""

    def _button(self, action: Action) -> dict[str, Any]:
        return {"type": "actions", "elements": [question_button(action, named=self._executor.shows_nodes)]}

    def close_lost(self, facts: Facts, found: Look, states: Mapping[str, States]) -> None:
        """Close what nobody has answered in time, and what has lost its ground; say the latter."""
        with self._store.snapshot() as tx:
            questions = [
                asked for asked in tx.actions.in_state(ASKED, WOULD) if asked.state == ASKED or asked.kind == COMMON
            ]
        for asked in questions:
            lost = self.lost_ground(asked, facts, found, states)
            if lost:
                self.close(asked, lost)
            elif asked.kind != COMMON and found.now - asked.planned_at > AGAIN_SECONDS:
                self.close(asked, "nobody answered", is_said=False)

    def lost_ground(self, asked: Action, facts: Facts, found: Look, states: Mapping[str, States]) -> str:
        """Return why a question no longer applies; empty if it does, or nobody knows.

        Raises:
            PrometheusError: nothing is known.
        """
        if asked.kind == COMMON:
            return "" if still_common(Topic.read(asked.detail), found, states) else "it no longer has a common cause"
        known = states.get(asked.cluster)
        if known is None:
            return ""
        state = known.get(asked.node)
        if state is None:
            return "the scheduler no longer knows it"
        return self._passes(asked, facts, found, state) if asked.kind == ASK_RETURN else _healed(asked, found, state)

    def _passes(self, asked: Action, facts: Facts, found: Look, state: NodeState) -> str:
        with self._store.snapshot() as tx:
            drains = [each for each in tx.actions.drained() if (each.cluster, each.node) == (asked.cluster, asked.node)]
        if not drains or not is_untouched(drains[-1], state):
            return f"somebody set another reason: {state.why}" if state.held else "it is in service"
        waits_for = missing(self._executor.policy, facts, drains[-1], state, found.now)
        return f"it no longer passes: {waits_for}" if waits_for else ""

    def close(self, asked: Action, why: str, *, is_said: bool = True) -> None:
        """Close one, and say why, unless somebody has answered it."""
        with self._store.transaction() as tx:
            if asked.id not in {each.id for each in tx.actions.in_state(ASKED, WOULD)}:
                return  # somebody has answered it meanwhile
            tx.actions.set_state(asked, ENDED, self._executor.now(), why)
            tx.audit(self._clock.wall(), SERVICE, f"{asked.kind}_{ENDED}", asked.incident_id, f"{asked.node}: {why}")
            if is_said:
                self._executor.post(tx, asked, ENDED, "no longer needs an answer", detail=why)
        self._changed()


def _healed(asked: Action, found: Look, state: NodeState) -> str:
    if state.held:
        return f"somebody has drained it: {state.why}"
    topic = Topic.read(asked.detail)
    run = found.of_node(topic, asked.cluster, asked.node)
    return f"{topic} is over" if run is None or run.ended else ""
