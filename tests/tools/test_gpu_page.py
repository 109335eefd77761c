"""The page of the check of a GPU: what was recorded, beside what is expected."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools import gpu_page as page

from pyrometer_exporters.commands.gpu_check import check, jobs, xid
from pyrometer_exporters.commands.gpu_check.main import EXPERIMENTS

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_what_the_command_makes() -> None:
    text = page.text(EXPERIMENTS)
    assert (ROOT / "docs/on-a-gpu.md").read_text(encoding="utf-8") == text, (
        "docs/on-a-gpu.md is outdated: make gpu-page"
    )


def test_the_page_says_that_nothing_was_measured_on_a_gpu_until_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "RECORDED", tmp_path)
    assert "The column *measured* is still empty" in page.text(EXPERIMENTS)
    run = tmp_path / "run"
    run.mkdir()
    described = {"stand_in": False, "gpu": "NVIDIA H200", "driver": "595.1", "date": "today", "python": "3.12",
                 "processors": 16, "kernel": "6.8", "packages": {}}  # fmt: skip
    check.append(run / check.RESULTS, {"machine": described})
    check.Report(run, xid.EXPERIMENT).passed("xid", "Xid 31: +1", ok=True)
    page.record(run)
    text = page.text(EXPERIMENTS)
    assert "still empty" not in text
    assert "| Xid 31: +1: **pass** |" in text
    assert "| measured | NVIDIA H200 | 595.1 |" in text


def test_a_run_of_some_experiments_leaves_the_recorded_results_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "RECORDED", tmp_path / "recorded")
    for module, value in ((xid, "one"), (jobs, "two"), (xid, "three")):
        experiment, run = module.EXPERIMENT, tmp_path / value
        run.mkdir()
        check.append(run / check.RESULTS, {"machine": {"stand_in": True}})
        check.Report(run, experiment).passed(experiment.checks[0].name, value, ok=True)
        page.record(run)
    assert [result.measured for result in check.results(tmp_path / "recorded" / page.STAND_IN)] == ["two", "three"]
