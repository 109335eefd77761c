from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timezone

import pytest
from alerting_fakes import training_incident

from pyrometer_alerting.channel.digest.data import gather as gather_digest
from pyrometer_alerting.channel.drop_data import drop_picture_of
from pyrometer_alerting.diagnosis.batches import active_runs
from pyrometer_alerting.diagnosis.catalog import load
from pyrometer_alerting.diagnosis.cost import add_up
from pyrometer_alerting.diagnosis.examination import daily_wave_of_run, examine
from pyrometer_alerting.diagnosis.gather import gather
from pyrometer_alerting.diagnosis.look import Questions, Rank
from pyrometer_alerting.incidents.topology import ports_at, shared_places
from pyrometer_alerting.model.incident import Cause, ChartCurve, Diagnosis
from pyrometer_kit.prometheus import HttpPrometheus
from pyrometer_simulator.mfu_traces import Trace, trace
from pyrometer_simulator.stack import Stack
from pyrometer_simulator.stack.prometheus import holding

RUN = 'odd "name"\\'
END = 60.0  # seconds ago that the newest batch was measured; promtool writes blocks, which end in the past


@pytest.fixture(scope="module")
def prometheus(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[HttpPrometheus, float]]:
    """A real Prometheus with the batches of a run that dips every few seconds, and of its ranks."""
    now = float(round(time.time()))
    batches = lines(trace("frequent_dips", 4, 1.0), now)
    with holding(stack, tmp_path_factory.mktemp("prometheus"), batches) as url:
        asked = HttpPrometheus(url)
        yield asked, now
        asked.close()


def lines(run: Trace, now: float) -> Iterator[str]:
    labels = '{cluster="c1",run="' + RUN.replace("\\", "\\\\").replace('"', '\\"') + '",attempt="0"'
    times = run.at - run.at[-1] + now - END
    for name, values in (("mfu_ratio", run.mfu), ("step", run.step)):
        yield f"# TYPE pyrometer_train_batch_{name} gauge"
        for at, value in zip(times, values, strict=True):
            yield f"pyrometer_train_batch_{name}{labels}}} {value} {at}"
    yield "# TYPE pyrometer_train_batch_tag gauge"
    for at in times[run.tagged]:
        yield f'pyrometer_train_batch_tag{labels},tag="checkpoint"}} 1 {at}'
    yield "# TYPE pyrometer_train_rank_info gauge"
    for rank in range(8):
        for at in range(int(now) - 600, int(now), 15):
            place = f'rank="{rank}",node="gpu-001",gpu="{rank}",stage=""'
            yield f"pyrometer_train_rank_info{labels},{place}}} 1 {at}"
    for name, share in (("step_seconds", None), ("step_part_seconds", {"wait": 0.6})):
        yield f"# TYPE pyrometer_train_{name} counter"
        for rank in range(8):
            for at in range(int(now) - 600, int(now), 15):
                part = ',part="wait"' if share else ""
                value = at - now + 600
                value *= 1.0 if share is None else (0.2 if rank == 3 else 0.6)
                yield f'pyrometer_train_{name}_total{labels},rank="{rank}"{part}}} {value} {at}'
    yield from wiring(now)
    yield from dumps_of_a_hung_run(now)


def wiring(now: float) -> Iterator[str]:
    """At leaf-12: a port of the run that flapped and came back, one that is down for long, one that is well."""
    places = [("gpu-001", "mlx5_0"), ("gpu-001", "mlx5_1"), ("gpu-001", "mlx5_2"), ("gpu-999", "mlx5_0")]
    times = range(int(now) - 1800, int(now), 15)
    yield "# TYPE pyrometer_fabric_port_info gauge"
    for node, device in places:
        rest = 'port="1",rail="3",switch="leaf-12",switch_port="7"'
        for at in times:
            yield f'pyrometer_fabric_port_info{{cluster="c1",node="{node}",device="{device}",{rest}}} 1 {at}'
    yield "# TYPE pyrometer_nic_link_up gauge"
    for node, device in places:
        for at in times:
            up = int(device != "mlx5_1")
            yield f'pyrometer_nic_link_up{{cluster="c1",node="{node}",device="{device}",port="1"}} {up} {at}'
    yield "# TYPE pyrometer_nic_link_down_events counter"
    for node, device in places:
        for at in times:
            downs = int(device == "mlx5_0" and at > now - 400)
            port = f'{{cluster="c1",node="{node}",device="{device}",port="1"}}'
            yield f"pyrometer_nic_link_down_events_total{port} {downs} {at}"


def dumps_of_a_hung_run(now: float) -> Iterator[str]:
    """Ranks 0 and 1 wait, rank 3 does not come; the dump of rank 2 is older than the last step."""
    ranks = [(rank, f'{{cluster="c1",run="hung",attempt="0",rank="{rank}"') for rank in range(4)]
    at = now - END
    yield "# TYPE pyrometer_train_last_step_timestamp_seconds gauge"
    for rank, labels in ranks:
        yield f"pyrometer_train_last_step_timestamp_seconds{labels}}} {now - 900 + rank} {at}"
    yield "# TYPE pyrometer_train_flight_recorder_dump_timestamp_seconds gauge"
    for rank, labels in ranks:
        written = now - (1000 if rank == 2 else 200)
        yield f"pyrometer_train_flight_recorder_dump_timestamp_seconds{labels}}} {written} {at}"
    yield "# TYPE pyrometer_train_flight_recorder_collective gauge"
    for rank, labels in ranks:
        group = 'group="0",group_name="default_pg",group_ranks="",collective="nccl:all_reduce",place=""'
        state = "waiting" if rank < 2 else "finished"
        number = {2: 12, 3: 15}.get(rank, 16)
        yield f'pyrometer_train_flight_recorder_collective{labels},{group},state="{state}"}} {number} {at}'


def test_a_dump_from_before_the_last_step_is_not_joined_with_those_of_the_hang(
    prometheus: tuple[HttpPrometheus, float],
) -> None:
    asked, now = prometheus
    ranks = {str(rank): Rank("gpu-001", str(rank), "") for rank in range(4)}
    incident = training_incident(run="hung", started_at=now - 300)
    look = load().queries["dumps"].find(Questions(asked, incident, now - END, ranks=ranks))
    assert [fact.labels["gpu"] for fact in look.facts] == ["3"]


def test_a_run_is_found_read_raw_and_recognised(prometheus: tuple[HttpPrometheus, float]) -> None:
    asked, now = prometheus
    (run,) = active_runs(asked, now - END)
    assert run.name == RUN
    found = examine(asked, run, now - END)
    assert found is not None
    assert len(found.frame) == 3600
    assert found.frame["tagged"].sum() == 4
    assert found.verdict is not None
    assert found.verdict.kind == "frequent_dips"
    assert daily_wave_of_run(asked, run, now - END) == 0.0


def test_every_query_of_a_diagnosis_is_understood(prometheus: tuple[HttpPrometheus, float]) -> None:
    asked, now = prometheus
    onset = now - END - 100
    incident = training_incident(run=RUN, started_at=onset, diagnosis=Diagnosis(onset, onset=onset))
    evidence = gather(asked, incident, [], now - END)
    assert evidence.roster.nodes == ("gpu-001",)
    assert evidence.complete
    assert set(evidence.answered) == set(load().queries)
    assert evidence.looked is not None
    (wait,) = [fact for fact in evidence.facts if fact.kind == "least_wait"]
    assert wait.labels == {"node": "gpu-001", "gpu": "3"}
    assert wait.value == pytest.approx(0.2, abs=0.02)
    assert wait.peers == pytest.approx(0.6, abs=0.02)
    assert wait.chronic


def test_a_runs_ports_at_a_switch_are_found_with_those_that_lost_their_link(
    prometheus: tuple[HttpPrometheus, float],
) -> None:
    asked, now = prometheus
    for scope in (("switch", "leaf-12"), ("rail", "3")):
        found = ports_at(asked, "c1", ["gpu-001"], [scope], now - END)
        assert {(port.node, port.device): port.lost for port in found} == {
            ("gpu-001", "mlx5_0"): True,
            ("gpu-001", "mlx5_1"): True,
            ("gpu-001", "mlx5_2"): False,
        }
        ports = [port.labels for port in found]
        assert shared_places(asked, "c1", ports, now - END) == {("switch", "leaf-12")}
        assert shared_places(asked, "c1", ports[:2], now - END) == set()
    assert ports_at(asked, "c1", ["gpu-001"], [("switch", "leaf-13")], now - END) == ()


def test_every_query_of_a_digest_and_of_a_picture_is_understood(prometheus: tuple[HttpPrometheus, float]) -> None:
    asked, now = prometheus
    report = gather_digest(asked, [], "weekly", start=now - 7 * 86_400, end=now, zone=timezone.utc)
    assert report.missing == ("goodput: no run ledger (cluster exporter) in this period",)
    hot = Cause("gpu-001 GPU 3", "heat", labels={"node": "gpu-001", "gpu": "3"})
    link = Cause("gpu-001 mlx5_1", "flaps", labels={"node": "gpu-001", "device": "mlx5_1"})
    curve = ChartCurve((now - 60,), (0.4,), (0.4,), 0.4)
    for cause in (hot, link):
        diagnosis = Diagnosis(now, (cause,), onset=now - 300, curve=curve)
        incident = training_incident(run=RUN, diagnosis=diagnosis, started_at=now - 300)
        drop = drop_picture_of(asked, incident, now)
        assert drop is not None
        assert len(drop.at) > 600


def test_the_cost_is_counted_from_every_batch(prometheus: tuple[HttpPrometheus, float]) -> None:
    asked, now = prometheus
    begin = now - END - 600
    cost = add_up(asked, "c1", RUN, known=None, begin=begin, end=now - END, expected=1e9, gpus=6)
    assert cost.gpu_hours == pytest.approx(1.0, abs=0.01)  # against the impossible everything is lost
