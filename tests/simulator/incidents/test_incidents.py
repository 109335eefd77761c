"""Generated incidents: as the exporters would serve them, without a look into the future, judged strictly."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.families import labels_by_metric

from pyrometer_alerting.channel.card import MOST_WORDS
from pyrometer_alerting.model.incident import Cause, Diagnosis
from pyrometer_kit.prometheus import HttpPrometheus, Series
from pyrometer_simulator.incidents import __main__ as incidents
from pyrometer_simulator.incidents.faults import Faults
from pyrometer_simulator.incidents.metrics import series_of
from pyrometer_simulator.incidents.remote_write import STALE, Batch, Floats, snappy_literal, with_markers, write
from pyrometer_simulator.incidents.rules import Annotations, Rule, load, seconds, spells
from pyrometer_simulator.incidents.score import RIGHT, verdict
from pyrometer_simulator.incidents.training import WAIT
from pyrometer_simulator.incidents.watch import FutureError, PresentPrometheus, VirtualClock
from pyrometer_simulator.incidents.world import BASE, Truth

TARGET = {"cluster", "node", "rack", "instance", "job", "__name__"}
# node_exporter's own, and what Prometheus itself adds to each scrape.
OTHERS = re.compile(r"up|scrape_duration_seconds|node_pressure_(cpu|memory|io)_waiting_seconds_total")
KINDS = sorted(incidents.catalogue().kinds)


class Names(Batch):
    """Notes the labels of each series, by metric."""

    def __init__(self) -> None:
        super().__init__()
        self.labels: dict[str, set[str]] = {}

    def add(self, labels: Mapping[str, str], at: Floats, values: Floats) -> None:
        self.labels.setdefault(labels["__name__"], set()).update(labels)

    def add_target(self, series: Sequence[Mapping[str, str]], at: Floats, values: Floats) -> None:
        for labels in series:
            self.labels.setdefault(labels["__name__"], set()).update(labels)


def case(kind: str, seed: int = 1, interval: float = 5.0) -> incidents.Case:
    return incidents.Case(kind, seed, "medium", interval, nodes=4)


@pytest.mark.parametrize("kind", KINDS[::5])
def test_names_and_labels_are_those_of_the_exporters(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known = labels_by_metric()
    noted = Names()
    monkeypatch.setattr("pyrometer_simulator.incidents.metrics.Batch", lambda: noted)
    series_of(incidents.build(case(kind, interval=15.0))[0])
    assert len(noted.labels) > 30
    for name, labels in noted.labels.items():
        if not OTHERS.fullmatch(name):
            assert name in known
            assert labels - TARGET <= known[name], name


def test_all_ranks_of_a_step_take_equally_long_and_the_slow_one_waits_least() -> None:
    world, _truth, _herrings = incidents.build(case("slow_gpu", seed=3))
    _batch, (attempt,) = series_of(world)
    lasting = attempt.parts.sum(axis=2)
    assert np.allclose(lasting, lasting[:, :1], rtol=1e-4)
    waits = attempt.parts[attempt.ends > world.at + 30][:, :, WAIT].mean(axis=0)
    slow = int(np.flatnonzero(world.script.compute[-1](world.at + 99, np.ones(world.layout.ranks)))[0])
    assert waits[slow] <= waits.min() + 0.02 * world.layout.step


@given(st.binary(max_size=300))
def test_a_literal_is_what_snappy_reads(data: bytes) -> None:
    framed = snappy_literal(data)
    length, place, shift = 0, 0, 0
    while True:
        length |= (framed[place] & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if framed[place - 1] < 0x80:
            break
    assert length == len(data)
    assert framed[place + 5 :] == data if data else framed == b"\0"


def test_a_series_that_ends_gets_one_marker() -> None:
    nan = np.nan
    marked = with_markers(np.array([[1.0], [nan], [nan], [2.0], [nan]]))[:, 0]
    stale = np.array([STALE]).view(np.uint64)[0]
    assert [bool(each.view(np.uint64) == stale) for each in marked] == [False, True, False, False, True]


@pytest.mark.parametrize(
    ("hold", "keep", "active", "expected"),
    [
        (0, 0, [0, 5, 10], [(0, 15, 0)]),
        (10, 0, [0, 5, 10], [(10, 15, 0)]),
        (10, 0, [0, 5, 15, 20], []),
        (0, 10, [0, 5, 15], [(0, 25, 0)]),
        (0, 0, [20, 25], [(20, float("inf"), 20)]),
    ],
)
def test_an_alert_fires_after_its_time_and_is_kept(
    hold: float, keep: float, active: list[float], expected: list[tuple[float, float, float]]
) -> None:
    rule = Rule("Hot", "x", 5.0, True, hold=hold, keep=keep)  # noqa: FBT003
    times = np.arange(0.0, 30.0, 5.0)
    assert list(spells(rule, [float(each) for each in active], times)) == expected


def test_dashes_trim_the_white_space_of_templates() -> None:
    template = 'run {{ $labels.run }} fell\n  {{- with query "x" }} a lot{{ end -}}\n .'
    assert Annotations(HttpPrometheus("http://127.0.0.1:9")).render(template, {"run": "r"}, 1.0, 0.0) == "run r fell."


def test_rules_come_after_what_they_read() -> None:
    rules = load(5.0)
    place = {rule.name: number for number, rule in enumerate(rules)}
    assert place["TrainMfuDropped"] > place["run:pyrometer_train_batch_mfu_ratio:recent_per_best3h"]
    assert place["TrainStalled"] > place["run:pyrometer_train_last_step:culprit"]
    assert not [rule.name for rule in rules if "pyrometer_map" in rule.name]
    assert seconds("1h30m") == 5400


class Everything:
    """Has the samples of two clusters, some of them later than any question."""

    def instant(self, query: str, at: float) -> list[Series]:
        points = tuple((BASE + each, 0.4) for each in (0.0, 4.0, 6.0))
        return [Series({"cluster": "a"}, points), Series({"cluster": "b"}, points)]

    def range(self, query: str, start: float, end: float, step: float) -> list[Series]:
        return self.instant(query, end)


def test_nobody_sees_the_future_or_another_cluster() -> None:
    clock = VirtualClock(BASE + 8.0)
    present = PresentPrometheus(Everything(), clock, 5.0, "a")
    for query in ("up offset -5m", "up @ end()"):
        with pytest.raises(FutureError):
            present.instant(query, BASE)
    with pytest.raises(FutureError):
        present.range("up", BASE, BASE + 9, 5)
    # The batch of second 6 comes with the scrape of second 10.
    (seen,) = present.instant("pyrometer_train_batch_mfu_ratio[1m]", BASE + 8)
    assert [at - BASE for at, _value in seen.points] == [0.0, 4.0]


@pytest.mark.parametrize(
    ("part", "cause", "expected"),
    [
        ("n1 GPU 2", "thermal throttling", "right"),
        ("n1 GPU 2", "a single link flap", "coarse"),
        ("n1", "thermal throttling", "coarse"),
        ("n2 GPU 2", "thermal throttling", "wrong"),
        ("unknown", "", "unknown"),
    ],
)
def test_a_verdict_is_strict(part: str, cause: str, expected: str) -> None:
    truth = Truth(("n1 GPU 2",), ("n1",), "therm")
    assert verdict(truth, Diagnosis(BASE, (Cause(part, cause),))) == expected
    assert verdict(truth, Diagnosis(BASE)) == "unknown"


def test_faults_come_through_rules_and_service_to_the_channel() -> None:
    """Worlds in a real Prometheus, the project's rules, the real service: named at once, told, and for good."""
    kinds = ("flapping_link", "hot_gpu", "dead_rank", "slow_disk", "power_brake_node")
    for _world, truth, score, watched in incidents.play([case(kind, interval=15.0) for kind in kinds], every=120.0):
        assert score.watch == RIGHT, score
        assert score.webhook is not None
        assert 0 < score.webhook < 180
        assert any(truth.exact[-1].split()[0] in call.text for call in watched.calls)
        assert score.calls <= 12  # edits of a link that flaps each minute; what pings has a limit of its own
        assert 0 < score.extra["words"] <= MOST_WORDS
        assert score.extra["evidence_calls"] <= 8
        assert not watched.errors


def test_a_prometheus_that_is_slow_and_fails_makes_the_answer_late_and_never_wrong() -> None:
    faults = Faults(delay=0.2, failures=0.05)
    for _world, truth, score, watched in incidents.play(
        [case(kind, interval=15.0) for kind in ("hot_gpu", "flapping_link")], every=60.0, faults=faults
    ):
        assert any(look.diagnosis.missing for look in watched.looks)
        assert "wrong" not in {verdict(truth, look.diagnosis) for look in watched.looks}
        assert score.moments[-1] == RIGHT, score


def test_written_samples_are_read_back_and_end_where_they_end(tmp_path: Path) -> None:
    at = BASE + np.arange(0, 100, 10.0)
    batch = Batch()
    values = np.where(np.arange(10) < 6, 7.0, np.nan)
    batch.add_target([{"__name__": "x", "node": "n1"}], at, values[:, None])
    with incidents.prometheus(tmp_path) as url:
        write(url, batch)
        prometheus = HttpPrometheus(url)
        assert [each.points[0][1] for each in prometheus.instant("x", BASE + 55)] == [7.0]
        assert prometheus.instant("x", BASE + 61) == []
        prometheus.close()
