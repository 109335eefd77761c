"""Bring a drained node back: by our own reason, unchanged, once everything has passed that it waits for."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyrometer_alerting.incidents.storage.actions import (
    ASK_RETURN,
    DONE,
    ENDED,
    LOST,
    OVERTAKEN,
    RETURN,
    SERVICE,
    WOULD,
    Action,
)
from pyrometer_alerting.incidents.storage.store import Store
from pyrometer_alerting.model import text
from pyrometer_alerting.policy.brake import States
from pyrometer_alerting.policy.executor import Executor
from pyrometer_alerting.policy.findings import Facts, missing_for_return
from pyrometer_alerting.policy.rules import Policy
from pyrometer_alerting.policy.schedulers import AGAIN, NodeState
from pyrometer_kit.clock import Clock

# Nothing is done or asked of a node a second time so soon: whoever put it back knew why.
AGAIN_SECONDS = 6 * 3600.0
# A node that the policy has put back before is put back by people the next time.
RETURNED_SECONDS = 7 * 86_400.0
BACK = "back"


def is_untouched(drain: Action, state: NodeState) -> bool:
    """Return whether a node still has the reason of this drain, unchanged; one of an earlier release has no claim."""
    return state.held and drain.mark in state.why and (state.is_ours or state.why == f"{drain.reason} [{drain.mark}]")


def missing(policy: Policy, facts: Facts, drain: Action, state: NodeState, now: float) -> str:
    """Return what a node still waits for, in words; empty if it may return.

    Raises:
        PrometheusError: nothing is known.
    """
    if not policy.back.tests:
        return "a person: the policy has no `back`"
    since = max(drain.planned_at, drain.ended_at)
    return missing_for_return(facts, drain.cluster, state, tests=policy.back.tests, since=since, now=now)


class Returns:
    """Notes the drains that others have ended, and ends its own."""

    def __init__(self, store: Store, executor: Executor, ask: Callable[[Action], str], clock: Clock) -> None:
        self._store, self._executor, self._ask, self._clock = store, executor, ask, clock
        self.waits: Mapping[tuple[str, str], str] = {}
        """What a drained node waits for before it returns, by (cluster, node)."""

    def note_ends(self, states: Mapping[str, States], asked_at: float) -> None:
        """Settle drains that others have ended."""
        with self._store.snapshot() as tx:
            drained = tx.actions.drained()
        for drain in drained:
            state = states.get(drain.cluster, {}).get(drain.node)
            if state is None or drain.ended_at > asked_at:  # somebody has pressed the button meanwhile
                continue
            if not state.held:
                self._note(drain, ENDED, "somebody returned it to service")
            elif not is_untouched(drain, state):
                self._note(drain, OVERTAKEN, f"somebody set another reason: {state.why}")

    def _note(self, drain: Action, state: str, detail: str) -> None:
        with self._store.transaction() as tx:
            tx.actions.set_state(drain, state, self._executor.now(), detail)
            said = f"{drain.node}: {text.plain(detail, 300)}"
            tx.audit(self._clock.wall(), SERVICE, f"drain_{state}", drain.incident_id, said)

    def bring_back(self, policy: Policy, facts: Facts, states: Mapping[str, States], now: float) -> None:
        """Put back, or ask for, the nodes that have passed what they wait for."""
        with self._store.snapshot() as tx:
            drained = tx.actions.drained()
        waits: dict[tuple[str, str], str] = {}
        for drain in drained:
            state = states.get(drain.cluster, {}).get(drain.node)
            if state is not None and state.held and drain.ended_at <= now:
                waits_for = missing(policy, facts, drain, state, now)
                waits[drain.cluster, drain.node] = waits_for or "a person"
                if not waits_for:
                    self._return(policy, drain, state, now)
        self.waits = waits

    def _return(self, policy: Policy, drain: Action, state: NodeState, now: float) -> None:
        with self._store.snapshot() as tx:
            recent = tx.actions.of_node(drain.cluster, drain.node, now - RETURNED_SECONDS)
        since = max(drain.planned_at, now - AGAIN_SECONDS)
        returns = [past for past in recent if past.planned_at > since and past.kind in (RETURN, ASK_RETURN)]
        closed = [
            (RETURN, LOST),
            (ASK_RETURN, ENDED),
            *([(RETURN, WOULD), (ASK_RETURN, WOULD)] if policy.is_on else []),
        ]
        if any((past.kind, past.state) not in closed for past in returns):
            return
        before = any(action.kind == RETURN and action.state == DONE for action in recent)
        is_again = AGAIN in state.why or (state.claim is not None and state.claim.again)
        kind = RETURN if policy.back.do == "return" and not before and not is_again else ASK_RETURN
        what = f"passed {', '.join(policy.back.tests)} since it was drained"
        action = self._executor.new(
            drain.cluster, drain.node, kind, rule=BACK, what=what, incident_id=drain.incident_id, by=SERVICE
        )
        if kind == RETURN:
            self._executor.bring_back(action, state.why)
        else:
            self._ask(action)
