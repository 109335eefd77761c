"""The simulated fleet serves what the exporters would: their names, their labels, absent where something is gone."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from tests.families import labels_by_metric

from pyrometer_simulator.fleet.openmetrics import all_families, scrape, write_history
from pyrometer_simulator.fleet.plan import EPOCH, Faults, Plan, planted, single_faults
from pyrometer_simulator.fleet.training_metrics import batches

NOW = EPOCH + 86400
TARGET = {"cluster", "node", "rack", "instance", "job"}
OTHERS = re.compile(
    r"up|scrape_duration_seconds|process_\w+|pyrometer_alerting_\w+|pyrometer_run_signature|alertmanager_\w+|node_\w+"
)


def told(plan: Plan, at: float = NOW) -> list[str]:
    return list(scrape(all_families(plan), at))


def parsed(lines: list[str]) -> Iterator[tuple[str, set[str]]]:
    for line in lines:
        name, _, labels = line.partition("{")
        yield name, set(re.findall(r'(\w+)="', labels))


def test_names_and_labels_are_those_of_the_exporters() -> None:
    known = labels_by_metric()
    plan = Plan(nodes=6, faults=planted(6))
    lines = told(plan) + [f"{series} {value}\n" for series, value, _ in batches(plan, NOW, NOW + 30)]
    for name, labels in parsed(lines):
        if not OTHERS.fullmatch(name):
            assert name in known
            assert labels - TARGET <= known[name], name


def test_no_series_is_served_twice() -> None:
    series = [each for family in all_families(Plan(nodes=12, faults=planted(12))) for each in family.series]
    assert len(series) == len(set(series))


def test_a_dead_node_tells_nothing_and_a_lost_gpu_only_that_it_is() -> None:
    plan = Plan(nodes=3, faults=Faults(dead="gpu-002", lost=("gpu-003", 6)))
    lines = told(plan)
    dead = {name for name, _ in parsed([line for line in lines if 'node="gpu-002"' in line])}
    of_slurm = {f"pyrometer_slurm_node_unavailable_{what}" for what in ("info", "timestamp_seconds")}
    assert dead == {"up", "scrape_duration_seconds", "pyrometer_fabric_port_info"} | of_slurm
    lost = [line for line in lines if 'node="gpu-003"' in line and 'gpu="6"' in line]
    assert {line.split("{")[0] for line in lost} == {
        "pyrometer_gpu_info",
        "pyrometer_gpu_up",
        "pyrometer_gpu_xid_errors_total",
        "pyrometer_gpu_xid_critical_errors_total",
        "pyrometer_train_rank_info",
    }


def values(plan: Plan, at: float, name: str, *having: str) -> list[float]:
    lines = [line for line in told(plan, at) if line.startswith(f"{name}{{") and all(each in line for each in having)]
    return [float(line.rsplit(" ", 1)[1]) for line in lines]


def test_a_lost_gpu_has_the_drivers_own_reason_and_is_still_counted() -> None:
    plan = Plan(nodes=3, faults=Faults(dead="gpu-002", lost=("gpu-003", 6)))
    assert values(plan, NOW, "pyrometer_down_reason_info", 'reason="gpu_is_lost"', 'part="6"', "gpu-003") == [1]
    assert values(plan, NOW, "pyrometer_gpus_present", "gpu-003") == [8, 8]
    assert values(plan, NOW, "pyrometer_gpus_present", "gpu-002") == []


def test_a_run_stands_still_with_its_lost_gpu_where_that_is_planted() -> None:
    plan = Plan(nodes=16, faults=replace(single_faults(16)["lost-gpu"], since=NOW))
    (run, other) = plan.runs()
    assert plan.stopped(other) == math.inf
    later = NOW + 600
    for name in ("steps_total", "step_seconds_total", "tokens_total", "step_part_seconds_total"):
        before, after = (values(plan, at, f"pyrometer_train_{name}", run.name) for at in (NOW, later))
        assert before == after, name
    lost = plan.rank(run, plan.faults.lost)
    waiting = values(plan, later, "pyrometer_train_current_part_seconds", run.name, 'part="wait"')
    assert waiting == [600.0] * (run.nodes * plan.gpus - 1)
    assert values(plan, later, "pyrometer_train_rank_up", run.name, f'rank="{lost}"') == [0]
    assert {at < NOW for series, _, at in batches(plan, NOW - 60, later) if run.name in series} == {True}
    assert any(at > NOW for series, _, at in batches(plan, NOW - 60, later) if other.name in series)


def test_a_throttled_gpu_slows_its_run_and_its_rank_waits_for_nobody() -> None:
    plan = Plan(nodes=6, faults=replace(single_faults(6)["throttled-gpu"], since=NOW))
    (run, _) = plan.runs()
    slowest = plan.slowest(run)
    assert slowest == plan.rank(run, plan.faults.hot)

    def waited(rank: int | None) -> float:
        having = (run.name, f'rank="{rank}"', 'part="wait"')
        before, after = (values(plan, at, "pyrometer_train_step_part_seconds_total", *having) for at in (NOW, NOW + 99))
        return after[0] - before[0]

    assert waited(slowest) < 0.2 * waited(0)

    def usual(start: float) -> float:
        told = [mfu for series, mfu, _ in batches(plan, start, start + 300) if "mfu" in series and run.name in series]
        return sorted(told)[len(told) // 2]

    assert usual(NOW) < 0.85 * usual(NOW - 300)


def test_counters_never_fall_also_when_faults_begin() -> None:
    plan = Plan(nodes=6, faults=planted(6, since=NOW))
    series = all_families(plan)
    for family in series:
        if family.name.endswith("_total"):
            before, after = family.values(NOW - 5), family.values(NOW + 5)
            assert not (after < before).any(), family.name


def test_every_batch_comes_once_and_the_planted_one_never() -> None:
    plan = Plan(nodes=6, faults=Faults(lost_batch=600, since=NOW))
    halves = [*batches(plan, NOW, NOW + 700), *batches(plan, NOW + 700, NOW + 1400)]
    assert halves == list(batches(plan, NOW, NOW + 700)) + list(batches(plan, NOW + 700, NOW + 1400))
    steps = [
        value for series, value, _ in halves if series.startswith("pyrometer_train_batch_step{") and "llama" in series
    ]
    missing = set(range(int(steps[0]), int(steps[-1]) + 1)) - {int(step) for step in steps}
    assert len(steps) == len(set(steps))
    assert len(missing) == 2


def test_a_run_that_is_known_from_its_log_has_a_point_for_each_line() -> None:
    (_, run) = (plan := Plan(nodes=6, line=5)).runs()
    told = [each for each in batches(plan, NOW, NOW + 10 * 5 * run.step) if run.name in each[0]]
    steps = [value for series, value, _ in told if series.startswith("pyrometer_train_batch_step{")]
    assert [later - earlier for earlier, later in pairwise(steps)] == [5] * 9
    assert {value for series, value, _ in told if series.startswith("pyrometer_train_batch_steps{")} == {5}
    assert values(plan, NOW, "pyrometer_train_run_info", run.name, 'source="log:torchtitan"') == [1]


def test_a_history_is_openmetrics_text_to_its_end() -> None:
    file = io.StringIO()
    written = write_history(Plan(nodes=1), NOW, NOW + 60, 15, file)
    lines = file.getvalue().splitlines()
    assert lines[-1] == "# EOF"
    assert len(lines) == written + 1
