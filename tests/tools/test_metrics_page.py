"""docs/metrics.md says what the code says, and every family keeps the house's rules."""

from __future__ import annotations

import collections
import re
import subprocess
from pathlib import Path

import pytest
from tools.metrics_page import OWN_FAMILIES, exporters, main, metrics_page

from pyrometer_exporters.framework.exposition import Renderer
from pyrometer_exporters.framework.metrics import Family

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
FAMILIES = [*OWN_FAMILIES, *(family for _, _, specs in exporters() for spec in specs for family in spec.families)]
OURS = [family for family in FAMILIES if not family.name.startswith("DCGM_FI_")]

# Target labels come from the scrape configuration. Families that speak of other targets than their own are named.
RESERVED = {"cluster", "node", "rack", "job", "instance", "env", "region", "service", "type", "le", "quantile"}
SPEAKS_OF_OTHERS = {
    "pyrometer_fabric_port_info": {"node"},
    "pyrometer_ufm_port_events_total": {"node"},
    "pyrometer_ufm_module_temperature_celsius": {"node"},
    "pyrometer_slurm_node_unavailable_info": {"node"},
    "pyrometer_slurm_node_unavailable_timestamp_seconds": {"node"},
}
NOT_BASE_UNITS = {
    "milliseconds", "microseconds", "nanoseconds", "ms", "us", "ns", "s", "minutes", "hours", "days", "kb", "mb", "gb",
    "kilobytes", "megabytes", "gigabytes", "mib", "gib", "bits", "percent", "millijoules", "milliwatts", "kilowatts",
    "mhz", "megahertz", "kelvin", "fahrenheit", "watts", "tflops",
}  # fmt: skip
# Network rates are quoted in bits, by everyone.
UNITS_EXEMPT = {"pyrometer_nic_link_rate_bits_per_second", "pyrometer_nic_link_rate_max_bits_per_second"}
# A counter of the driver's: the word is not its type but its subject.
PROMTOOL_EXEMPT = {*UNITS_EXEMPT, "pyrometer_nic_driver_counter_total"}


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == metrics_page(), "not what the code says; run: make reference"


def test_every_family_is_on_the_page() -> None:
    page = metrics_page()
    assert [family.name for family in FAMILIES if f"| `{family.name}` |" not in page] == []
    assert all(line.count("|") - line.count(r"\|") == 5 for line in page.splitlines() if line.startswith("|"))


def test_the_command_writes_the_page(tmp_path: Path) -> None:
    assert main([str(tmp_path / "m.md")]) == 0
    assert (tmp_path / "m.md").read_text(encoding="utf-8") == metrics_page()
    assert main([]) == 2


def test_each_name_is_defined_once() -> None:
    counts = collections.Counter(family.name for family in FAMILIES)
    twice = {name for name, count in counts.items() if count > 1}
    # dcgm-exporter gives a MIG instance's series the GPU's names and two more labels.
    assert {name for name in twice if not name.startswith("DCGM_FI_")} == set()
    assert all(len({family.type for family in FAMILIES if family.name == name}) == 1 for name in twice)


@pytest.mark.parametrize("family", OURS, ids=lambda family: family.name)
def test_names_types_and_labels(family: Family) -> None:
    words = family.name.split("_")
    assert re.fullmatch(r"pyrometer(_[a-z0-9]+)+", family.name), "snake_case, our prefix"
    assert (family.type == "counter") == family.name.endswith("_total"), "counters, and only they, end in _total"
    assert family.name in UNITS_EXEMPT or not set(words) & NOT_BASE_UNITS, "base units"
    joined = {"GPU_I_ID", "GPU_I_PROFILE"}  # spelled as on the DCGM series that they join
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*", label) for label in family.labels if label not in joined)
    assert not (RESERVED - SPEAKS_OF_OTHERS.get(family.name, set())) & set(family.labels)
    assert len(set(family.labels)) == len(family.labels)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_help_is_a_sentence(family: Family) -> None:
    assert len(family.help) > 3
    assert "\n" not in family.help
    assert family.type in ("counter", "gauge")


def test_promtool_finds_nothing_to_say_of_ours() -> None:
    from pyrometer_simulator.stack.cache import cache_folder

    promtool = cache_folder() / "promtool/usr/bin/promtool"
    if not promtool.exists():
        pytest.skip(f"no promtool at {promtool}: `make stack` fetches it")
    text = Renderer().text(family.sample(1, *("x" for _ in family.labels)) for family in OURS)
    done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, check=False, timeout=30)
    said = [
        line for line in (done.stdout + done.stderr).decode().splitlines()
        if line.split(" ")[0] not in PROMTOOL_EXEMPT
    ]  # fmt: skip
    assert said == []
