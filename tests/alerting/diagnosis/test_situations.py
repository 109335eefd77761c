"""The right culprit for 15 minutes: whole situations in a real Prometheus, diagnosed as often as the service does."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from alerting_situations import BEFORE, NODES, Situation, Watch, becomes, counts, grows, stored, watch

from pyrometer_alerting.channel.evidence import causes_text
from pyrometer_alerting.model.culprits import culprits
from pyrometer_alerting.model.incident import from_json, to_json
from pyrometer_simulator.stack import StackError

CLOCK_EVENTS, CLOCK = "pyrometer_gpu_clock_event_seconds_total", "DCGM_FI_DEV_SM_CLOCK"
PARTS = "pyrometer_train_step_part_seconds_total"


def waits(situation: Situation, node: str, share: float, before: float = 0.3) -> Situation:
    """Let all ranks of a node wait alike, as a tensor-parallel group does."""
    first = 8 * NODES.index(node)
    for rank in range(first, first + 8):
        situation.set(PARTS, grows(share, before=before), node=node, rank=str(rank), part="wait")
    return situation


def hot(name: str, until: float = 1e9) -> Situation:
    """One GPU overheats and goes on, its node's ranks are waited for; another GPU touches its limit later."""
    situation = waits(Situation(name), "gpu-002", 0.05)
    situation.set(CLOCK_EVENTS, grows(0.95, since=-2, until=until), node="gpu-002", gpu="3", reason="hw_thermal")
    situation.set(CLOCK, becomes(1230, 1980, until=until), node="gpu-002", gpu="3")
    situation.set("DCGM_FI_DEV_GPU_TEMP", becomes(91, 62, since=-60, until=until), node="gpu-002", gpu="3")
    situation.set(CLOCK_EVENTS, grows(0.2, since=200, until=500), node="gpu-001", gpu="5", reason="sw_thermal")
    return situation


def brake() -> Situation:
    situation = waits(Situation("brake"), "gpu-001", 0.04)
    for gpu in map(str, range(8)):
        situation.set(CLOCK_EVENTS, grows(0.9), node="gpu-001", gpu=gpu, reason="hw_power_brake")
        situation.set(CLOCK, becomes(900, 1980), node="gpu-001", gpu=gpu)
    return situation


def rack() -> Situation:
    situation = Situation("rack", racks={node: f"r{number // 2}" for number, node in enumerate(NODES)})
    for node in NODES[2:]:
        for gpu in map(str, range(8)):
            situation.set("DCGM_FI_DEV_ENFORCED_POWER_LIMIT", becomes(450, 700), node=node, gpu=gpu)
            situation.set(CLOCK_EVENTS, grows(0.95, before=0.1), node=node, gpu=gpu, reason="power_cap")
            situation.set(CLOCK, becomes(1500, 1980), node=node, gpu=gpu)
    return situation


def data() -> Situation:
    situation = Situation("data")
    for rank in range(32):
        situation.set(PARTS, grows(0.35, before=0.02), node=NODES[rank // 8], rank=str(rank), part="data")
    return situation


def flaps() -> Situation:
    """A link flaps with pauses of up to five minutes."""
    downs = counts(-1, 30, 70, 200, 330, 480, 700)
    return Situation("flaps").set(
        "pyrometer_nic_link_down_events_total", downs, node="gpu-003", device="mlx5_4", port="1"
    )


def silent() -> Situation:
    """The culprit's exporter is down; another node's ranks always waited a little less."""
    return waits(Situation("silent", silent={"gpu-001": -40}), "gpu-003", 0.22, before=0.22)


SITUATIONS = (hot("hot"), hot("over", until=395), brake(), rack(), data(), flaps(), silent())
SITUATIONS[1].recovers = 400


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Watch]]:
    drop = time.time() // 15 * 15 - BEFORE - 3600
    try:
        with stored(tmp_path_factory.mktemp("prometheus"), SITUATIONS, drop) as prometheus:
            yield {situation.name: watch(prometheus, situation, drop) for situation in SITUATIONS}
    except StackError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(
    ("name", "part", "cause"),
    [
        ("hot", "gpu-002 GPU 3", "hardware thermal throttling"),
        ("brake", "gpu-001", "power brake"),
        ("rack", "rack r1", "power limit lowered"),
        ("data", "no single part", "data loading"),
        ("flaps", "gpu-003 mlx5_4/1", "link flapping"),
        ("silent", "unknown", ""),
    ],
)
def test_the_culprit_is_named_and_stays_named(watched: dict[str, Watch], name: str, part: str, cause: str) -> None:
    seen = watched[name]
    assert {at: seen.first(at) for at in (60, 300, 600, 900)} == dict.fromkeys((60, 300, 600, 900), (part, cause))
    assert seen.named()[-1:] == [part]
    assert len([one for one in seen.named() if one != "unknown"]) <= 1


def test_a_reader_is_not_disturbed_for_figures(watched: dict[str, Watch]) -> None:
    assert {name: seen.edits for name, seen in watched.items() if seen.edits > 5} == {}


def test_a_node_that_fell_silent_is_named_as_missing(watched: dict[str, Watch]) -> None:
    incident = watched["silent"].incident
    assert incident is not None
    assert "24 of the run's 32 GPUs report: no data from gpu-001 since " in causes_text(incident)
    assert culprits(incident) == []


def test_the_cause_of_a_drop_that_is_over_stays_true(watched: dict[str, Watch]) -> None:
    seen = watched["over"]
    assert seen.named() == ["gpu-002 GPU 3"]
    assert seen.incident is not None
    assert seen.incident.diagnosis is not None
    (cause,) = seen.incident.diagnosis.causes
    assert " of the time from " in cause.evidence[0]
    assert cause.against == ()


def test_facts_survive_the_store(watched: dict[str, Watch]) -> None:
    for seen in watched.values():
        assert seen.incident is not None
        assert from_json(to_json(seen.incident)) == seen.incident
