"""The pages about two Prometheis: what they change is a good configuration; tests/e2e runs Thanos and Mimir."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from pyrometer_simulator.pair.pages import blocks, merged
from pyrometer_simulator.stack import Stack
from pyrometer_simulator.stack.promtool import objections

ROOT = Path(__file__).parents[2]
PAGES = ("thanos", "mimir")


@pytest.mark.parametrize("name", PAGES)
def test_prometheus_takes_what_the_page_changes(stack: Stack, tmp_path: Path, name: str) -> None:
    folder, page = tmp_path / "prometheus", blocks(ROOT / f"docs/howto/{name}.md")
    shutil.copytree(ROOT / "compose/prometheus", folder)
    (folder / "rules").symlink_to(ROOT / "alert_rules")
    subprocess.run(page["second"], shell=True, check=True, cwd=folder)  # noqa: S602  our own page
    path = folder / "prometheus.yaml"
    whole = merged(yaml.safe_load(path.read_text()), yaml.safe_load(page["prometheus.yaml"]))
    path.write_text(yaml.safe_dump(whole, sort_keys=False))
    assert objections(stack.promtool, "check", "config", path) == ""
    batches = next(job for job in whole["scrape_configs"] if job["job_name"] == "batches")
    assert batches["params"]["consumer"] == ["prom-b"]


def test_what_mimir_gets_twice_are_all_batches_and_nothing_else() -> None:
    """Check that one expression divides the samples between the two remote writes."""
    first, second = yaml.safe_load(blocks(ROOT / "docs/howto/mimir.md")["prometheus.yaml"])["remote_write"]
    drop, keep = first["write_relabel_configs"][0], second["write_relabel_configs"][0]
    assert {**drop, "action": ""} == {**keep, "action": ""}
    assert (drop["action"], keep["action"]) == ("drop", "keep")
    pattern = re.compile(drop["regex"])
    reference = (ROOT / "docs/metrics.md").read_text()
    batches = set(re.findall(r"pyrometer_train_batch_\w+", reference))
    assert len(batches) >= 11
    assert all(pattern.fullmatch(f"batches;{each}") for each in batches)
    assert not any(
        pattern.fullmatch(each) for each in ("batches;up", "node;pyrometer_gpu_up", "batches;scrape_samples")
    )
