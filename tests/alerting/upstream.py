"""Sources of the truth for the reconciler's tests: two Alertmanagers and a Prometheus."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from alerting_fakes import Bench, FakeAlertmanager, FakePrometheus, raw_alert

from pyrometer_alerting.incidents.reconcile import Reconciler
from pyrometer_kit.prometheus import Series


class Upstream:
    """Two Alertmanagers and a Prometheus, and the reconciler that asks them."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.first, self.second = FakeAlertmanager(), FakeAlertmanager()
        self.prometheus = FakePrometheus()
        self.start([self.first, self.second], self.prometheus)

    def start(self, alertmanagers: Sequence[FakeAlertmanager], prometheus: FakePrometheus | None) -> None:
        self.reconciler = Reconciler(
            self.bench.store,
            self.bench.intake,
            alertmanagers,
            prometheus,
            clock=self.bench.clock,
            metrics=self.bench.metrics,
            changed=lambda _outcome: None,
        )

    def knows(self, *raw: dict[str, Any], muted: bool = False) -> None:
        self.first.knows(*raw, muted=muted)
        self.second.knows(*raw, muted=muted)

    def fires(self, *raw: dict[str, Any]) -> None:
        self.prometheus.answers = [("^ALERTS", self.firing(*raw))]

    def firing(self, *raw: dict[str, Any]) -> list[Series]:
        now = self.bench.clock.time
        return [Series({**each["labels"], "alertstate": "firing"}, ((now, 1.0),)) for each in raw]

    def steps(self, seconds: float, every: float = 30.0) -> None:
        end = self.bench.clock.time + seconds
        while self.bench.clock.time < end:
            self.bench.clock.advance(every)
            self.reconciler.step()
        self.bench.deliver(5)

    def text(self) -> str:
        return " ".join(message["text"] + str(message["blocks"]) for message in self.bench.messages)


def fault(upstream: Upstream, **more: Any) -> dict[str, Any]:
    return raw_alert(node="n1", gpu="3", starts_at=upstream.bench.clock.time - 10, **more)


def over(upstream: Upstream) -> dict[str, str]:
    ended = raw_alert(firing=False, starts_at=0, ends_at=upstream.bench.clock.time - 1)
    return {"status": "resolved", "endsAt": ended["endsAt"]}
