"""Posted ends and times are claims: Alertmanager and Prometheus say what is true, and no clock that is set decides."""

from __future__ import annotations

import pytest
from alerting_fakes import SILENT, Bench, raw_alert
from alerting_upstream import Upstream, fault, over

from pyrometer_alerting.incidents.intake import (
    CLUSTER_WATCHDOG,
    MOST_CLUSTERS,
    MOST_NAMES,
    MOST_RECEIVERS,
    OUR_ALERT,
    OUR_RECEIVER,
)


@pytest.fixture
def upstream(bench: Bench) -> Upstream:
    return Upstream(bench)


@pytest.mark.parametrize("knower", ["one Alertmanager", "both", "Prometheus while they are silent"])
def test_a_forged_end_of_what_is_active_changes_nothing(upstream: Upstream, knower: str) -> None:
    alert = fault(upstream)
    upstream.second.knows(alert)
    if knower == "both":
        upstream.knows(alert)
    elif knower != "one Alertmanager":
        upstream.fires(alert)
        upstream.first.silent = upstream.second.silent = True
    upstream.bench.receive(alert)
    for _ in range(3):
        assert upstream.bench.receive({**alert, **over(upstream)}).has_parked
        upstream.steps(120)
        assert "Resolved" not in upstream.text()
    assert upstream.bench.metrics.corrections.labels("not_ended")._value.get() == 1
    assert upstream.bench.receive({**alert, **over(upstream)}).has_parked
    upstream.steps(60)
    upstream.knows()
    upstream.fires()
    upstream.steps(2, every=2)
    with upstream.bench.store.transaction() as tx:
        (incident,) = tx.incidents()
    assert incident.resolved_at == pytest.approx(upstream.bench.clock.time - 5, abs=5), "not when the post says"


def test_an_end_is_believed_after_five_minutes_with_nobody_who_answers(upstream: Upstream) -> None:
    alert = fault(upstream)
    upstream.bench.receive(alert)
    upstream.bench.receive({**alert, **over(upstream)})
    upstream.first.silent = upstream.second.silent = True
    upstream.prometheus.on("^ALERTS", SILENT)
    upstream.steps(300)
    assert "Resolved" not in upstream.text()
    upstream.steps(60)
    assert "Resolved" in upstream.text()


@pytest.mark.parametrize("jump", [5 * 3600.0, -5 * 3600.0])
def test_a_clock_of_ours_that_is_set_resolves_nothing_and_stops_no_heart(upstream: Upstream, jump: float) -> None:
    """An alert that nobody has at one look is not gone for hours; a heartbeat of a minute ago stays one."""
    upstream.bench.receive(raw_alert("Watchdog", severity="info"))
    upstream.bench.receive(fault(upstream), groupKey="fault")
    upstream.steps(30)  # nobody has it at this look
    upstream.bench.clock.ahead += jump
    upstream.steps(15, every=15)
    upstream.knows(fault(upstream))
    upstream.steps(60)
    assert "Resolved" not in upstream.text()
    assert "heartbeat" not in upstream.text()
    upstream.steps(240)
    assert "the Watchdog heartbeat has stopped" in upstream.text(), "it is missed all the same"


@pytest.mark.parametrize("jump", [5 * 3600.0, -5 * 3600.0])
def test_a_clock_of_prometheus_that_is_set_ends_nothing_that_alertmanager_has(upstream: Upstream, jump: float) -> None:
    """Its posts carry its times: an end of before the start, or of tomorrow."""
    alert = fault(upstream)
    upstream.bench.receive(alert)
    upstream.knows(alert)
    ended = raw_alert(firing=False, starts_at=0, ends_at=upstream.bench.clock.time + jump)
    upstream.bench.receive({**alert, "status": "resolved", "endsAt": ended["endsAt"]})
    upstream.steps(60)
    assert "Resolved" not in upstream.text()
    upstream.knows()
    upstream.steps(150)
    with upstream.bench.store.transaction() as tx:
        (incident,) = tx.incidents()
    assert incident.started_at < (incident.resolved_at or 0.0) <= upstream.bench.clock.time


def test_names_that_anybody_posts_are_bounded_and_the_latest_stay(upstream: Upstream) -> None:
    """Receivers, alerts' names and clusters with a heartbeat are remembered, each of which is missed one day."""
    for n in range(120):
        heartbeat = raw_alert("Watchdog", severity="info", cluster=f"c{n}")
        others = [raw_alert(f"Forged{n}-{k}", node="n1") for k in range(30)]
        upstream.bench.receive(heartbeat, *others, receiver=f"r{n}", groupKey=str(n))
        upstream.bench.clock.advance(1)
    with upstream.bench.store.transaction() as tx:
        kept = [tx.facts(prefix) for prefix in (CLUSTER_WATCHDOG, OUR_RECEIVER, OUR_ALERT)]
    assert list(map(len, kept)) == [MOST_CLUSTERS, MOST_RECEIVERS, MOST_NAMES]
    assert [name in facts for name, facts in zip(("c119", "r119", "Forged119-3"), kept, strict=True)] == [True] * 3


def wired(upstream: Upstream) -> None:
    """Alertmanager has the heartbeat for us, and Prometheus answers and watches the cluster."""
    heartbeat = raw_alert("Watchdog", severity="info")
    upstream.bench.receive(heartbeat)
    upstream.knows(heartbeat)
    upstream.fires(heartbeat)
    upstream.prometheus.answers.append(("^group.up", upstream.firing(heartbeat)))


def test_what_nobody_has_but_who_posted_it_is_told_to_nobody(upstream: Upstream) -> None:
    wired(upstream)
    assert upstream.bench.receive(fault(upstream), groupKey="forged").has_opened
    upstream.steps(0.2, every=0.2)
    upstream.steps(150, every=30)
    assert upstream.bench.messages == []
    with upstream.bench.store.transaction() as tx:
        (incident,) = tx.incidents()
    assert (incident.firing, incident.note) == (False, "neither Alertmanager nor Prometheus has had it")


@pytest.mark.parametrize(
    "why",
    [
        *("silent", "other Alertmanager", "other receiver", "other cluster", "Prometheus had it"),
        *("known a moment later", "silent later"),
    ],
)
def test_what_may_be_true_is_told(upstream: Upstream, why: str) -> None:
    if why != "other Alertmanager":
        wired(upstream)
    alert = fault(upstream)
    if why == "other receiver":  # such as Grafana's contact point, which no Alertmanager that we ask has
        upstream.bench.receive(raw_alert("Watchdog", severity="info"), receiver="grafana", groupKey="theirs")
    if why == "other cluster":
        upstream.prometheus.answers.insert(0, ("^group.up", []))
    if why == "Prometheus had it":
        upstream.prometheus.answers.insert(0, ("^last_over_time", upstream.firing(alert)))
    upstream.second.silent = why == "silent"
    upstream.bench.receive(alert, groupKey="true")
    upstream.steps(0.2, every=0.2)
    held = why in ("known a moment later", "silent later")
    upstream.bench.deliver(1)
    assert bool(upstream.bench.messages) != held
    if why == "silent later":
        upstream.first.silent = upstream.second.silent = True
        upstream.prometheus.on("^ALERTS", SILENT)
        upstream.steps(120)
    elif held:
        upstream.second.knows(raw_alert("Watchdog", severity="info"), alert)
        upstream.steps(2, every=2)
    assert upstream.bench.messages
