"""The GPU collector's output on a healthy node."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pyrometer_exporters.framework.exposition import Renderer
from pyrometer_exporters.node.gpu import families
from pyrometer_exporters.node.gpu.clock_events import REASONS
from pyrometer_exporters.node.gpu.sampler import REST_FREQUENCY

GOLDEN = Path(__file__).with_name("golden") / "metrics.txt"


@pytest.fixture
def text(make_node: Any) -> str:
    node = make_node(count=2, still=True)
    node.gpus[0].load()
    node.gpus[1].throttle("hw_thermal", sm_clock=1200, temperature=91)
    return Renderer().text(node.scrape_every(10).samples).decode()


def test_output_is_the_golden_one(text: str, golden: Callable[[str, str], None]) -> None:
    golden(text, "golden/metrics.txt")


def test_rare_hardware_is_on_a_golden_page(make_node: Any, tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    """Serve a divided GPU, one older than Ampere and one that failed, all at work, on the newest driver."""
    (process := tmp_path / "proc" / "4242").mkdir(parents=True)
    (process / "cgroup").write_text("0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0\n")
    (process / "status").write_text("Name:\tpython\nUid:\t1001\t1001\t1001\t1001\n")
    (module := tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (module / "version").write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  615.71.05  Tue\n")
    node = make_node(count=3, still=True, driver="615.71.05")
    busy = dict.fromkeys((str(number) for number in range(1, 70)), 25.0)
    node.gpus[0].set(mig=[{"id": 7, "profile": "1g.10gb", "used_mib": 1200, "total_mib": 9984, "gpm": busy}])
    node.gpus[1].set(retired={"sbe": 3, "dbe": 1, "pending": 1}, fan=40, gpm=busy, nvlink_bytes=[0, 0])
    rows = {"inactive_uncorrected": 2, "banks": 1, "banks_pending": 1}
    errors = {"3/link_recovery_events": 5, "4/malformed_packet_errors": 2}
    node.gpus[2].set(remapped=rows, nvlink_generation=5, nvlink_errors=errors, processes=[[4242, 1 << 30]])
    node.scrape()  # from now on, the log is followed
    node.log.xid(node.gpus[2].pci_bus_id, 45, "Ch 00000010", pid=4242, caused_by=79)
    node.log.xid(node.gpus[2].pci_bus_id, 79, "GPU has fallen off the bus.")
    while not node.scrape().values("pyrometer_gpu_xid_consequences_total"):  # the log is followed by a thread
        time.sleep(0.01)
    node.clock.now += 15
    node.gpus[1].set(nvlink_bytes=[18_000_000 * 1024, 36_000_000 * 1024])
    ordinary = set(re.findall(r"^# HELP (\S+)", GOLDEN.read_text(encoding="utf-8"), re.MULTILINE))
    rare = [sample for sample in node.scrape().samples if sample.family.name not in ordinary]
    golden(Renderer().text(rare).decode(), "golden/rare.txt")


def test_output_survives_the_round_trip_through_prometheus_parser(text: str) -> None:
    parsed = {sample.name: family.type for family in text_string_to_metric_families(text) for sample in family.samples}
    # The parser gives every counter the suffix that DCGM's lacks.
    expected = {
        family.name.removesuffix("_total") + ("_total" if family.type == "counter" else ""): family.type
        for family in families.FAMILIES
    }
    assert expected.items() <= parsed.items()  # subjects add theirs


def test_series_of_one_family_differ_in_their_labels(make_node: Any) -> None:
    samples = make_node().scrape().samples
    assert len({(s.family.name, s.labels) for s in samples}) == len(samples)


def test_host_label_can_be_spelled_as_the_newer_dcgm_exporter_does(make_node: Any) -> None:
    scrape = make_node("--gpu.hostname-label=hostname", count=1).scrape()
    assert scrape.value("DCGM_FI_DEV_SM_CLOCK", hostname="gpu-042") == 345
    assert scrape.value("DCGM_FI_DEV_SM_CLOCK", Hostname="gpu-042") is None


def test_dcgm_units(make_node: Any) -> None:
    node = make_node(count=1, still=True)
    node.gpus[0].load(power_watts=500, memory_used_mib=1024)
    scrape = node.scrape_every(2)
    assert scrape.value("DCGM_FI_DEV_POWER_USAGE") == 500
    assert scrape.value("DCGM_FI_DEV_FB_USED") == 1024
    assert scrape.value("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION") == 1_000_000
    assert scrape.value("pyrometer_gpu_energy_joules_total") == 1000


def test_every_reason_has_a_value_and_one_method_from_first_sight_on(make_node: Any) -> None:
    scrape = make_node(count=1).scrape()
    seconds = scrape.values("pyrometer_gpu_clock_event_seconds_total")
    methods = scrape.values("pyrometer_gpu_clock_event_method_info")
    assert {labels[2] for labels in seconds} == {reason.name for reason in REASONS}
    assert sorted(labels[2] for labels in methods) == sorted(reason.name for reason in REASONS)


@pytest.mark.parametrize(
    ("driver", "sampled"),
    [
        ("570.86.15", {"sw_thermal", "hw_thermal", "hw_power_brake"}),
        ("575.51.03", set()),
        ("580.65.06", set()),
        ("580.76.05", {"sw_thermal", "hw_thermal", "hw_power_brake"}),
        ("580.82.07", set()),
        ("615.71.05", set()),
    ],
)
def test_thermal_times_are_right_on_every_driver_and_say_their_method(
    make_node: Any, driver: str, sampled: set[str]
) -> None:
    node = make_node(count=1, driver=driver, still=True, scraped=True)
    node.gpus[0].throttle("hw_thermal")
    scrape = node.scrape_every(3)
    methods = {labels[2]: labels[3] for labels in scrape.values("pyrometer_gpu_clock_event_method_info")}
    always = {"gpu_idle", "clocks_setting", "hw_slowdown", "display_clocks"}
    assert {reason for reason, method in methods.items() if method == "sampled"} == sampled | always
    # The clock jumped three seconds: a gap that the sampler leaves alone, but for the stretch in which it jumped.
    least, most = (0, 1 / REST_FREQUENCY) if sampled else (3, 3)
    assert least <= scrape.value("pyrometer_gpu_clock_event_seconds_total", reason="hw_thermal") <= most


def test_reasons_that_an_old_bitmask_cannot_show_are_absent_without_their_counters(make_node: Any) -> None:
    node = make_node(count=2, driver="590.48.01")
    node.gpus[0].lack("counters")
    reasons = {labels[2] for labels in node.scrape().values("pyrometer_gpu_clock_event_seconds_total", gpu="0")}
    assert reasons == {reason.name for reason in REASONS} - {"board_limit", "reliability"}


def test_field_values_are_read_in_one_call_per_gpu(make_node: Any) -> None:
    node = make_node(count=2, scraped=True)
    before = node.library.calls["nvmlDeviceGetFieldValues"]
    node.scrape()
    assert node.library.calls["nvmlDeviceGetFieldValues"] - before == 2


def test_after_a_reload_the_method_is_the_new_drivers(make_node: Any) -> None:
    # Kept to the sampler of the old driver, a restart of the exporter would look like minutes of heat at once.
    node = make_node(count=1, driver="570.86.15", still=True, scraped=True)
    node.gpus.reload_driver("590.48.01")
    scrape = node.scrape_every(60, times=3)
    methods = {labels[2]: labels[3] for labels in scrape.values("pyrometer_gpu_clock_event_method_info")}
    assert (methods["hw_thermal"], methods["hw_slowdown"]) == ("counter", "sampled")


def test_after_a_restart_the_drivers_counters_go_on_and_the_samplers_begin_at_0(make_node: Any) -> None:
    node = make_node(count=1, still=True, scraped=True)
    node.gpus[0].throttle("hw_thermal")
    node.clock.now += 30
    restarted = node.restarted().scrape()
    seconds = {k[2]: v for k, v in restarted.values("pyrometer_gpu_clock_event_seconds_total").items()}
    assert (seconds["hw_thermal"], seconds["hw_slowdown"]) == (30, 0)
