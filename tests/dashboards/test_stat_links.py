"""A tile whose link names a label has an answer with that label, or the click leads to a board of nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.dashboards.planted import Series, answer, expression, gives, where
from tools.board_lint import finding

from pyrometer_dashboards import fleet_panels
from pyrometer_dashboards.main import rendered

RULES = Path(__file__).parents[2] / "alert_rules"
GPU = f'{where("gpu-042")}, gpu="3"'
RANK = f'{where("gpu-042")}, run="r", job_id="7", attempt="1", rank="3"'
RUN = f'{where("gpu-041")}, run="r", job_id="7", attempt="1"'
PORT = f'{where("gpu-042")}, device="mlx5_3", port="1"'
# One GPU is hot, its port flaps, and its rank is the one that all wait for.
TROUBLE: Series = {
    f'DCGM_FI_DEV_SM_CLOCK{{{GPU}, UUID="u-gpu-042-3"}}': "1200x120",
    f'pyrometer_gpu_clock_event_seconds_total{{{GPU}, uuid="u-gpu-042-3", reason="hw_thermal"}}': "0+12x120",
    f"pyrometer_nic_link_down_events_total{{{PORT}}}": "0x60 0+1x60",
    f'pyrometer_train_step_part_seconds_total{{{RANK}, part="wait"}}': "0x120",
    f"pyrometer_train_batch_mfu_ratio{{{RUN}}}": "0.4x120",
    f"pyrometer_train_batch_step_seconds{{{RUN}}}": "15x120",
    f"pyrometer_train_last_step_timestamp_seconds{{{RANK}}}": "0+15x120",
    f'pyrometer_train_run_info{{{RUN}, model="m", world_size="6"}}': "1x120",
    f"node_memory_MemTotal_bytes{{{where('gpu-042')}}}": "100x120",
    f"node_memory_MemAvailable_bytes{{{where('gpu-042')}}}": "4x120",
    f"node_pressure_io_stalled_seconds_total{{{where('gpu-042')}}}": "0+6x120",
    f'node_filesystem_avail_bytes{{{where("gpu-042")}, mountpoint="/", fstype="xfs"}}': "1e11x120",
    f'node_filesystem_size_bytes{{{where("gpu-042")}, mountpoint="/", fstype="xfs"}}': "1e12x120",
}
CHOSEN = {"run": "r", "other": "r", "job": "7", "gpu": ".+", "index": "3"}
AT_FAULT = {"node": "gpu-042", "run": "r", "job_id": "7"}


def tiles() -> list[tuple[str, str, str]]:
    """The board, the title and the label of each tile whose link names a label."""
    found = []
    for name, text in rendered().items():
        for panel in finding.panels(json.loads(text)):
            urls = " ".join(link["url"] for link in panel.get("fieldConfig", {}).get("defaults", {}).get("links", []))
            labels = dict.fromkeys(re.findall(r"\$\{__field\.labels\.(\w+)\}", urls))
            found += [(name.removesuffix(".json"), panel["title"], at) for at in labels if panel["type"] == "stat"]
    return found


def incident(alert: str) -> Series:
    return {
        f'pyrometer_incident_start_timestamp_seconds{{cluster="c1", run="r", job_id="7", alert="{alert}"}}': "0x120"
    }


def test_the_label_that_a_link_names_is_in_the_answer(tmp_path: Path) -> None:
    asked = {(board, title, label): expression(board, title, **CHOSEN) for board, title, label in tiles()}
    assert ("overview", "Runs in trouble", "run") in asked
    tests = [
        gives(f"group by ({label}) ({expr})", (f'{{{label}="{AT_FAULT[label]}"}}', 1))
        for (_, _, label), expr in asked.items()
    ]
    assert answer(tmp_path, TROUBLE, tests) == ""


@pytest.mark.parametrize(("alert", "state"), [("TrainBatchPointsLost", 0), ("TrainStraggler", 1), ("NcclHang", 2)])
def test_an_incident_is_a_state_of_its_run_only_where_it_is_of_its_pace(alert: str, state: int, tmp_path: Path) -> None:
    asked = expression("overview", "Runs: who waits for whom, and why", run="r")
    assert answer(tmp_path, incident(alert), [gives(asked, ('{run="r", job_id="7"}', state))]) == ""


def test_the_alerts_of_a_runs_state_exist() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in RULES.glob("*.rules.yaml"))
    alerts = set(re.findall(r"alert: (\w+)", text))
    assert {*fleet_panels.STOPPED.split("|"), *fleet_panels.SLOW.split("|")} <= alerts
