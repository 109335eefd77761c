"""Every alert that can be a cause is about hardware."""

from __future__ import annotations

from pathlib import Path

from pyrometer_alerting.model.alert_names import NAMED_CAUSES
from pyrometer_simulator.stack.promtool import rules_of


def test_every_alert_that_can_be_a_cause_has_a_rule_about_hardware() -> None:
    files = (Path(__file__).parents[3] / "alert_rules").glob("*.rules.yaml")
    rules = {rule["alert"]: rule["labels"]["component"] for rule in rules_of(files) if "alert" in rule}
    assert {name for name in NAMED_CAUSES if rules.get(name) not in {"gpu", "nic", "host"}} == set()
