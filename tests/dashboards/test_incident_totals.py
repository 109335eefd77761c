"""Beside the panels that name a culprit: totals and lines of each board show one incident, and blame nobody else."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.dashboards.planted import INCIDENTS, answer, expression, gives

REASON = 'cluster:pyrometer_gpu_clock_event_seconds:gpus{cluster="c1", reason="hw_thermal"}'
UNKNOWN = "group by (node, gpu) ((%s) >= 1e6)"  # so far off is no GPU: the map's mark of one without data
NAMED = "group((%s) != -1)"  # -1: looked, and found nothing
ONCE = "(%s > 0) * 0 + 1"  # who, not how often: what is counted each 5 minutes is counted each 30 s here
HEAT = '(%s) and on (alertname) label_replace(vector(1), "alertname", "GpuThrottledThermal", "", "")'
OFTEN = "Alerts in the range: how long, how often"
# (incident, board, panel, query, a frame around it, moment, labels, value)
TOLD: tuple[tuple[str, str, str, int, str, str, str, float], ...] = (
    ("a throttled GPU", "overview", "GPUs slowed down, by reason", 0, "%s > 0", "20m", REASON, 0.8),
    ("a throttled GPU", "throttling", "Lost now", 0, "%s", "20m", "{}", 0.8),
    ("a throttled GPU", "throttling", "GPU time lost, by reason", 0, "%s > 0", "20m", REASON, 0.8),
    ("a throttled GPU", "node", "Time under each reason", 0, "max by (gpu, reason) (%s)", "20m",
     '{gpu="3", reason="hw_thermal"}', 0.8),
    ("a throttled GPU", "alerts", "Critical now", 0, "%s", "20m", "{}", 1),
    # The range of ten minutes begins before the alert, and after it.
    ("a throttled GPU", "alerts", OFTEN, 1, HEAT, "8m", '{alertname="GpuThrottledThermal"}', 1),
    ("a throttled GPU", "alerts", OFTEN, 1, HEAT, "28m", '{alertname="GpuThrottledThermal"}', 0),
    ("a flapping rail", "fabric", "Ports down", 0, "%s", "15m30s", "{}", 1),
    ("a flapping rail", "fabric", "Ports down", 0, "%s", "20m", "{}", 0),
    ("a flapping rail", "fabric", "State of ports that were down", 0, "%s", "15m30s",
     '{node="gpu-042", device="mlx5_3", port="1", part="gpu-042 mlx5_3"}', 0),
    ("a flapping rail", "fabric", "State of ports that were down", 0, "%s", "20m",
     '{node="gpu-042", device="mlx5_3", port="1", part="gpu-042 mlx5_3"}', 1),
    ("a flapping rail", "gpu-matrix", "Node x GPU: steps from the rail's median", 0, ONCE, "20m",
     '{node="gpu-042", gpu="3"}', 1),
    ("a straggler", "overview", "Runs: who waits for whom, and why", 3, "%s", "20m",
     '{run="r", job_id="7", who="gpu-042 GPU 3"}', 0.2),
    ("a straggler", "overview", "Runs: who waits for whom, and why", 0, "%s", "20m", '{run="r", job_id="7"}', 1),
    ("a straggler", "training-run", "Cost of the slowest rank", 0, "%s", "20m",
     'run:pyrometer_train_straggler:ratio{cluster="c1", run="r", job_id="7"}', 0.2),
    ("a dead exporter", "stack-health", "Nodes that answer", 0, "%s", "20m", '{cluster="c1"}', 2 / 3),
    ("a dead exporter", "reliability", "Failed nodes", 0, "%s", "25m", "{}", 1),
    ("a dead exporter", "alerts", "Warning now", 0, "%s", "20m", "{}", 1),
    ("a lost GPU", "reliability", "Failed nodes", 0, "%s", "25m", "{}", 1),
    ("a lost GPU", "reliability", "Xids by code", 0, ONCE, "25m", '{xid="79", class="critical"}', 1),
    # Not five minutes later: at once, and with its code within a minute.
    ("a lost GPU", "reliability", "Failed nodes", 0, "%s", "15m30s", "{}", 1),
    ("a lost GPU", "reliability", "Xids by code", 0, "count((%s) > 0)", "15m30s", "{}", 1),
    ("a lost GPU", "reliability", "Critical Xids by month", 0, ONCE, "25m", "{}", 1),
    # One is no alert: it takes three.
    ("a lost batch", "alerts", "Warning now", 0, "%s", "20m", "{}", 0),
    ("a lost batch", "stack-health", "Batches lost in 10 minutes", 0, "%s", "20m", "{}", 1),
)  # fmt: skip


@pytest.mark.parametrize("name", INCIDENTS)
def test_totals_and_lines_tell_of_an_incident_exactly(name: str, tmp_path: Path) -> None:
    tests = []
    for incident, board, title, query, frame, at, labels, value in TOLD:
        if incident == name:
            asked = expression(board, title, query, run="r", gpu=".+", what="links", arrange="number")
            tests.append(gives(frame % f"({asked})", (labels, value), at=at))
    assert tests
    assert answer(tmp_path, INCIDENTS[name], tests) == ""


@pytest.mark.parametrize(("name", "gpus"), [("a dead exporter", ("2", "3")), ("a lost GPU", ("3",))])
def test_a_gpu_that_does_not_answer_has_its_place_on_the_map_as_one_without_data(
    name: str, gpus: tuple[str, ...], tmp_path: Path
) -> None:
    asked = expression("gpu-matrix", "GPU map: every GPU against its rail", what="temperature", arrange="number")
    named = [(f'{{node="gpu-042", gpu="{gpu}"}}', 1.0) for gpu in gpus]
    assert answer(tmp_path, INCIDENTS[name], [gives(UNKNOWN % asked, *named)]) == ""


# Where a culprit is looked for, and the incidents that it serves.
LOOKED_FOR: dict[tuple[str, str], set[str]] = {
    ("throttling", "GPUs that lost time in the range"): {"a throttled GPU"},
    ("throttling", "The ten worst, over time"): {"a throttled GPU"},
    ("training-run", "Throttled GPUs of the run"): {"a throttled GPU"},
    ("overview", "Links that were lost"): {"a flapping rail"},
    ("fabric", "Ports that lost their link in the range"): {"a flapping rail"},
    ("training-run", "Links of the run that were lost"): {"a flapping rail"},
    ("reliability", "Ports that fail again"): set(),
    ("overview", "GPUs without data"): {"a dead exporter", "a lost GPU"},
    ("gpu-matrix", "GPUs without data"): {"a dead exporter", "a lost GPU"},
    ("stack-health", "Checks, of nodes where one fails"): {"a dead exporter", "a lost GPU"},
    ("stack-health", "Targets that don't answer"): {"a dead exporter"},
    ("reliability", "GPUs that fail again"): set(),
}


@pytest.mark.parametrize("name", INCIDENTS)
def test_an_incident_is_not_blamed_on_a_part_of_another_kind(name: str, tmp_path: Path) -> None:
    tests = [
        gives(NAMED % expression(*panel, run="r"), *([("{}", 1)] if name in meant else []))
        for panel, meant in LOOKED_FOR.items()
    ]
    assert answer(tmp_path, INCIDENTS[name], tests) == ""
