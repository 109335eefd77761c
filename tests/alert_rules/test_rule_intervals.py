"""Rules that remember their own last value hold at whatever interval their group is evaluated, 15 s to 60 s."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

RULES = Path(__file__).parents[2] / "alert_rules"
Promtool = Callable[..., str]
END = 600  # seconds after the last step, at which the ranks give up: NCCL's time-out


def series(rank: int, part: str) -> dict[str, str]:
    """Return what a rank's exporter serves every 15 s: ten minutes in this part, then gone by a signal."""
    labels = f'cluster="c1", run="llm", attempt="0", rank="{rank}", node="gpu-00{rank + 1}"'
    exit_by = "SIGABRT" if part == "wait" else "SIGTERM"
    gone = END // 15
    return {
        f"pyrometer_train_rank_up{{{labels}}}": f"1x{gone} 0x40 stale",
        f"pyrometer_train_steps_total{{{labels}}}": f"100x{gone + 40} stale",
        f"pyrometer_train_step_seconds_total{{{labels}}}": f"100x{gone + 40} stale",
        f"pyrometer_train_last_step{{{labels}}}": f"100x{gone + 40} stale",
        f"pyrometer_train_last_step_timestamp_seconds{{{labels}}}": f"0x{gone + 40} stale",
        f'pyrometer_train_current_part_seconds{{{labels}, part="{part}"}}': f"0+15x{gone} stale",
        f"pyrometer_train_rank_end_timestamp_seconds{{{labels}}}": f"_x{gone + 1} {END + rank}x80",
        f'pyrometer_train_rank_exit_info{{{labels}, exit="{exit_by}", part="{part}"}}': f"_x{gone + 1} 1x80",
    }


@pytest.mark.parametrize("interval", [15, 30, 60])
def test_a_stall_grows_by_the_seconds_that_pass_and_keeps_its_name_beyond_the_death(
    promtool: Promtool, tmp_path: Path, interval: int
) -> None:
    for name in ("train_stalled", "train_died"):
        rules = (RULES / f"{name}.rules.yaml").read_text()
        slower = re.sub(r"^    interval: 15s$", f"    interval: {interval}s", rules, flags=re.MULTILINE)
        (tmp_path / f"{name}.rules.yaml").write_text(slower)
    told = [
        {
            "expr": f"max by (rank) (run:pyrometer_train_current_part_seconds:told) - {seconds}",
            "eval_time": f"{seconds}s",
            "exp_samples": [{"labels": '{rank="1"}', "value": 0}],
        }
        for seconds in (300, 600, 720, 900)
    ]
    content = {
        "rule_files": ["train_stalled.rules.yaml", "train_died.rules.yaml"],
        "evaluation_interval": f"{interval}s",
        "tests": [
            {
                "interval": "15s",
                "input_series": [
                    {"series": name, "values": values}
                    for rank, part in ((0, "wait"), (1, "data"))
                    for name, values in series(rank, part).items()
                ],
                "promql_expr_test": told,
            }
        ],
    }
    path = tmp_path / "interval.test.yaml"
    path.write_text(json.dumps(content))  # JSON is YAML
    promtool("test", "rules", path)
