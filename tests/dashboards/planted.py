"""Incidents planted among healthy neighbours, and what panels' own expressions say of them in promtool."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from tools.board_lint import finding
from tools.board_lint.interpolation import builtin_variables, interpolate

from pyrometer_dashboards.main import rendered
from pyrometer_simulator.stack import find_stack
from pyrometer_simulator.stack.promtool import groups_of, objections, that_answer

RULES = [
    Path(__file__).parents[2] / "alert_rules" / f"{name}.rules.yaml"
    for name in (
        "fleet_gpu", "fleet_history", "fleet_hosts", "fleet_jobs", "fleet_power",
        "fleet_map", "fleet_nic", "fleet_nodes", "fleet_train", "gpu",
        "gpu_health", "nccl", "nccl_inspector", "nic", "stack",
        "train", "train_died", "train_expected", "train_stalled", "train_straggler",
    )
]  # fmt: skip
NODES = ("gpu-041", "gpu-042", "gpu-043")
GPUS = ("2", "3")
MINUTES = 30

Series = dict[str, str]


@cache
def _boards() -> dict[str, Any]:
    return {name: json.loads(text) for name, text in rendered().items()}


def expression(board: str, title: str, query: int = 0, **variables: str) -> str:
    """A query of a panel, by default the first, with its variables filled in."""
    (one,) = [each for each in finding.panels(_boards()[f"{board}.json"]) if each["title"] == title]
    values = {
        "cluster": "c1",
        "clusters": ".+",
        "jobs": ".*",
        "node": "gpu-042",
        **builtin_variables(600),
        "slowed": ".+",
        **variables,
    }
    return interpolate(finding.targets(one)[query]["expr"], values)


@dataclass(frozen=True)
class Shown:
    """The answer that a panel must give: one series, no other.

    Attributes:
        beyond: appended to the expression, such as what the panel's colours call bad.
        query: which of the panel's queries.
        at: when it is asked.
        frame: put around the expression.
    """

    board: str
    title: str
    labels: str
    value: float
    beyond: str = ""
    variables: dict[str, str] = field(default_factory=dict)
    query: int = 0
    at: str = "20m"
    frame: str = "%s"

    def asked(self) -> str:
        """The panel's own expression."""
        expr = expression(self.board, self.title, self.query, **self.variables)
        framed = self.frame % expr
        return f"({framed}) {self.beyond}" if self.beyond else framed


# The labels that only links use.
UNLINKED = "max without (at, of, to, to_node, to_run, book) (%s)"


def where(node: str) -> str:
    return f'cluster="c1", node="{node}"'


def healthy() -> Series:
    """Three nodes with two GPUs, two ports and two ranks each, a sample every 15 s."""
    found: Series = {}
    for node in NODES:
        found[f'up{{job="node", {where(node)}, instance="{node}:9935"}}'] = "1x120"
        found[f"pyrometer_kernel_log_lost_records_total{{{where(node)}}}"] = "0x120"
        for gpu in GPUS:
            own, dcgm = (
                f'{where(node)}, gpu="{gpu}", uuid="u-{node}-{gpu}"',
                f'{where(node)}, gpu="{gpu}", UUID="u-{node}-{gpu}"',
            )
            rank = f'{where(node)}, run="r", job_id="7", attempt="1", rank="{NODES.index(node) * 2 + int(gpu) - 2}"'
            found[f"pyrometer_gpu_up{{{own}}}"] = "1x120"
            found[f'pyrometer_gpu_job_info{{{own}, job_id="7"}}'] = "1x120"
            found[f"DCGM_FI_DEV_GPU_TEMP{{{dcgm}}}"] = "58x120"
            found[f"DCGM_FI_DEV_SM_CLOCK{{{dcgm}}}"] = "1980x120"
            for reason in ("hw_thermal", "power_cap"):
                grows = "0+5x120" if reason == "power_cap" else "0x120"
                found[f'pyrometer_gpu_clock_event_seconds_total{{{own}, reason="{reason}"}}'] = grows
            found[f'pyrometer_gpu_xid_errors_total{{{own}, xid="79", class="critical"}}'] = "0x120"
            found[f"pyrometer_gpu_xid_critical_errors_total{{{own}}}"] = "0x120"
            found[f'pyrometer_train_rank_info{{{rank}, gpu="{gpu}", stage="0"}}'] = "1x120"
            found[f"pyrometer_train_rank_up{{{rank}}}"] = "1x120"
            found[f"pyrometer_train_steps_total{{{rank}}}"] = "0+15x120"
            found[f"pyrometer_train_step_seconds_total{{{rank}}}"] = "0+15x120"
            found[f'pyrometer_train_step_part_seconds_total{{{rank}, part="wait"}}'] = "0+3x120"
            port = f'{where(node)}, device="mlx5_{gpu}", port="1"'
            found[f"pyrometer_nic_link_up{{{port}}}"] = "1x120"
            found[f"pyrometer_nic_expected_up{{{port}}}"] = "1x120"
            found[f"pyrometer_nic_link_down_events_total{{{port}}}"] = "0x120"
            found[f"pyrometer_nic_port_transmit_wait_total{{{port}}}"] = "0+100x120"
    batch = f'{where(NODES[0])}, run="r", job_id="7", attempt="1"'
    found[f"pyrometer_train_batch_step{{{batch}}}"] = "1+1x120"
    found[f'pyrometer_train_steps_total{{{where(NODES[0])}, run="r", job_id="7", attempt="1", rank="0"}}'] = "0+1x120"
    return found


WHERE = where("gpu-042")
GPU = f'{WHERE}, gpu="3"'
UUID = f'{GPU}, uuid="u-gpu-042-3"'
PORT = f'{WHERE}, device="mlx5_3", port="1"'
RANK = f'{WHERE}, run="r", job_id="7", attempt="1", rank="3"'
INCIDENTS: dict[str, Series] = {
    "a throttled GPU": {
        f'DCGM_FI_DEV_GPU_TEMP{{{GPU}, UUID="u-gpu-042-3"}}': "91x120",
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
        'up{job="node", cluster="c1", node="gpu-042", instance="gpu-042:9935"}': "1x60 0x60",
    },
    "a lost GPU": {
        f'DCGM_FI_DEV_GPU_TEMP{{{GPU}, UUID="u-gpu-042-3"}}': "58x60 stale",
        f'DCGM_FI_DEV_SM_CLOCK{{{GPU}, UUID="u-gpu-042-3"}}': "1980x60 stale",
        f"pyrometer_gpu_up{{{UUID}}}": "1x60 0x60",
        f'pyrometer_gpu_xid_errors_total{{{UUID}, xid="79", class="critical"}}': "0x60 1x60",
        f"pyrometer_gpu_xid_critical_errors_total{{{UUID}}}": "0x60 1x60",
        f'pyrometer_down_reason_info{{{WHERE}, collector="gpu", part="3", reason="gpu_is_lost"}}': "_x60 1x60",
        f'pyrometer_gpus_present{{{WHERE}, source="nvml"}}': "2x120",
    },
    "a lost batch": {
        f'pyrometer_train_batch_step{{{where("gpu-041")}, run="r", job_id="7", attempt="1"}}': "1+1x70 _ 73+1x48",
    },
}


def gives(expr: str, *samples: tuple[str, float], at: str = "20m") -> dict[str, object]:
    """Return a test of promtool: an expression, and the labels and values of its answer at a moment."""
    return {"expr": expr, "eval_time": at, "exp_samples": [{"labels": one, "value": value} for one, value in samples]}


def answer(tmp_path: Path, series: Series, tests: Sequence[Mapping[str, object]], rules: Sequence[Path] = RULES) -> str:
    """The objections of promtool; empty if all was as expected."""
    inputs = [{"series": name, "values": values} for name, values in (healthy() | series).items()]
    groups = [group for path in rules for group in groups_of(path)]
    needed = that_answer(groups, [str(test["expr"]) for test in tests])
    whole = {
        "rule_files": ["needed.rules.yaml"],
        "evaluation_interval": "30s",
        "fuzzy_compare": True,
        "tests": [{"interval": "15s", "input_series": inputs, "promql_expr_test": tests}],
    }
    # JSON is YAML.
    (tmp_path / "needed.rules.yaml").write_text(json.dumps({"groups": needed}))
    path = tmp_path / "incident.yaml"
    path.write_text(json.dumps(whole))
    return objections(find_stack().promtool, "test", "rules", path)
