"""The samples of the fabric: events by number, by port and by cable; links and rails; what is not known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pyrometer_exporters.cluster.ufm.collector import COLLECTOR
from pyrometer_exporters.framework.exposition import Renderer
from pyrometer_exporters.framework.outcome import PartError
from pyrometer_simulator.ufm import HostPort, SwitchPort

PORT, CABLE, EVENTS = (
    "pyrometer_ufm_port_events_total",
    "pyrometer_ufm_cable_events_total",
    "pyrometer_ufm_events_total",
)
INFO = "pyrometer_fabric_port_info"

LEAF = SwitchPort("leaf-12", 17)
SPINE = SwitchPort("spine-3", 33)
HOST = HostPort("gpu-174", "mlx5_5", "b8cef6030012aa00")
DOWN_AT_HOST = (PORT, "link_down", "329", "", "gpu-174", "mlx5_5", "1", "leaf-12", "9/1")


def test_the_output_is_the_golden_one(fabric: Any, nic: Any, golden: Callable[[str, str], None]) -> None:
    fabric.nodes(nic("gpu-174", "mlx5_5", "b8ce:f603:0012:aa00"), nic("gpu-174", "mlx5_10"), nic("gpu-175", "mlx5_0"))
    fabric.start()
    fabric.scrape()
    fabric.log.flap(LEAF, HOST, "MT1")
    fabric.log.link_down(LEAF, SPINE, "MT2")
    fabric.log.threshold(116, SPINE, "Transmit discards", 300, 200)
    fabric.log.unhealthy(LEAF, SPINE)
    fabric.log.switch_down("leaf-13")
    fabric.log.report(3)
    fabric.log.suppressed()
    fabric.log.write("2026-01-20 07:46:24.442 [new format]\n")
    fabric.until(lambda found: found.values[EVENTS, "events_suppressed", "603"] == 1)
    samples = fabric.scrape().samples
    text = Renderer().text(samples).decode()
    golden(text, "golden/metrics.txt")
    assert len([s for family in text_string_to_metric_families(text) for s in family.samples]) == len(samples)
    assert {sample.family for sample in samples} <= set(COLLECTOR.families)


def test_a_link_of_a_host_is_counted_with_both_its_ends_and_its_cable(fabric: Any) -> None:
    fabric.start()
    fabric.scrape()
    for _ in range(3):
        fabric.log.flap(LEAF, HOST, "MT1")
    fabric.until(lambda found: found.values[EVENTS, "link_up", "328"] == 3)
    found = fabric.scrape().values  # that one may have read the ports before the events came
    assert found[DOWN_AT_HOST] == 3
    assert found[CABLE, "link_down", "329", "MT1"] == 3


def test_a_link_between_switches_is_counted_at_each_end(fabric: Any) -> None:
    fabric.start()
    fabric.scrape()
    fabric.log.link_down(LEAF, SPINE, "MT2")
    found = fabric.until(lambda found: found.values.get((CABLE, "link_down", "329", "MT2")) == 1).values
    ends = {key[-2:]: value for key, value in found.items() if key[0] == PORT}
    assert ends == {("leaf-12", "9/1"): 1, ("spine-3", "17/1"): 1}


def test_a_port_that_is_given_by_number_is_the_one_that_was_given_by_label(fabric: Any) -> None:
    fabric.start()
    fabric.scrape()
    fabric.log.link_down(LEAF, SPINE)
    fabric.log.event(110, "WARNING", "IBPort [default(34) / Switch: leaf-12 / NA / 17]", "Symbol errors")
    fabric.log.event(110, "WARNING", "IBPort [default(34) / Switch: older-1 / NA / 17]", "Symbol errors")
    found = fabric.until(lambda found: found.values[EVENTS, "symbol_errors", "110"] == 2)
    found = fabric.scrape()
    ports = {key[-2:]: value for key, value in found.values.items() if key[:2] == (PORT, "symbol_errors")}
    assert ports == {("leaf-12", "9/1"): 1, ("older-1", "17"): 1}


def test_a_counter_is_seen_at_0_before_its_first_event(fabric: Any) -> None:
    fabric.start()
    fabric.scrape()
    fabric.log.flap(LEAF, HOST, "MT1")
    seen = []
    fabric.until(lambda found: (seen.append(found.values.get(DOWN_AT_HOST)), seen[-1] == 1)[1])
    assert [value for value in dict.fromkeys(seen) if value is not None] == [0, 1]


def test_counts_go_on_after_a_restart_without_a_step_back_to_0(fabric: Any) -> None:
    fabric.start()
    fabric.scrape()
    fabric.log.flap(LEAF, HOST, "MT1")
    fabric.until(lambda found: found.values.get(DOWN_AT_HOST) == 1)
    fabric.stop()
    fabric.log.flap(LEAF, HOST, "MT1")
    fabric.start()
    found = fabric.until(lambda found: DOWN_AT_HOST in found.values)
    assert found.values[DOWN_AT_HOST] >= 1
    fabric.until(lambda found: found.values[DOWN_AT_HOST] == 2)


def test_every_link_that_is_known_has_its_counter_at_0(fabric: Any) -> None:
    fabric.log.link_up(LEAF, HOST, "MT1")
    fabric.start()
    found = fabric.scrape().values
    assert found[DOWN_AT_HOST] == 0
    assert found[CABLE, "link_down", "329", "MT1"] == 0


def test_rails_are_known_without_ufm(fabric: Any, nic: Any) -> None:
    fabric.nodes(*(nic("gpu-001", f"mlx5_{index}") for index in (10, 2, 0)), nic("gpu-002", "mlx5_3"))
    fabric.log.path.unlink()
    fabric.start()
    found = fabric.until(lambda found: any(key[0] == INFO for key in found.values))
    assert sorted(key[1:] for key in found.values if key[0] == INFO) == [
        ("gpu-001", "mlx5_0", "1", "0", "", "", ""),
        ("gpu-001", "mlx5_10", "1", "2", "", "", ""),
        ("gpu-001", "mlx5_2", "1", "1", "", "", ""),
        ("gpu-002", "mlx5_3", "1", "0", "", "", ""),
    ]
    assert found.downs == {"event_log": "no_ufm"}
    assert not any(key[0].startswith("pyrometer_ufm") for key in found.values)


def test_a_card_that_is_missing_does_not_shift_the_rails_of_the_others(fabric: Any, nic: Any) -> None:
    whole = [nic(node, f"mlx5_{index}") for node in ("gpu-001", "gpu-002") for index in range(4)]
    fabric.nodes(*whole, *(nic("gpu-003", f"mlx5_{index}") for index in (0, 2, 3)), nic("head", "mlx5_7"))
    fabric.start()
    found = fabric.until(lambda found: any(key[0] == INFO for key in found.values))
    rails = {(key[1], key[2]): key[4] for key in found.values if key[0] == INFO}
    assert [rails["gpu-003", f"mlx5_{index}"] for index in (0, 2, 3)] == ["0", "2", "3"]
    assert rails["head", "mlx5_7"] == "0"


def test_a_port_is_joined_by_its_guid_or_else_by_its_name(fabric: Any, nic: Any) -> None:
    fabric.nodes(nic("gpu-174.dc1.example", "ibp24s0", "b8ce:f603:0012:aa00"), nic("gpu-175.dc1.example", "mlx5_1"))
    fabric.log.link_up(LEAF, HOST, "MT1")
    fabric.log.link_up(SPINE, HostPort("GPU-175", "HCA-2", "ffff000000000001"), "MT2")
    fabric.log.link_up(SwitchPort("leaf-13", 2), HostPort("storage-1", "mlx5_0", "ffff000000000002"))
    fabric.start()
    found = fabric.until(lambda found: sum(key[0] == INFO for key in found.values) == 3)
    assert sorted(key[1:] for key in found.values if key[0] == INFO) == [
        ("gpu-174.dc1.example", "ibp24s0", "1", "0", "leaf-12", "9/1", "MT1"),
        ("gpu-175.dc1.example", "mlx5_1", "1", "0", "spine-3", "17/1", "MT2"),
        ("storage-1", "mlx5_0", "1", "", "leaf-13", "1/2", ""),
    ]


def test_a_cable_that_is_moved_takes_its_count_along_and_leaves_the_port(fabric: Any, nic: Any) -> None:
    fabric.nodes(nic("gpu-174", "mlx5_5", "b8ce:f603:0012:aa00"))
    fabric.start()
    fabric.scrape()
    fabric.log.flap(LEAF, HOST, "MT1")
    fabric.log.flap(SwitchPort("leaf-12", 18), HOST, "MT1")
    found = fabric.until(lambda found: found.values.get((CABLE, "link_down", "329", "MT1")) == 2).values
    assert found[DOWN_AT_HOST] == 1
    assert (INFO, "gpu-174", "mlx5_5", "1", "0", "leaf-12", "9/2", "MT1") in found


def test_what_ufm_suppresses_itself_is_said_for_an_hour(fabric: Any) -> None:
    fabric.start()
    fabric.scrape()
    fabric.log.suppressed()
    fabric.until(lambda found: found.values["pyrometer_ufm_events_suppressed",] == 1)
    fabric.log.suppressed("Event suppression has been stopped.")
    fabric.until(lambda found: found.values["pyrometer_ufm_events_suppressed",] == 0)


@pytest.mark.parametrize("reason", ["connection_refused", "deadline"])
def test_without_prometheus_the_log_is_served_all_the_same(fabric: Any, reason: str) -> None:
    fabric.prometheus.error = PartError(reason, "no")
    fabric.log.link_up(LEAF, HOST, "MT1")
    fabric.start()
    found = fabric.until(lambda found: "ports" in found.downs)
    assert found.downs == {"ports": reason}
    assert (INFO, "gpu-174", "mlx5_5", "1", "", "leaf-12", "9/1", "MT1") in found.values


def test_a_log_that_may_not_be_read_is_said(fabric: Any) -> None:
    fabric.log.path.unlink()
    fabric.log.path.mkdir()
    fabric.start()
    assert fabric.scrape().downs["event_log"] == "eisdir"


def test_a_state_that_cannot_be_kept_costs_no_metrics(fabric: Any) -> None:
    (fabric.state / "ufm.json.new").mkdir()
    fabric.start()
    found = fabric.until(lambda found: "state" in found.downs)
    assert found.downs["state"] == "eisdir"
    assert found.values[EVENTS, "link_down", "329"] == 0
