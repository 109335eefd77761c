"""The scrape of UFM's telemetry: which counters it keeps, and how its GUIDs become ours."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
(JOB,) = yaml.safe_load((ROOT / "compose/prometheus/scrape/ufm.yaml").read_text(encoding="utf-8"))["scrape_configs"]
RULES = yaml.safe_load((ROOT / "alert_rules/ufm.rules.yaml").read_text(encoding="utf-8"))["groups"][0]["rules"]


def relabelled(labels: dict[str, str]) -> dict[str, str] | None:
    """The labels after the job's relabelling, as Prometheus does it; None for a sample that is dropped."""
    for step in JOB["metric_relabel_configs"]:
        source = ";".join(labels.get(name, "") for name in step.get("source_labels", []))
        expression = re.compile(f"^(?:{step.get('regex', '(.*)')})$")
        found = expression.match(source)
        action = step.get("action", "replace")
        if action == "keep" and found is None:
            return None
        if action == "lowercase":
            labels[step["target_label"]] = source.lower()
        if action == "replace" and found is not None:
            labels[step["target_label"]] = found.expand(re.sub(r"\$\{(\d)\}", r"\\g<\1>", step["replacement"]))
        if action == "labeldrop":
            labels = {name: text for name, text in labels.items() if expression.match(name) is None}
    return labels


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("2c90300f172a2", "0002:c903:00f1:72a2"),
        ("0x0002c90300f172a2", "0002:c903:00f1:72a2"),
        ("B8CEF6030012AA00", "b8ce:f603:0012:aa00"),
        ("0xb8cef6030012aa00", "b8ce:f603:0012:aa00"),
        ("1", "0000:0000:0000:0001"),
    ],
)
def test_guids_are_those_of_the_node_exporter(theirs: str, ours: str) -> None:
    """The sample is the one of NVIDIA's manual of UFM Telemetry."""
    found = relabelled(
        {
            "__name__": "PortXmitDataExtended", "source": "0x0002c90300f172a0", "node_guid": "2c90300f172a0",
            "port_guid": theirs, "port_num": "2",
        }
    )  # fmt: skip
    assert found == {"__name__": "PortXmitDataExtended", "port_num": "2", "guid": ours}


def test_only_counters_that_the_rules_name_are_kept() -> None:
    named = {name for rule in RULES for name in re.findall(r"\w+Extended\b", rule["expr"])}
    assert len(named) == 17
    assert all(relabelled({"__name__": name, "port_guid": "1"}) is not None for name in named)
    assert all(
        relabelled({"__name__": name}) is None
        for name in ("up2", "CableInfoTemperature", "PortUniCastXmitPktsExtended")
    )
    kept = next(step["regex"] for step in JOB["metric_relabel_configs"] if step.get("action") == "keep")
    assert {f"{name}Extended" for name in kept.partition(")")[0].strip("(").split("|")} == named


def test_every_name_of_ours_is_one_that_the_node_exporter_has() -> None:
    page = (ROOT / "docs/metrics.md").read_text(encoding="utf-8")
    records = [rule["record"] for rule in RULES if rule["record"].startswith("ufm:")]
    assert len(records) == 17
    assert [record for record in records if f"| `{record.removeprefix('ufm:')}` | counter |" not in page] == []
