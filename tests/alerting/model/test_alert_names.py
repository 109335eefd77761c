"""Every alert that can be a cause is about hardware."""

from __future__ import annotations

from pathlib import Path

import yaml

from pyrometer_alerting.model.alert_names import NAMED_CAUSES


def test_every_alert_that_can_be_a_cause_has_a_rule_about_hardware() -> None:
    files = (Path(__file__).parents[3] / "alert_rules").glob("*.rules.yaml")
    groups = [group for path in files for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]]
    rules = {
        rule.get("alert"): rule["labels"]["component"] for group in groups for rule in group["rules"] if "alert" in rule
    }
    assert {name for name in NAMED_CAUSES if rules.get(name) not in {"gpu", "nic", "host"}} == set()
