"""The page of what uses each metric says what boards, rules and programs ask for; a board shows what we advertise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tools import metrics_used

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/reference/metrics-used.md"


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


def test_a_metric_that_only_a_docstring_names_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text('"""Reads pyrometer_gpu_up."""\nEXPR = "pyrometer_nic_up"\n')
    assert list(metrics_used._strings(tmp_path)) == ["pyrometer_nic_up"]


def test_a_wrong_call_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert metrics_used.main([]) == 2
    assert capsys.readouterr().err == "usage: python tools/metrics_used.py FILE\n"
