"""`pyrometer-alerting drains`: what we took out of service, by the policy or the Slurm scripts; undo, stop, start.

Everything is read from the schedulers and written there: it works without the service, its database or Prometheus.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pyrometer_alerting.model.text import plain, utc
from pyrometer_alerting.policy.kubernetes import Kubernetes
from pyrometer_alerting.policy.rules import KubernetesSettings, SlurmSettings
from pyrometer_alerting.policy.schedulers import OURS, NodeState, Scheduler, SchedulerError
from pyrometer_alerting.policy.slurm import Slurm

ACTIONS = ("list", "undo", "stop", "start")


def schedulers_of(clusters: Mapping[str, SlurmSettings | KubernetesSettings]) -> dict[str, Scheduler]:
    """Return the scheduler of each cluster."""
    return {
        name: Slurm(chosen) if isinstance(chosen, SlurmSettings) else Kubernetes(chosen)
        for name, chosen in clusters.items()
    }


class Drains:
    """One command over all clusters; `failed` says whether something of it was not done."""

    def __init__(self, schedulers: Mapping[str, Scheduler], nodes: Sequence[str] = ()) -> None:
        self.failed = False
        self._schedulers, self._nodes, self._unknown = schedulers, nodes, set(nodes)

    def run(self, action: str) -> Iterator[str]:
        """Do one of ACTIONS in each cluster; yield what is to be said."""
        do = {"list": self._list, "undo": self._undo, "stop": self._stop, "start": self._start}[action]
        for cluster, scheduler in self._schedulers.items():
            try:
                for line in do(scheduler, scheduler.nodes()):
                    yield f"{cluster}: {line}"
            except SchedulerError as error:  # the other clusters still get it
                self.failed = True
                yield f"{cluster}: {action} failed: {error}"
        for node in sorted(self._unknown):
            self.failed = True
            yield f"{node}: no scheduler that answers knows it"

    def _list(self, _scheduler: Scheduler, states: Mapping[str, NodeState]) -> Iterator[str]:
        stops = [state.name for state in states.values() if state.stops]
        if stops:
            yield f"drains are stopped (at {', '.join(stops)})"
        drained = [state for state in states.values() if is_drained_by_us(state)]
        for state in drained:
            since = f"since {utc(state.claim.since)}, " if state.claim else ""
            changed = "" if state.is_ours else " (somebody has changed the reason: undo it by hand)"
            yield f"{state.name}  {since}{plain(state.why, 400)}{changed}"
        yield f"{len(drained)} of {len(states)} nodes are drained by us"

    def _undo(self, scheduler: Scheduler, states: Mapping[str, NodeState]) -> Iterator[str]:
        """Return the named nodes to service, all of ours without a name; only those with our reason, unchanged."""
        for state in states.values():
            if state.name not in self._nodes and (self._nodes or not is_drained_by_us(state)):
                continue
            self._unknown.discard(state.name)
            try:
                if not state.is_ours:
                    raise SchedulerError(f"not our reason: {plain(state.why, 300)}" if state.held else "not drained")
                scheduler.resume(state.name, "", state.why)
                yield f"{state.name} is back in service"
            except SchedulerError as error:
                self.failed = True
                yield f"{state.name} is left alone: {error}"

    def _stop(self, scheduler: Scheduler, states: Mapping[str, NodeState]) -> Iterator[str]:
        """Write the word at one node: at the first that takes it."""
        if any(state.stops for state in states.values()):
            yield "drains are stopped already"
            return
        last = SchedulerError("it has no node")
        for name in states:
            try:
                scheduler.stop(name, on=True)
            except SchedulerError as error:
                last = error
            else:
                yield f"drains are stopped (at {name})"
                return
        raise last

    def _start(self, scheduler: Scheduler, states: Mapping[str, NodeState]) -> Iterator[str]:
        for state in states.values():
            if state.stops:
                scheduler.stop(state.name, on=False)
        yield "drains are not stopped"


def is_drained_by_us(state: NodeState) -> bool:
    """Return whether a node is out of service by our doing, whatever somebody has made of the reason since."""
    return state.held and (state.why.startswith(OURS) or (state.claim is not None and state.claim.checksum is not None))
