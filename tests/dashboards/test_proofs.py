"""Panels say that nothing is wrong only where the same source was read, in the whole range."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.dashboards.planted import RULES, UNLINKED, answer, expression, gives, where

WHOLE = "Open incidents: who did it, and why"
BY_HARM = "Incidents by harm in the range"
SERVICE = 'job="alerting", instance="alerting:9096"'
HEARTBEAT = {f"pyrometer_alerting_watchdog_last_seen_timestamp_seconds{{{SERVICE}}}": "0+15x120"}
EXPORTED = HEARTBEAT | {f'pyrometer_alerting_page_info{{{SERVICE}, url="http://a"}}': "1x120"}
OF_THE_STACK = f'{SERVICE}, id="1", alert="AlertingDown", severity="critical", part="unknown"'
NOTHING = ("{}", -1)


def test_an_open_incident_of_the_stack_which_has_no_cluster_is_in_the_table(tmp_path: Path) -> None:
    series = EXPORTED | {f"pyrometer_incident_start_timestamp_seconds{{{OF_THE_STACK}}}": "600x120"}
    asked = UNLINKED % expression("alerts", WHOLE)
    assert answer(tmp_path, series, [gives(asked, (f'{{{OF_THE_STACK}, urgency="0"}}', 600))]) == ""
    assert answer(tmp_path, EXPORTED, [gives(expression("alerts", WHOLE), NOTHING)]) == ""


@pytest.mark.parametrize("title", [WHOLE, BY_HARM])
def test_a_service_that_exports_no_incidents_proves_nothing(title: str, tmp_path: Path) -> None:
    assert answer(tmp_path, HEARTBEAT, [gives(expression("alerts", title))]) == ""


def test_the_loss_of_an_incident_without_a_cluster_counts(tmp_path: Path) -> None:
    series = EXPORTED | {f'pyrometer_incident_lost_gpu_hours{{{SERVICE}, id="1"}}': "2x120"}
    assert answer(tmp_path, series, [gives(expression("alerts", BY_HARM), (f'{{{SERVICE}, id="1"}}', 2))]) == ""


@pytest.mark.parametrize(("rules", "told"), [(RULES, [NOTHING]), ([], [])])
def test_no_alert_in_the_range_is_said_only_where_alerts_are_evaluated(
    rules: list[Path], told: list[tuple[str, float]], tmp_path: Path
) -> None:
    asked = expression("alerts", "Alerts in the range: how long, how often")
    series = {} if rules else {"up": "1x120"}
    assert answer(tmp_path, series, [gives(f"max({asked})", *told)], rules) == ""


def test_nothing_found_is_not_said_beside_what_another_query_found(tmp_path: Path) -> None:
    memory = f'DCGM_FI_DEV_ECC_DBE_AGG_TOTAL{{{where("gpu-042")}, gpu="3", UUID="u-gpu-042-3"}}'
    xids, errors = (expression("reliability", "GPUs that fail again", query, __range="28m") for query in (0, 1))
    tests = [
        gives(xids, at="29m"),
        gives(f"count by (node, gpu) ({errors})", ('{node="gpu-042", gpu="3"}', 1), at="29m"),
    ]
    assert answer(tmp_path, {memory: "0x20 1x70 2x29"}, tests) == ""
    # Its row has a blank label, by which Grafana groups rows.
    assert answer(tmp_path, {}, [gives(f"max({xids})", NOTHING)]) == ""


AGAIN = {
    "GPUs": ('DCGM_FI_DEV_ECC_DBE_AGG_TOTAL{%s, gpu="3", UUID="u-gpu-042-3"}', 1),
    "Ports": ('pyrometer_nic_link_down_events_total{%s, device="mlx5_3", port="1"}', 0),
}


@pytest.mark.parametrize("parts", AGAIN)
@pytest.mark.parametrize(("values", "listed"), [("0x20 4x99", False), ("0x20 1x70 2x29", True)])
def test_a_part_with_one_event_does_not_fail_again(parts: str, values: str, listed: bool, tmp_path: Path) -> None:
    series, query = AGAIN[parts]
    asked = expression("reliability", f"{parts} that fail again", query, __range="28m")
    found = [('{node="gpu-042"}', 1)] if listed else []
    tests = [gives(f"count by (node) (({asked}) > 0)", *found, at="29m")]
    # The rules of five minutes run each half minute here: an event is seen for five minutes.
    assert answer(tmp_path, {series % where("gpu-042"): values}, tests) == ""


def test_time_lost_is_what_the_counter_counted_though_rules_came_late(tmp_path: Path) -> None:
    """A GPU was slowed for 5.4 of 27 minutes; the rules ran half as often as they should."""
    own = f'{where("gpu-042")}, gpu="3", uuid="u-gpu-042-3", reason="hw_thermal"'
    # 324 s in 24 steps of 13.5 s, from the fifth minute on.
    series = {f"pyrometer_gpu_clock_event_seconds_total{{{own}}}": "0x20 0+13.5x24 324x76"}
    asked = expression("throttling", "GPUs that lost time in the range", __range="27m")
    tests = [gives(f"round({asked}, 4)", ('{node="gpu-042", gpu="3", reason="hw_thermal"}', 324), at="28m")]
    assert answer(tmp_path, series, tests) == ""
