"""A site's own collectors: found by entry point, and unable to harm the others."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from pyrometer_exporters.framework import custom_collectors
from pyrometer_exporters.framework.collector import CollectorSpec
from pyrometer_exporters.framework.custom_collectors import EntryPoint, discover
from pyrometer_exporters.framework.gather import Gathered, Gatherer
from pyrometer_exporters.framework.metrics import Family
from pyrometer_kit.clock import SystemClock

GROUP = "pyrometer_exporters.node_collectors"
OURS = Family("pyrometer_ours", "gauge", "Ours.")
GOOD = """
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
"""


class Healthy:
    def collect(self, _until: float) -> Any:
        yield OURS.sample(1)

    def close(self) -> None:
        pass


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the import path for the site's modules and their entry points."""
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def install(site: Path, entries: str, distribution: str = "site-1.0") -> None:
    folder = site / f"{distribution}.dist-info"
    folder.mkdir()
    (folder / "entry_points.txt").write_text(entries)


def gathered(site: Path, body: str, seconds: float = 5.0) -> Gathered:
    """Scrape a collector of the site, whose collect() has this body, beside a healthy one."""
    lines = "\n".join(f"        {line}" for line in body.splitlines())
    name = f"site_{abs(hash((str(site), body)))}"
    (site / f"{name}.py").write_text(f"{GOOD}\nclass Own:\n    def collect(self):\n{lines}\n")
    entry = EntryPoint("own", f"{name}:Own")
    return scrape(entry, seconds)


def scrape(entry: EntryPoint, seconds: float = 5.0) -> Gathered:
    own = CollectorSpec("own", "", (), lambda context: custom_collectors.Custom(entry, context))
    ours = CollectorSpec("ours", "", (OURS,), lambda _context: Healthy())
    context: Any = None
    gatherer = Gatherer([(spec, spec.build(context)) for spec in (own, ours)], SystemClock())
    try:
        return gatherer.gather(seconds)
    finally:
        gatherer.close()


def values(result: Gathered) -> dict[str, float]:
    return {
        f"{sample.family.name}{sample.labels}": sample.value
        for sample in result.samples
        if not sample.family.name.startswith(("pyrometer_collector", "pyrometer_down"))
    }


def state(result: Gathered) -> tuple[str | None, list[str]]:
    (own,) = (state for state in result.states if state.name == "own")
    return own.failed, [f"{down.part} {down.reason}" for down in own.downs]


def test_metrics_are_served_under_their_own_names(site: Path) -> None:
    result = gathered(
        site,
        """
gauge = GaugeMetricFamily("room_celsius", "Temperature.", labels=["room"])
gauge.add_metric(["a"], 21.5)
yield gauge
yield CounterMetricFamily("door_openings", "Openings.", value=3)
yield HistogramMetricFamily("wait_seconds", "Wait.", buckets=[("1", 2), ("+Inf", 5)], sum_value=9)
""",
    )
    assert state(result) == (None, [])
    assert values(result) == {
        "room_celsius('a',)": 21.5, "door_openings_total()": 3, "wait_seconds_bucket('1',)": 2,
        "wait_seconds_bucket('+Inf',)": 5, "wait_seconds_count()": 5, "wait_seconds_sum()": 9, "pyrometer_ours()": 1,
    }  # fmt: skip
    types = {sample.family.name: sample.family.type for sample in result.samples}
    assert (types["room_celsius"], types["door_openings_total"], types["wait_seconds_sum"]) == (
        "gauge", "counter", "counter",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("body", "failed"),
    [
        ("raise OSError(5, 'no sensor')", "eio"),
        ("return 7", "typeerror"),
        ("return ['text']", "typeerror"),
        ("raise SystemExit('bye')", "runtimeerror"),
        (
            "m = GaugeMetricFamily('x', '', labels=['i'])\nfor i in range(10_001): m.add_metric([str(i)], i)\nyield m",
            "runtimeerror",
        ),
        ("while True: yield GaugeMetricFamily('x', '', value=1)", "runtimeerror"),
    ],
)
def test_a_failure_is_reported_and_hides_nobody(site: Path, body: str, failed: str) -> None:
    result = gathered(site, body)
    assert state(result)[0] == failed
    assert values(result) == {"pyrometer_ours()": 1}


def test_a_collector_without_an_end_misses_its_deadline(site: Path) -> None:
    result = gathered(site, "while True: yield GaugeMetricFamily('x', '')", seconds=0.3)
    assert state(result)[0] in ("deadline", "timeouterror")
    assert values(result) == {"pyrometer_ours()": 1}


def test_one_that_hangs_misses_its_deadline(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()
    monkeypatch.setattr(sys, "site_test_released", released, raising=False)
    try:
        start = time.monotonic()
        result = gathered(site, "import sys\nsys.site_test_released.wait(60)\nreturn []", seconds=0.3)
        assert time.monotonic() - start < 30
    finally:
        released.set()
    assert state(result)[0] == "deadline"
    assert values(result) == {"pyrometer_ours()": 1}


@pytest.mark.parametrize(
    "body",
    [
        "yield GaugeMetricFamily('pyrometer_gpu_temperature_celsius', '', value=1)",
        "yield GaugeMetricFamily('process_resident_memory_bytes', '', value=1)",
        "m = Metric('x', '', 'gauge')\nm.add_sample('not a name', {}, 1)\nyield m",
        "m = Metric('x', '', 'gauge')\nm.add_sample('x', {'not a label': 'a'}, 1)\nyield m",
        "m = Metric('x', '', 'gauge')\nm.add_sample('x', {}, 1, timestamp=12)\nyield m",
    ],
)
def test_a_metric_that_cannot_be_served_costs_no_other(site: Path, body: str) -> None:
    result = gathered(site, f"{body}\nyield GaugeMetricFamily('healthy', '', value=2)")
    failed, downs = state(result)
    assert failed is None
    assert [down.split()[1] for down in downs] == ["bad_metric"]
    assert values(result) == {"healthy()": 2, "pyrometer_ours()": 1}


def test_a_value_that_is_no_number_costs_no_other(site: Path) -> None:
    result = gathered(
        site,
        "m = Metric('x', '', 'gauge')\nm.add_sample('x', {}, 'much')\nyield m\n"
        "yield GaugeMetricFamily('healthy', '', value=2)",
    )
    assert state(result) == (None, [" bad_sample"])
    assert values(result) == {"healthy()": 2, "pyrometer_ours()": 1}


@pytest.mark.parametrize(
    ("value", "failed"),
    [("no_such_module:X", "modulenotfounderror"), ("string:no_such_name", "attributeerror"), ("math:pi", "typeerror")],
)
def test_an_entry_point_that_leads_nowhere_is_a_failure_of_its_own(value: str, failed: str) -> None:
    result = scrape(EntryPoint("own", value))
    assert state(result)[0] == failed
    assert values(result) == {"pyrometer_ours()": 1}


def test_entry_points_of_the_group_are_found(site: Path) -> None:
    install(
        site, f"[console_scripts]\nx = a:b\n\n[{GROUP}]\n# a comment\nrack = site.rack:Rack [extra]\n[other]\ny = c:d\n"
    )
    install(site, "garbage \x00 [\n= =\n", "broken-1.0")
    (site / "empty-1.0.dist-info").mkdir()
    specs, refused = discover(GROUP, ["gpu"])
    assert [(spec.name, spec.help) for spec in specs] == [("rack", "Custom collector site.rack:Rack.")]
    assert refused == []


def test_names_that_are_taken_or_unusable_are_refused_in_one_line_each(site: Path) -> None:
    install(site, f"[{GROUP}]\ngpu = a:b\nNot A Name = c:d\nrack = e:f\nrack = g:h\n")
    specs, refused = discover(GROUP, ["gpu"])
    assert [spec.name for spec in specs] == ["rack"]
    assert [re.sub(r" \(.*", "", line) for line in refused] == [
        "custom collector gpu", "custom collector 'Not A Name'", "custom collector rack",
    ]  # fmt: skip


@pytest.fixture
def modules_without_custom_collectors() -> set[str]:
    program = (
        "import sys; from pyrometer_exporters.framework import service;"
        "from pyrometer_exporters.node.main import NODE_EXPORTER;"
        "service.parser(NODE_EXPORTER, service.collectors_of(NODE_EXPORTER)[0]); print(*sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(answer.stdout.split())


def test_without_one_nothing_of_prometheus_client_is_loaded(modules_without_custom_collectors: set[str]) -> None:
    assert "pyrometer_exporters.framework.custom_collectors" in modules_without_custom_collectors
    assert not {"prometheus_client", "importlib.metadata", "email"} & modules_without_custom_collectors
