"""Digests of several clusters: the figures of each beside those of all, and a digest per channel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

import pytest
from alerting_fakes import START, Bench, FakePrometheus, training_incident

from pyrometer_alerting.channel import judgement
from pyrometer_alerting.channel.blocks import Style
from pyrometer_alerting.channel.digest import digest_page
from pyrometer_alerting.channel.digest.data import ClusterShare, DigestQueries, DigestReport, gather, run_times
from pyrometer_alerting.channel.digest.digest_message import build_digest, goodput_line, headline
from pyrometer_alerting.channel.digest.scheduler import DAY, Digests, DigestScheduler, Schedule
from pyrometer_alerting.model.incident import Cause, Cost, Diagnosis, Incident
from pyrometer_alerting.model.routing import Routing, Rules
from pyrometer_kit.prometheus import Series
from pyrometer_simulator.slack_channel import Channel

ZONE = ZoneInfo("UTC")
DAILY = Schedule("daily", 9 * 60)


class TwoClusters(FakePrometheus):
    """Has a run of the same name in both clusters, and answers only about those that a query chooses."""

    HOURS: ClassVar = {
        ("prod-a", "useful"): 90.0,
        ("prod-a", "down"): 10.0,
        ("prod-b", "useful"): 50.0,
        ("prod-b", "down"): 50.0,
    }

    def instant(self, query: str, at: float) -> list[Series]:
        self.queries.append(query)
        chosen = [name for name in ("prod-a", "prod-b") if "cluster=~" not in query or name in query]
        if "run_seconds" in query:
            return [
                Series({"cluster": cluster, "run": "llama", "state": state}, ((at, hours * 3600),))
                for (cluster, state), hours in self.HOURS.items()
                if cluster in chosen
            ]
        if "by (cluster, node, gpu, uuid)" in query:
            where = {"node": "gpu-001", "gpu": "3", "uuid": "GPU-1"}
            return [Series({"cluster": cluster, **where}, ((at, 5.0),)) for cluster in chosen]
        return []


@pytest.fixture
def prometheus() -> TwoClusters:
    return TwoClusters()


def incidents() -> list[Incident]:
    hot = Diagnosis(START, (Cause("gpu-001 GPU 3", "heat", labels={"node": "n"}),), cost=Cost(2.0, 8, 0.4, START))
    return [
        training_incident(id="a", cluster="prod-a", diagnosis=hot, started_at=START - 400, resolved_at=START - 100),
        training_incident(id="b", cluster="prod-b", started_at=START - 300),
    ]


def report(prometheus: TwoClusters, *clusters: str) -> DigestReport:
    return gather(prometheus, incidents(), "daily", start=START - DAY, end=START, zone=ZONE, clusters=clusters)


def test_the_figures_of_each_cluster_stand_beside_those_of_all(prometheus: TwoClusters) -> None:
    found = report(prometheus)
    assert found.shares == (
        ClusterShare("prod-a", pytest.approx(0.9), 1, 0, 2.0),
        ClusterShare("prod-b", pytest.approx(0.5), 1, 1, 0.0),
    )
    said = build_digest(found, Style(), ZONE).text
    assert "prod-a: goodput 90.0 %, 1 incident, 2.0 GPU-hours lost" in said
    assert "prod-b: goodput 50.0 %, 1 incident (1 firing)" in said
    assert "prod-a llama: 90.0 % of 100 h" in said
    assert "prod-b llama: 50.0 % of 100 h" in said
    assert "(prod-a gpu-001 GPU 3)" in said
    assert "(prod-b gpu-001 GPU 3)" in said
    shown = digest_page.render([found], "", ZONE)
    assert "<h3>By cluster</h3>" in shown
    assert "<td>prod-b</td><td>50.0 %</td><td>1</td><td>1</td>" in shown


def test_a_digest_of_one_cluster_is_about_it_alone(prometheus: TwoClusters) -> None:
    found = report(prometheus, "prod-a")
    assert "digest of prod-a, " in headline(found, ZONE)
    assert (found.incidents, found.firing, found.gpu_hours) == (1, 0, 2.0)
    assert {run.cluster for run in found.runs} == {offender.cluster for offender in found.offenders} == {"prod-a"}
    counted = [query for query in prometheus.queries if "increase(" in query]
    assert counted
    assert [query for query in counted if 'cluster=~"prod-a"' not in query] == []
    said = build_digest(found, Style(), ZONE).text
    assert "prod-b" not in said
    assert "By cluster" not in said
    assert "llama: 90.0 %" in said
    assert "prod-a llama" not in said


def test_runs_of_a_single_cluster_are_shown_without_its_name(prometheus: TwoClusters) -> None:
    alone = gather(prometheus, incidents()[:1], "daily", start=START - DAY, end=START, zone=ZONE, clusters=["prod-a"])
    assert not alone.several


def test_judgements_of_other_clusters_do_not_count(bench: Bench) -> None:
    with bench.store.transaction() as tx:
        for incident in incidents():
            tx.save_incident(incident, 1.0)
            judgement.record(tx, incident, is_right=True, person="alice", now=5.0)
        assert judgement.tally(tx, 0.0, 10.0) == (2, 0)
        assert judgement.tally(tx, 0.0, 10.0, ["prod-a"]) == (1, 0)
        assert judgement.tally(tx, 0.0, 10.0, ["elsewhere"]) == (0, 0)


def channels(bench: Bench) -> Sequence[tuple[str, str]]:
    found: list[Any] = [
        (name, each["text"]) for name in ("gpu-alerts", "prod-a") for each in bench.slack.messages(name)
    ]
    return [(name, text.partition(",")[0]) for name, text in found]


def test_each_channel_gets_its_digest_once(bench: Bench, prometheus: TwoClusters) -> None:
    bench.clock.time = DAILY.latest(bench.clock.time - 5 * DAY, ZONE) + 60
    bench.slack.channels["C000000002"] = Channel(id="C000000002", name="prod-a")
    bench.restart()
    digests = Digests((DAILY,), ZONE, prometheus)

    def scheduler() -> DigestScheduler:
        made = DigestScheduler(bench.store, digests, style=Style(), clock=bench.clock, changed=bench.courier.wake)
        made.routing = Routing("#gpu-alerts", (), {"#prod-a": Rules(digest=("prod-a",))})
        return made

    scheduler().step()  # the first start: nobody waits for yesterday's
    bench.clock.advance(DAY)
    assert scheduler().step() == ["daily"]
    bench.restart()
    assert scheduler().step() == []
    bench.deliver()
    bench.deliver()
    assert channels(bench) == [("gpu-alerts", "Daily digest"), ("prod-a", "Daily digest of prod-a")]


def test_two_runs_of_a_name_are_two_rows_and_the_jobs_that_follow_each_other_one() -> None:
    prometheus = FakePrometheus()
    owners = (("1", "ada", "1"), ("2", "ada", "1"), ("3", "bob", "3"))
    labels = [{"cluster": "c1", "run": "train", "job_id": job} for job, _, _ in owners]
    hours = [Series({**of, "state": "useful"}, ((START, 3600.0 * at),)) for at, of in enumerate(labels, start=1)]
    prometheus.on("run_seconds", hours)
    known = zip(labels, owners, strict=True)
    infos = [Series({**of, "user": user, "lineage": first}, ((START, 1.0),)) for of, (_, user, first) in known]
    prometheus.on("run_job_info", infos)
    runs = run_times(DigestQueries(prometheus), START - DAY, START)
    lines = [goodput_line(run) for run in runs]
    assert lines == ["train (ada, 1 and 1 more): 100.0 % of 3.0 h", "train (bob, 3): 100.0 % of 3.0 h"]
