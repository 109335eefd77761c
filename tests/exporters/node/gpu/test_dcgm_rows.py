"""Every row of dcgm-exporter's lists is served as DCGM has it, or the documentation says why not."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pyrometer_exporters.framework.exposition import Renderer
from pyrometer_exporters.framework.metrics import Family
from pyrometer_exporters.node.gpu.collector import COLLECTOR

HERE = Path(__file__).parent
DOCUMENT = Path(__file__).parents[4] / "docs" / "dcgm.md"
ROWS = list(csv.DictReader((HERE / "dcgm_rows.csv").read_text(encoding="utf-8").splitlines()))
FAMILIES = {family.name: family for family in COLLECTOR.families}

# The labels of dcgm-exporter's samples, in its order; the host's label as up to its release 4.8.2.
DCGM_LABELS = ("gpu", "UUID", "pci_bus_id", "device", "modelName", "Hostname", "DCGM_FI_DRIVER_VERSION")
MORE_LABELS = {"DCGM_FI_DEV_XID_ERRORS": ("err_code", "err_msg")}


def rows(**wanted: str) -> list[str]:
    return [row["name"] for row in ROWS if wanted.items() <= row.items()]


@pytest.fixture
def scrape(make_node: Any) -> Any:
    node = make_node(count=1, still=True)
    node.gpus[0].load()
    node.scrape()
    return node.scrape_every(15)


def test_each_row_is_there_once() -> None:
    assert len({row["name"] for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("row", [row for row in ROWS if row["served"] == "yes"], ids=lambda row: row["name"])
def test_row_has_the_type_and_labels_of_dcgm(row: dict[str, str]) -> None:
    found = [family for family in COLLECTOR.families if family.name == row["name"]]
    assert {family.type for family in found} == {row["type"]}
    # MIG instances are a second family of the name, with two labels more.
    assert (*DCGM_LABELS, *MORE_LABELS.get(row["name"], ())) in [family.labels for family in found]


def test_a_healthy_h100_has_every_row_that_it_should(scrape: Any) -> None:
    served = {sample.family.name for sample in scrape.samples}
    assert set(rows(served="yes", present="always")) - served == set()


def test_rows_that_are_labels_of_dcgm_are_labels_of_our_info_series(scrape: Any) -> None:
    infos = [s for s in scrape.samples if s.family.name in ("pyrometer_gpu_info", "pyrometer_gpu_versions_info")]
    labels = {name: value for s in infos for name, value in zip(s.family.labels, s.labels, strict=True)}
    for row in ROWS:
        if row["served"] == "info":
            assert re.findall("`([a-z_]+)` of", row["note"])[0] in labels, row["name"]
    assert labels["brand"] == "NVIDIA"
    assert (labels["inforom_image"], labels["inforom_ecc"], labels["inforom_power"]) == ("G520.0200.00.05", "7.16", "")


@pytest.mark.parametrize("hostname", ["Hostname", "hostname"])
def test_sample_has_the_labels_of_dcgm_exporter(make_node: Any, hostname: str) -> None:
    node = make_node(f"--gpu.hostname-label={hostname}", count=2, scraped=True)
    text = Renderer().text(node.scrape().samples).decode()
    expected = {
        "gpu": "1",
        "UUID": node.gpus[1].uuid,
        "pci_bus_id": "00000000:2A:00.0",
        "device": "nvidia1",
        "modelName": "NVIDIA H100 80GB HBM3",
        hostname: "gpu-042",
        "DCGM_FI_DRIVER_VERSION": "590.48.01",
    }
    for name in ("DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_ENC_UTIL", "DCGM_FI_DEV_POWER_VIOLATION"):
        assert expected in [labels for labels, _ in series(text, name)]


def series(text: str, name: str) -> list[tuple[dict[str, str], float]]:
    # The parser gives DCGM's counters the suffix that they lack.
    return [
        (sample.labels, sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name in (name, f"{name}_total")
    ]


def test_dashboard_12239_finds_what_it_asks_for(make_node: Any) -> None:
    node = make_node(count=8, still=True)
    for gpu in node.gpus:
        gpu.load(utilisation=90, power_watts=600, temperature=60, sm_clock=1755, memory_used_mib=70_000)
    node.scrape()
    node.clock.now += 15
    text = Renderer().text(node.scrape().samples).decode()
    # Its variable: label_values(DCGM_FI_DEV_GPU_TEMP, gpu); the label `instance` comes with the scrape.
    assert sorted({labels["gpu"] for labels, _ in series(text, "DCGM_FI_DEV_GPU_TEMP")}) == list("01234567")
    panels = {
        "DCGM_FI_DEV_GPU_TEMP": 60,
        "DCGM_FI_DEV_POWER_USAGE": 600,
        "DCGM_FI_DEV_SM_CLOCK": 1755,  # MHz: the panel multiplies by 1e6
        "DCGM_FI_DEV_GPU_UTIL": 90,
        "DCGM_FI_DEV_FB_USED": 70_000,  # MiB
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": pytest.approx(0.9 * 0.55),  # 0 to 1
    }
    for name, expected in panels.items():
        selected = [value for labels, value in series(text, name) if re.fullmatch("0|1|2|3|4|5|6|7", labels["gpu"])]
        assert selected == [expected] * 8, name


def test_rules_by_either_name_of_the_reasons_for_low_clocks_find_the_same_bitmask(make_node: Any) -> None:
    node = make_node(count=1)
    node.gpus[0].throttle("hw_thermal")
    scrape = node.scrape()
    named = scrape.value("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS")
    assert named == scrape.value("DCGM_FI_DEV_CLOCKS_EVENT_REASONS") == 0x1 | 0x8 | 0x40


def test_documentation_has_every_row_and_every_other_field_that_is_served() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    generated = replaced(replaced(text, "rows", row_table()), "more", more_table())
    if os.environ.get("PYROMETER_UPDATE_GOLDEN"):
        DOCUMENT.write_text(generated, encoding="utf-8")
        text = generated
    assert text == generated, "out of date: PYROMETER_UPDATE_GOLDEN=1 pytest tests/exporters/node/gpu"


def replaced(text: str, name: str, table: str) -> str:
    pattern = rf"(<!-- {name}: generated -->\n).*?(<!-- end -->)"
    return re.sub(pattern, lambda found: f"{found[1]}{table}{found[2]}", text, count=1, flags=re.DOTALL)


def row_table() -> str:
    served = {"yes": "yes", "label": "yes", "info": "as a label of an info series", "no": "no"}
    presence = {"always": "yes", "never": "", "xid": "once there was an Xid"}
    lines = [
        (
            f"`{row['name']}`",
            row["default"],
            row["type"],
            row["unit"],
            served[row["served"]],
            presence.get(row["present"], "no"),
            row["note"],
        )
        for row in ROWS
    ]
    return table(("row", "in the lists", "type", "unit", "served", "on an H100", "remark"), lines)


def more_table() -> str:
    listed = {row["name"] for row in ROWS}
    more = {name: family for name, family in FAMILIES.items() if name.startswith("DCGM_") and name not in listed}
    return table(("field", "type", "what it is"), [(f"`{name}`", f.type, first(f)) for name, f in sorted(more.items())])


def first(family: Family) -> str:
    return family.help.replace("|", "\\|")


def table(head: tuple[str, ...], lines: Iterable[tuple[str, ...]]) -> str:
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (head, ("---",) * len(head), *lines))
