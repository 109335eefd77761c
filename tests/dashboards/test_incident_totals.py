"""Beside the panels that name a culprit: totals and lines of each board show one incident, and blame nobody else."""

from __future__ import annotations

from pathlib import Path

import pytest
from dashboards_planted import Series, answer, expression, healthy, where

WHERE = where("gpu-042")
GPU = f'{WHERE}, gpu="3"'
UUID = f'{GPU}, uuid="u-gpu-042-3"'
PORT = f'{WHERE}, device="mlx5_3", port="1"'
RANK = f'{WHERE}, run="r", attempt="1", rank="3"'
UP = 'up{job="node", cluster="c1", node="gpu-042", instance="gpu-042:9935"}'

PLANTED: dict[str, Series] = {
    "a throttled GPU": {
        f'DCGM_FI_DEV_SM_CLOCK{{{GPU}, UUID="u-gpu-042-3"}}': "1200x120",
        f'pyrometer_gpu_clock_event_seconds_total{{{UUID}, reason="hw_thermal"}}': "0+12x120",
    },
    "a flapping rail": {
        f"pyrometer_nic_link_down_events_total{{{PORT}}}": "0x60 0+1x60",
        f"pyrometer_nic_link_up{{{PORT}}}": "1x60 0x3 1x57",
    },
    "a straggler": {f'pyrometer_train_step_part_seconds_total{{{RANK}, part="wait"}}': "0x120"},
    "a dead exporter": {
        **{name: "1x60 stale" for name in healthy() if 'node="gpu-042"' in name},
        UP: "1x60 0x60",
    },
    "a lost GPU": {
        f"pyrometer_gpu_up{{{UUID}}}": "1x60 0x60",
        **{name: "1x60 stale" for name in healthy() if name.startswith("DCGM") and "u-gpu-042-3" in name},
        f'pyrometer_gpu_xid_errors_total{{{UUID}, xid="79", class="critical"}}': "0x60 1x60",
        f"pyrometer_gpu_xid_critical_errors_total{{{UUID}}}": "0x60 1x60",
        f'pyrometer_down_reason_info{{{WHERE}, collector="gpu", part="3", reason="gpu_is_lost"}}': "_x60 1x60",
        f'pyrometer_gpus_present{{{WHERE}, source="nvml"}}': "2x120",
    },
    "a lost batch": {
        f'pyrometer_train_batch_step{{{where("gpu-041")}, run="r", attempt="1"}}': "1+1x70 _ 73+1x48",
    },
}  # fmt: skip

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
     '{run="r", who="gpu-042 GPU 3"}', 0.2),
    ("a straggler", "overview", "Runs: who waits for whom, and why", 0, "%s", "20m", '{run="r"}', 1),
    ("a straggler", "training-run", "Cost of the slowest rank", 0, "%s", "20m",
     'run:pyrometer_train_straggler:ratio{cluster="c1", run="r"}', 0.2),
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


@pytest.mark.parametrize("name", PLANTED)
def test_totals_and_lines_tell_of_an_incident_exactly(name: str, tmp_path: Path) -> None:
    tests = []
    for incident, board, title, query, frame, at, labels, value in TOLD:
        if incident == name:
            asked = expression(board, title, query, run="r", gpu=".+", what="links", arrange="number")
            samples = [{"labels": labels, "value": value}]
            tests.append({"expr": frame % f"({asked})", "eval_time": at, "exp_samples": samples})
    assert tests
    assert answer(tmp_path, PLANTED[name], tests) == ""


@pytest.mark.parametrize(("name", "gpus"), [("a dead exporter", ("2", "3")), ("a lost GPU", ("3",))])
def test_a_gpu_that_does_not_answer_has_its_place_on_the_map_as_one_without_data(
    name: str, gpus: tuple[str, ...], tmp_path: Path
) -> None:
    asked = expression("gpu-matrix", "GPU map: every GPU against its rail", what="temperature", arrange="number")
    samples = [{"labels": f'{{node="gpu-042", gpu="{gpu}"}}', "value": 1} for gpu in gpus]
    tests = [{"expr": UNKNOWN % asked, "exp_samples": samples}]
    assert answer(tmp_path, PLANTED[name], tests) == ""


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


@pytest.mark.parametrize("name", PLANTED)
def test_an_incident_is_not_blamed_on_a_part_of_another_kind(name: str, tmp_path: Path) -> None:
    tests: list[dict[str, object]] = []
    for panel, meant in LOOKED_FOR.items():
        asked = expression(*panel, run="r")
        seen = [{"labels": "{}", "value": 1}] if name in meant else []
        tests.append({"expr": NAMED % asked, "exp_samples": seen})
    assert answer(tmp_path, PLANTED[name], tests) == ""
