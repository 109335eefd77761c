from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

import pytest
from alerting_fakes import SILENT, START, FakePrometheus, alert, training_incident

from pyrometer_alerting.diagnosis.gather import Evidence, _ask
from pyrometer_alerting.diagnosis.investigation import investigate
from pyrometer_alerting.diagnosis.look import Look, Query, Questions
from pyrometer_alerting.incidents.correlation import explained_by
from pyrometer_alerting.incidents.lifecycle import fold
from pyrometer_alerting.model.culprits import culprits
from pyrometer_alerting.model.incident import Diagnosis, Incident
from pyrometer_kit.prometheus import PrometheusError, Series

NOW = START + 60
DROP = NOW - 40
NODES = [f"gpu-{number:03d}" for number in range(40, 48)]


def point(value: float, **labels: str) -> Series:
    return Series(labels, ((NOW, float(value)),))


def ramp(began: float, *, per_second: float = 1.0, until: float = NOW, **labels: str) -> Series:
    times = [NOW - 600 + 5 * step for step in range(121)]
    points = tuple((at, max(0.0, min(at, until) - began) * per_second) for at in times)
    return Series(labels, points)


def steps(*events: float, **labels: str) -> Series:
    times = [NOW - 600 + 5 * step for step in range(121)]
    return Series(labels, tuple((at, float(sum(event <= at for event in events))) for at in times))


def risen(query: str, counters: list[Series]) -> list[Series]:
    if not query.startswith("increase("):
        return counters
    return [point(one.points[-1][1], **one.labels) for one in counters if one.points[-1][1]]


class Cluster(FakePrometheus):
    """A run of 64 GPUs on 8 nodes whose MFU fell at DROP; faults are added."""

    def __init__(self) -> None:
        super().__init__()
        self.throttled: list[Series] = []
        self.flapping: list[Series] = []
        self.clocks: dict[tuple[str, str], float] = {}
        self.hot: dict[tuple[str, str], float] = {}
        self.last: dict[str, float] = {}  # of silent nodes
        self.at = NOW
        self.ports: list[Series] = []  # at a switch or rail that fires
        self.lost: list[Series] = []
        self.racks: dict[str, str] = {}

    def instant(self, query: str, at: float) -> list[Series]:
        self.at = at
        return super().instant(query, at)

    def _answer(self, query: str) -> list[Series]:
        self.queries.append(query)
        if query.startswith("max") and "increase" not in query and ("link_up" in query or "expected_up" in query):
            return []
        if "fabric_port_info" in query or ("by (node, device, port)" in query and self.ports):
            return self._wiring(query)
        known: dict[str, Callable[[str], list[Series]]] = {
            "timestamp": lambda _query: [point(self.last.get(node, NOW), node=node) for node in NODES],
            "rank_info": lambda _query: self._ranks(),
            "mfu_ratio": lambda _query: [
                Series({}, tuple((NOW - age, 0.45 if NOW - age < DROP else 0.33) for age in range(900, -1, -5)))
            ],
            "clock_event_seconds": lambda query: risen(query, self.throttled),
            "link_down_events": lambda query: risen(query, self.flapping),
            "SM_CLOCK": lambda _query: self._gpus(self.clocks, 1980.0),
            "GPU_TEMP": lambda _query: self._gpus(self.hot, 62.0),
            "count(pyrometer_train_step_part": lambda _query: [point(1)],
        }
        return next((answer(query) for name, answer in known.items() if name in query), [])

    def _ranks(self) -> list[Series]:
        ranks = [(node, str(gpu)) for node in NODES for gpu in range(8)]
        return [point(1, node=node, gpu=gpu, attempt="2", rack=self.racks.get(node, "")) for node, gpu in ranks] + [
            point(1, node="gpu-999", gpu="0", attempt="1")
        ]

    def _gpus(self, known: dict[tuple[str, str], float], usual: float) -> list[Series]:
        return [
            point(known.get((node, str(gpu)), usual) if self.at > DROP else usual, node=node, gpu=str(gpu))
            for node in NODES
            if node not in self.last
            for gpu in range(8)
        ]

    def _wiring(self, query: str) -> list[Series]:
        if "fabric_port_info" in query:
            return [port for port in self.ports if port.labels["switch"] in query or port.labels["rail"] in query]
        return self.lost if "nic_link_up" in query else self.ports

    def wire(self, *nodes: str, switch: str = "leaf-12", rail: str = "rail-3", lost: Collection[str] = ()) -> None:
        for node in nodes:
            port = point(1, node=node, device="mlx5_3", port="1", switch=switch, rail=rail)
            self.ports.append(port)
            self.lost += [port] if node in lost else []

    def heat(
        self,
        *,
        node: str = "gpu-042",
        gpu: str = "3",
        began: float = DROP - 2,
        until: float = NOW,
        clock: float = 1230.0,
        celsius: float = 89.0,
        reason: str = "hw_thermal",
    ) -> None:
        self.throttled.append(ramp(began, until=until, node=node, gpu=gpu, reason=reason))
        self.clocks[node, gpu], self.hot[node, gpu] = clock, celsius


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def diagnose(prometheus: FakePrometheus, others: Sequence[Incident] = ()) -> Diagnosis:
    return investigate(prometheus, training_incident(), list(others), NOW)


def test_a_throttling_gpu_is_named_with_its_numbers(cluster: Cluster) -> None:
    cluster.heat()
    result = diagnose(cluster)
    (cause,) = result.causes
    assert (cause.part, cause.cause, cause.against) == ("gpu-042 GPU 3", "hardware thermal throttling", ())
    assert cause.confidence == "high"
    assert cause.evidence[0].startswith("throttled 100 % of the time since ")
    lower = (
        "SM clock down to 1230 MHz against 1980 MHz before the drop and 1980 MHz, the median of the run's other GPUs"
    )
    assert cause.evidence[1:] == (lower, "89 °C, 62 °C the median of the run")
    assert result.missing == ()
    assert result.onset == DROP
    assert culprits(training_incident(diagnosis=result)) == ["gpu-042 GPU 3"]


def test_the_most_specific_reason_is_named(cluster: Cluster) -> None:
    cluster.heat()
    cluster.heat(reason="hw_slowdown")
    assert [cause.cause for cause in diagnose(cluster).causes] == ["hardware thermal throttling"]


def test_a_flapping_link_is_named(cluster: Cluster) -> None:
    cluster.flapping.append(steps(DROP, DROP + 15, DROP + 30, node="gpu-044", device="mlx5_5", port="1"))
    (cause,) = diagnose(cluster).causes
    assert (cause.part, cause.cause) == ("gpu-044 mlx5_5/1", "link flapping")
    assert cause.evidence[0].startswith("link went down 3 times since ")


def test_what_began_after_the_drop_ranks_below_and_says_so(cluster: Cluster) -> None:
    cluster.heat(began=DROP + 30)
    cluster.flapping.append(steps(DROP, DROP + 10, node="gpu-044", device="mlx5_5", port="1"))
    found = diagnose(cluster)
    assert [cause.part for cause in (*found.causes, *found.seen)] == ["gpu-044 mlx5_5/1", "gpu-042 GPU 3"]
    assert found.seen[0].against == ("began 30 s after the drop",)


def test_what_ended_before_the_drop_is_not_its_cause(cluster: Cluster) -> None:
    flaps = (DROP - 66, DROP - 63, DROP - 60)
    cluster.flapping.append(steps(*flaps, node="gpu-044", device="mlx5_5", port="1"))
    fired = alert("NicLinkFlapping", labels={"node": "gpu-044", "device": "mlx5_5", "port": "1"}, starts_at=DROP - 58)
    other = replace(training_incident(), alertname="NicLinkFlapping", members=(fired,), run="")
    found = diagnose(cluster, [other])
    assert found.causes[0].part == "unknown"
    assert (found.seen[0].part, found.seen[0].against[0]) == ("gpu-044 mlx5_5/1", "ended 60 s before the drop")


def test_heat_of_another_run_is_not_a_cause(cluster: Cluster) -> None:
    cluster.heat(node="gpu-200")
    assert diagnose(cluster).causes[0].part == "unknown"


def test_throttling_that_ended_long_ago_is_not_sold_as_a_cause(cluster: Cluster) -> None:
    cluster.heat(began=NOW - 250, until=NOW - 200, clock=1980.0, celsius=60.0)
    found = diagnose(cluster)
    assert [cause.part for cause in found.causes] == ["unknown"]
    assert "gpu-042 GPU 3" not in culprits(training_incident(diagnosis=found))


def test_nothing_found_is_unknown_with_what_was_looked_at(cluster: Cluster) -> None:
    (cause,) = diagnose(cluster).causes
    assert cause.part == "unknown"
    assert cause.evidence[0].startswith("examined on 64 GPUs of 8 nodes: throttling, clocks, ")
    assert culprits(training_incident(diagnosis=diagnose(cluster))) == []


def test_a_silent_node_is_missing_evidence(cluster: Cluster) -> None:
    cluster.heat()
    cluster.last["gpu-047"] = NOW - 200
    result = diagnose(cluster)
    assert result.missing[0].startswith("56 of the run's 64 GPUs report: no data from gpu-047 since ")
    assert result.causes[0].part == "gpu-042 GPU 3"


def test_a_silent_prometheus_is_said_and_asked_only_once() -> None:
    prometheus = FakePrometheus()
    prometheus.on(".", SILENT)
    result = diagnose(prometheus, [heat_incident()])
    assert result.missing == ("Prometheus did not answer (ConnectTimeout)",)
    assert len(prometheus.queries) == 1
    assert result.causes[0].part == "unknown"
    assert "it is not known whether the run uses it" in result.causes[0].evidence[0]


def test_the_next_look_begins_with_what_the_last_one_did_not_come_to(cluster: Cluster) -> None:
    """Each query fails in turn: who is asked last must not wait until all before answer at once."""
    known, asked = diagnose(cluster), list[str]()

    def failing(name: str) -> Query:
        def find(_questions: Questions) -> Look:
            asked.append(name)
            if len(asked) % 3 == 0:
                raise PrometheusError("no answer")
            return Look()

        find.__name__ = name
        return Query(find)

    queries = [failing(name) for name in "abcdefgh"]
    evidence = Evidence(known.facts)
    for turn in range(5):
        questions = Questions(cluster, training_incident(), NOW + 10 * turn, answered=evidence.answered)
        evidence = _ask(questions, queries, [], evidence)
    assert set(evidence.answered) == set("abcdefgh")


def heat_incident(**labels: Any) -> Any:
    member = alert("GpuThrottledThermal", labels={"node": "gpu-042", "gpu": "3", **labels})
    return fold(None, [member], 0, START).incident


def test_an_alert_of_our_own_confirms_or_stands_alone(cluster: Cluster) -> None:
    alone = diagnose(cluster, [heat_incident()]).causes[0]
    assert (alone.part, alone.cause) == ("gpu-042 GPU 3", "thermal throttling")
    cluster.heat()
    confirmed = diagnose(cluster, [heat_incident()]).causes
    assert len(confirmed) == 1
    assert not any("GpuThrottledThermal" in sentence for sentence in confirmed[0].evidence), "it says the same"


def test_alerts_of_other_clusters_and_nodes_do_not_count(cluster: Cluster) -> None:
    others = [heat_incident(cluster="c2"), heat_incident(node="gpu-200")]
    assert diagnose(cluster, others).causes[0].part == "unknown"


def test_many_hot_gpus_are_no_single_part(cluster: Cluster) -> None:
    for node in NODES[:4]:
        for gpu in range(8):
            cluster.heat(node=node, gpu=str(gpu))
    causes = diagnose(cluster).causes
    assert causes[0].part == "no single part"
    assert causes[0].evidence[0].endswith(" on 32 of the run's 64 GPUs, 4 of the run's 8 nodes")


def test_a_slow_clock_without_a_reason_is_seen(cluster: Cluster) -> None:
    cluster.clocks["gpu-041", "5"] = 1200.0
    (cause,) = diagnose(cluster).causes
    assert (cause.part, cause.cause) == ("gpu-041 GPU 5", "low SM clock")


def test_equal_clocks_and_normal_temperature_speak_against(cluster: Cluster) -> None:
    cluster.heat(clock=1980.0, celsius=60.0)
    found = diagnose(cluster)
    (cause,) = found.seen
    assert cause.against == (
        "its SM clock was not seen lower than before or than its peers'",
        "temperature normal (60 °C)",
    )
    assert cause.score < 60


def test_a_gpu_that_has_just_cooled_down_does_not_look_innocent(cluster: Cluster) -> None:
    cluster.heat(until=NOW - 5)
    cluster.flapping.append(steps(DROP - 12, DROP - 9, DROP - 6, node="gpu-044", device="mlx5_5", port="1"))
    found = diagnose(cluster)
    assert [cause.part for cause in (*found.causes, *found.seen)] == ["gpu-042 GPU 3", "gpu-044 mlx5_5/1"]


def test_known_causes_outlive_a_silent_prometheus(cluster: Cluster) -> None:
    cluster.heat()
    incident = training_incident(diagnosis=diagnose(cluster))
    prometheus = FakePrometheus()
    prometheus.on(".", SILENT)
    later = investigate(prometheus, incident, [], NOW + 600)
    assert later.missing == ("Prometheus did not answer (ConnectTimeout)",)
    assert incident.diagnosis is not None
    assert (later.causes, later.facts) == (incident.diagnosis.causes, incident.diagnosis.facts)


def test_a_link_that_is_quiet_since_the_drop_explains_it_less(cluster: Cluster) -> None:
    cluster.heat()
    cluster.flapping.append(steps(DROP - 15, DROP - 12, DROP - 9, node="gpu-044", device="mlx5_5", port="1"))
    found = diagnose(cluster)
    heat, link = (*found.causes, *found.seen)
    assert (heat.part, link.part) == ("gpu-042 GPU 3", "gpu-044 mlx5_5/1")
    assert link.against == ("not seen again since 5 s before the drop",)


def mass_event(name: str = "FabricMassEvent", **scope: str) -> Incident:
    member = alert(name, labels={"component": "nic", **scope}, starts_at=DROP + 12)
    return fold(None, [member], 0, START).incident


def test_a_switch_that_took_links_of_the_run_along_is_named_before_them(cluster: Cluster) -> None:
    cluster.wire(*NODES[:4], "gpu-200", lost=(*NODES[:3], "gpu-200"))
    for node in NODES[:3]:
        cluster.flapping.append(steps(DROP - 2, DROP + 8, node=node, device="mlx5_3", port="1"))
    cluster.flapping.append(steps(DROP - 1, DROP + 9, node=NODES[5], device="mlx5_7", port="1"))
    event = mass_event(switch="leaf-12")
    found = diagnose(cluster, [event])
    switch, alone = found.causes
    assert (switch.part, switch.cause, switch.against) == ("switch leaf-12", "many links down at once", ())
    assert "on 3 of the run's 4 ports there" in switch.evidence[0]
    (told,) = [sentence for sentence in switch.evidence if sentence.startswith("FabricMassEvent firing since ")]
    assert told.endswith(", 3 of the run's 4 ports there lost their link")
    assert alone.part == "gpu-045 mlx5_7/1"  # of another switch: a suspect of its own
    assert explained_by(training_incident(), found, [event]) == [event]


def test_a_switch_without_a_port_of_the_run_explains_nothing(cluster: Cluster) -> None:
    cluster.wire("gpu-200", "gpu-201", lost=("gpu-200", "gpu-201"))
    assert [cause.part for cause in diagnose(cluster, [mass_event(switch="leaf-12")]).causes] == ["unknown"]
    assert [cause.part for cause in diagnose(cluster, [mass_event(switch="leaf-13")]).causes] == ["unknown"]


def test_a_switch_where_the_run_lost_no_link_is_seen_and_does_not_convince(cluster: Cluster) -> None:
    cluster.wire(*NODES[:4], "gpu-200", lost=("gpu-200",))
    event = mass_event(switch="leaf-12")
    found = diagnose(cluster, [event])
    assert [cause.part for cause in found.causes] == ["unknown"]
    assert (found.seen[0].part, found.seen[0].against) == (
        "switch leaf-12",
        ("none of the run's 4 ports there lost its link",),
    )
    assert explained_by(training_incident(), found, [event]) == []


def test_a_rail_counts_where_a_port_of_the_run_at_it_lost_its_link(cluster: Cluster) -> None:
    cluster.wire(*NODES[:4], switch="")
    event = mass_event(rail="rail-3")
    assert diagnose(cluster, [event]).causes[0].part == "unknown"
    cluster.lost = cluster.ports[:1]
    cause = diagnose(cluster, [event]).causes[0]
    assert cause.part == "rail rail-3"
    assert cause.evidence[0].endswith(", 1 of the run's 4 ports there lost its link")


def test_all_links_of_a_host_are_the_host(cluster: Cluster) -> None:
    for device in ("mlx5_0", "mlx5_1", "mlx5_2"):
        cluster.flapping.append(steps(DROP - 2, node=NODES[3], device=device, port="1"))
    (cause,) = diagnose(cluster, [mass_event(node=NODES[3]), mass_event(node="gpu-200")]).causes
    assert (cause.part, cause.cause) == (NODES[3], "many links down at once")


def test_a_rule_of_the_operators_own_on_a_rack_can_be_the_cause(cluster: Cluster) -> None:
    cluster.racks = dict.fromkeys(NODES[:2], "r07")
    (cause,) = diagnose(
        cluster, [mass_event("PowerFeedLost", rack="r07"), mass_event("PowerFeedLost", rack="r99")]
    ).causes
    assert (cause.part, cause.cause) == ("rack r07", "PowerFeedLost")
    assert cause.evidence[0].endswith(", 2 of the run's 8 nodes are in it")


def test_what_is_about_the_whole_cluster_explains_each_of_its_runs_and_blames_no_part(cluster: Cluster) -> None:
    (cause,) = diagnose(cluster, [mass_event(), mass_event(cluster="c2", switch="leaf-12")]).causes
    assert (cause.part, cause.cause, cause.labels) == ("no single part", "many links down at once", None)


def test_two_prometheus_that_tell_of_one_event_are_one_cause(cluster: Cluster) -> None:
    cluster.wire(*NODES[:4], lost=NODES[:2])
    others = [mass_event(switch="leaf-12", prometheus=replica) for replica in "ab"]
    assert [cause.part for cause in diagnose(cluster, others).causes] == ["switch leaf-12"]


def test_an_alert_that_ended_before_the_drop_is_not_its_cause_while_its_incident_goes_on(cluster: Cluster) -> None:
    """It was joined with the run's first drop, which came back without it."""
    over = alert("GpuThrottledThermal", firing=False, labels={"node": "gpu-042", "gpu": "3"}, starts_at=DROP - 400)
    other = replace(training_incident(), members=(*training_incident().members, replace(over, ends_at=DROP - 200)))
    found = diagnose(cluster, [other])
    assert found.causes[0].part == "unknown"
    assert all("ended 3 min before the drop" in cause.against for cause in found.seen)
