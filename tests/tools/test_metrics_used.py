"""The page of what uses each metric says what boards, rules and programs ask for; a board shows what we advertise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tools import metrics_used
from tools.metric_reasons import REASONS

from pyrometer_exporters.framework.deprecation import DEPRECATED

ROOT = Path(__file__).parents[2]
# Words of the README, and the metrics that a board must have for them.
SOLD = {
    "*every* batch's MFU": ["pyrometer_train_batch_mfu_ratio"],
    "counts throttling": ["pyrometer_gpu_clock_event_seconds_total"],
    "link flaps": ["pyrometer_nic_link_down_events_total"],
    "GPUs, links, kernel": ["pyrometer_gpu_up", "pyrometer_nic_link_up", "pyrometer_kernel_events_total"],
    "Slurm and UFM": [
        "pyrometer_slurm_jobs", "pyrometer_slurm_nodes", "pyrometer_slurm_node_unavailable_info",
        "pyrometer_ufm_port_events_total",
    ],
    "is this node fit for a job": ["pyrometer_check_ok"],
}  # fmt: skip
# Beside it, somebody on call looks for these.
LOOKED_FOR = (
    "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_MEMORY_TEMP", "pyrometer_gpu_energy_joules_total",
    "pyrometer_gpu_nvlink_transmitted_bytes_total", "pyrometer_gpu_nvlink_errors_total",
    "pyrometer_gpu_pcie_received_bytes_total", "pyrometer_gpu_pcie_errors_total",
    "pyrometer_nic_roce_adp_retransmits_total", "pyrometer_nic_rp_cnp_packets_handled_total",
    "pyrometer_nic_tx_pause_storm_warning_events_total", "pyrometer_nic_fec_corrected_blocks_total",
    "pyrometer_nic_temperature_celsius", "pyrometer_run_estimated_end_timestamp_seconds",
)  # fmt: skip
PAGE = ROOT / "docs/reference/metrics-used.md"


@pytest.fixture(scope="module")
def ours() -> dict[str, metrics_used.Use]:
    return metrics_used.uses()


def test_the_page_is_what_the_code_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == metrics_used.page(), f"{PAGE.name} is outdated; run: make docs"


def test_every_exported_metric_has_one_use_or_none() -> None:
    listed = [name for _, names in metrics_used.sections() for name in names]
    assert len(listed) > 300
    assert set(listed) == set(metrics_used.uses({}))


def _board(expr: str) -> dict[str, Any]:
    panel = {"type": "stat", "title": "Hot", "targets": [{"expr": expr}]}
    return {"title": "Pyrometer / B", "panels": [panel], "annotations": {"list": []}, "templating": {"list": []}}


def test_a_panel_uses_what_a_rule_records_for_it() -> None:
    recorded = metrics_used.uses({"b.json": _board("cluster:pyrometer_gpu_up:count")})
    assert recorded["pyrometer_gpu_up"].panels == {"B": ["Hot"]}
    assert not recorded["DCGM_FI_PROF_NVJPG0_ACTIVE"]


def test_a_histograms_series_is_its_metric() -> None:
    asked = metrics_used.uses({"b.json": _board("rate(pyrometer_alerting_webhook_to_slack_seconds_sum[5m])")})
    assert asked["pyrometer_alerting_webhook_to_slack_seconds"].panels == {"B": ["Hot"]}


def test_an_alert_uses_what_its_rules_record() -> None:
    found = metrics_used.uses({})
    assert "GpuLost" in found["pyrometer_gpu_up"].alerts
    assert "diagnosis" in found["pyrometer_train_stack_info"].readers


def test_a_metric_that_only_a_docstring_names_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_used, "ROOT", tmp_path)
    (tmp_path / "m.py").write_text('"""Reads pyrometer_gpu_up."""\nEXPR = "pyrometer_nic_up"\n')
    assert list(metrics_used._strings("*.py")) == ["pyrometer_nic_up"]


@pytest.mark.parametrize("words", SOLD)
def test_what_the_readme_sells_is_on_a_board(words: str, ours: dict[str, metrics_used.Use]) -> None:
    assert words in (ROOT / "README.md").read_text(encoding="utf-8"), "the README says it in other words: change SOLD"
    assert [name for name in SOLD[words] if not ours[name].panels] == []


def test_what_somebody_on_call_looks_for_is_on_a_board(ours: dict[str, metrics_used.Use]) -> None:
    assert [name for name in LOOKED_FOR if not ours[name].panels] == []


def test_a_metric_is_used_has_a_reason_or_is_deprecated(ours: dict[str, metrics_used.Use]) -> None:
    assert [name for name, use in ours.items() if not use and not metrics_used.reason(name)] == [], (
        "show it on a board, or give its reason in tools/metric_reasons.py"
    )


def test_reasons_and_deprecations_are_of_metrics_without_a_user(ours: dict[str, metrics_used.Use]) -> None:
    rows = [*(name for names in REASONS.values() for name in names), *DEPRECATED]
    assert len(set(rows)) == len(rows)
    assert [name for name in rows if name not in ours or ours[name]] == [], (
        "remove it from tools/metric_reasons.py or framework/deprecation.py: it has a user, or is gone"
    )


def test_a_wrong_call_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert metrics_used.main([]) == 2
    assert capsys.readouterr().err == "usage: python -m tools.metrics_used FILE\n"
