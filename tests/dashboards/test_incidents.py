"""An incident planted among healthy neighbours is shown by the panels meant for it, which name exactly the culprit.

The panel's own expression runs over the project's own rules, in promtool.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.dashboards.planted import (
    GPU,
    INCIDENTS,
    NODES,
    PORT,
    UNLINKED,
    Series,
    Shown,
    answer,
    expression,
    gives,
    where,
)
from tools.board_lint.interpolation import interpolate

from pyrometer_dashboards.main import rendered

GAP = '{cluster="c1", node="gpu-042", run="r", job_id="7", attempt="1", rank="3", stage="0", gpu="3"%s}'
STRAGGLING = "rank:pyrometer_train_spare_gap:with_gpu" + GAP % ""
NAMED = "rank:pyrometer_train_spare_gap:with_gpu" + GAP % ', at="gpu-042/3/3", who="gpu-042 GPU 3 rank 3"'
HERE = "rank:pyrometer_train_spare_gap:with_gpu" + GAP % ', at="3/3", who="rank 3, GPU 3"'
MISSING = f"gpu:pyrometer_gpu_up:missing{{{GPU}}}"
STEPS = 'gpu:pyrometer_gpu_deviation:steps{cluster="c1", node="gpu-042", gpu="3", what="%s", size="%s", unit="%s"}'
WORST = STEPS.replace(":steps", ":worst")
ANSWERS = 'job="node", cluster="c1", node="gpu-042", instance="gpu-042:9935"'


def throttled(at: str, who: str) -> str:
    return f'gpu:pyrometer_gpu_quantity:now{{{GPU}, what="throttled", at="{at}", who="{who}"}}'


def fires(alert: str, severity: str, component: str, more: str) -> Shown:
    """The board of alerts must name the part of an alert."""
    urgency = ("critical", "warning", "info").index(severity)
    names = f'alertname="{alert}", severity="{severity}", urgency="{urgency}", component="{component}"'
    labels = f'{{{names}, cluster="c1", {more}}}'
    beyond = f'* 0 + 1 and on (alertname) ALERTS{{alertname="{alert}"}}'
    return Shown("alerts", "Firing now, with the part that is meant", labels, 1, beyond, frame=UNLINKED)


RAS = 'cluster="c1", node="gpu-041", run="r", job_id="77"'
HANGS = {
    f"pyrometer_nccl_standstill_seconds{{{RAS}}}": "0x60 0+10x60",
    f'pyrometer_nccl_rank_behind{{{RAS}, comm="0x1", rank="3", host="10.0.0.42", gpu="3", state="behind", '
    'certain="yes"}': "_x62 1x58",
    'pyrometer_node_address_info{cluster="c1", node="gpu-042", address="10.0.0.42"}': "1x120",
}
SLOW_NETWORK = {
    f'pyrometer_nccl_bus_bandwidth_bytes_per_second{{{RAS}, comm_ranks="32", comm_nodes="4", collective="AllReduce", '
    'size_class="16-256MiB", stat="median"}': "350e9x60 100e9x60"
}
KIND = (
    'cluster="c1", run="r", job_id="77", comm_ranks="32", comm_nodes="4", collective="AllReduce", '
    'size_class="16-256MiB"'
)
AWAITED = '{run="r", job_id="77", node="gpu-042", gpu="3", rank="3", state="behind", certain="yes"}'
EXACTLY = "* 0 + 1"
POINTS = {"run": "r", "steps": "pyrometer_train_batch_step"}
MONTH = {"steps": "none", "__range_s": "2592000", "__interval": "30s"}
CULPRITS: dict[str, tuple[Series, list[Shown]]] = {
    "one rank that a collective waits for": (
        HANGS,
        [
            Shown("overview", "Ranks behind in collectives", AWAITED, 1),
            Shown("training-run", "Ranks behind in collectives", AWAITED, 1, variables={"run": "r"}),
            Shown("overview", "Jobs that launch no collective", '{cluster="c1", run="r", job_id="77"}', 1, EXACTLY),
            Shown("training-run", "No collective launched for", "{}", 1, EXACTLY, {"run": "r"}),
        ],
    ),
    "collectives that lose bandwidth": (
        SLOW_NETWORK,
        [
            Shown("overview", "Collectives below their best", f"{{{KIND}}}", 1, EXACTLY),
            Shown(
                "training-run",
                "Bandwidth, median rank",
                f"comm:pyrometer_nccl_bus_bandwidth:median5m{{{KIND}}}",
                100e9,
                variables={"run": "r"},
            ),
        ],
    ),
    "a throttled GPU": (
        INCIDENTS["a throttled GPU"],
        [
            Shown("overview", "Throttled", throttled("gpu-042/3", "gpu-042 GPU 3"), 0.8),
            Shown(
                "overview", "GPUs furthest from their rail", WORST % ("throttled", "0.05", "of the time"), 16, "> 10"
            ),
            Shown("throttling", "GPUs throttled now", 'cluster:pyrometer_gpu_throttled:count{cluster="c1"}', 1),
            Shown("throttling", "Worst GPU now", throttled("gpu-042/3", "gpu-042 GPU 3"), 0.8),
            Shown(
                "throttling",
                "GPUs that lost time in the range",
                '{node="gpu-042", gpu="3", reason="hw_thermal"}',
                1,
                EXACTLY,
            ),
            Shown(
                "throttling",
                "The ten worst, over time",
                f'gpu:pyrometer_gpu_clock_event_seconds:rate1m{{{GPU}, reason="hw_thermal"}}',
                0.8,
            ),
            Shown("throttling", "Lowest clocks against the rail", WORST % ("clock", "-100", "MHz"), 7.8, "> 1"),
            Shown(
                "gpu-matrix",
                "Node x GPU: steps from the rail's median",
                '{node="gpu-042", gpu="3"}',
                4.125,
                "> 1",
                {"what": "temperature"},
            ),
            Shown("gpu-matrix", "Worst 12", WORST % ("temperature", "8", "°C"), 4.125, "> 1", {"what": "temperature"}),
            Shown(
                "gpu-matrix",
                "GPU map: every GPU against its rail",
                f'{{{GPU}, arrange="number", x="3168", y_48="-8750", unit="MHz", size="-100"}}',
                7.8,
                "> 1",
                {"what": "clock", "arrange": "number"},
            ),
            Shown("node", "Worst GPU, throttled", throttled("3", "GPU 3"), 0.8),
            Shown(
                "node", "Steps from the rail's median", STEPS % ("clock", "-100", "MHz"), 7.8, "> 5 < 10", {"gpu": ".+"}
            ),
            Shown(
                "training-run",
                "Throttled GPUs of the run",
                f'gpu:pyrometer_gpu_clock_event_seconds:rate1m{{{GPU}, reason="hw_thermal"}}',
                0.8,
                variables={"run": "r"},
            ),
            fires("GpuThrottledThermal", "critical", "gpu", 'node="gpu-042", gpu="3", uuid="u-gpu-042-3"'),
        ],
    ),
    "a flapping rail": (
        INCIDENTS["a flapping rail"],
        [
            Shown(
                "fabric",
                "Ports that lost their link in the range",
                '{node="gpu-042", device="mlx5_3", port="1", rail="3"}',
                1,
                EXACTLY,
            ),
            Shown(
                "fabric", "Worst port, 10 min", f'{{{PORT}, at="gpu-042/mlx5_3/1", who="gpu-042 mlx5_3/1"}}', 1, EXACTLY
            ),
            Shown("fabric", "Losses by rail and switch", '{rail="3"}', 1, EXACTLY),
            Shown(
                "fabric",
                "Losses over time, worst ports",
                '{node="gpu-042", device="mlx5_3", port="1"}',
                1,
                EXACTLY,
                {"__interval": "5m"},
            ),
            Shown("overview", "Links that were lost", f"{{{PORT}}}", 1, EXACTLY),
            Shown("training-run", "Links of the run that were lost", f"{{{PORT}}}", 1, EXACTLY, {"run": "r"}),
            Shown("node", "Links lost", '{who="mlx5_3"}', 1, EXACTLY, frame="group by (who) (%s)"),
            Shown("node", "Link losses", f"{{{PORT}}}", 4, variables={"__interval": "1m"}),
            Shown(
                "gpu-matrix",
                "Worst 12",
                '{cluster="c1", node="gpu-042", gpu="3", rail="3", what="links", size="1", unit="events in 10 min"}',
                1,
                "> bool 1 > 0",
                {"what": "links"},
            ),
            fires("NicLinkFlapping", "critical", "nic", 'node="gpu-042", device="mlx5_3", port="1"'),
        ],
    ),
    "a straggler": (
        INCIDENTS["a straggler"],
        [
            Shown("overview", "Straggler", NAMED, 0.2, variables={"run": ".+"}),
            Shown("training-run", "All wait for", NAMED, 0.2, variables={"run": "r"}),
            Shown("training-run", "Ranks that the others wait for", STRAGGLING, 0.2, "> 0.05", {"run": "r"}),
            Shown("node", "What the node's ranks cost the others", STRAGGLING, 0.2, "> 0.05"),
            Shown("node", "The others wait for", HERE, 0.2),
            fires("TrainStraggler", "warning", "train", 'node="gpu-042", run="r", job_id="7", rank="3"'),
        ],
    ),
    "a dead exporter": (
        INCIDENTS["a dead exporter"],
        [
            Shown("stack-health", "Targets that don't answer", f"up{{{ANSWERS}}}", 0),
            Shown("stack-health", "Checks, of nodes where one fails", '{node="gpu-042", check="answers"}', 0),
            Shown("overview", "GPUs without data", '{node="gpu-042"}', 2),
            Shown("gpu-matrix", "GPUs without data", '{node="gpu-042", gpu="all"}', 2),
            Shown("node", "Answers", "{}", 0),
            Shown("node", "GPUs missing", '{who="GPUs"}', 2),
            fires("NodeExporterDown", "warning", "stack", 'node="gpu-042", instance="gpu-042:9935"'),
        ],
    ),
    "a lost GPU": (
        INCIDENTS["a lost GPU"],
        [
            Shown("overview", "GPUs without data", '{node="gpu-042"}', 1),
            Shown("gpu-matrix", "GPUs without data", '{node="gpu-042", gpu="3"}', 1),
            Shown(
                "gpu-matrix",
                "Node x GPU: steps from the rail's median",
                '{node="gpu-042", gpu="3"}',
                1e6 + 1,
                "> 1",
                {"what": "temperature"},
            ),
            # Its link is well: the GPU is missing all the same.
            Shown(
                "gpu-matrix",
                "Node x GPU: steps from the rail's median",
                '{node="gpu-042", gpu="3"}',
                1e6 + 1,
                "> 1",
                {"what": "links"},
            ),
            Shown(
                "gpu-matrix",
                "Key: GPUs by steps from the rail",
                '{class="no data"}',
                1,
                'and on (class) label_replace(vector(1), "class", "no data", "", "")',
                {"what": "links"},
            ),
            Shown("stack-health", "Checks, of nodes where one fails", '{node="gpu-042", check="every GPU"}', 0, "== 0"),
            Shown(
                "stack-health",
                "What can't be read, and why",
                'node:pyrometer_down_reason:info{cluster="c1", node="gpu-042", collector="gpu", part="3", '
                'reason="gpu_is_lost"}',
                1,
            ),
            Shown("node", "GPUs missing", '{cluster="c1", node="gpu-042", gpu="3", who="GPU 3"}', 1),
            Shown(
                "node",
                "Xids in the range",
                '{gpu="3", xid="79", class="critical"}',
                1,
                EXACTLY,
                {"gpu": ".+", "__range": "20m"},
            ),
            Shown(
                "alerts",
                "When each alert fired",
                '{alertname="GpuXidCritical"}',
                3,
                'and on (alertname) ALERTS{alertname="GpuXidCritical"}',
            ),
            fires("GpuXidCritical", "critical", "gpu", 'node="gpu-042", gpu="3", uuid="u-gpu-042-3"'),
            fires("GpuLost", "critical", "gpu", 'node="gpu-042", gpu="3", uuid="u-gpu-042-3"'),
        ],
    ),
    "a lost batch": (
        INCIDENTS["a lost batch"],
        [
            Shown("training-run", "Batches lost", "{}", 1, variables={"run": "r"}),
            Shown(
                "training-run",
                "Batches seen, of those trained",
                'run:pyrometer_train_batch_points:seen_ratio10m{cluster="c1", run="r", job_id="7"}',
                1 - 1 / 40,
                variables={"run": "r"},
            ),
            Shown("stack-health", "Batches lost in 10 minutes", "{}", 1),
            # On the plot, at the batch after the gap; a month is drawn from what was recorded of each minute.
            Shown("training-run", "MFU of every batch", "{}", 1, "", POINTS, 6, "18m"),
            Shown("training-run", "MFU of every batch", "{}", 1, "", POINTS | MONTH, 6, "19m30s"),
        ],
    ),
}
# Panels of culprits are empty while all is well.
QUIET = (
    ("throttling", "GPUs that lost time in the range"),
    ("overview", "GPUs without data"),
    ("overview", "Links that were lost"),
    ("fabric", "Losses over time, worst ports"),
    ("alerts", "Firing now, with the part that is meant"),
    ("gpu-matrix", "GPUs without data"),
    ("stack-health", "Checks, of nodes where one fails"),
    ("stack-health", "What can't be read, and why"),
    ("throttling", "The ten worst, over time"),
    ("fabric", "Ports that lost their link in the range"),
    ("stack-health", "Targets that don't answer"),
)


@pytest.mark.parametrize("name", CULPRITS)
def test_the_panels_meant_for_an_incident_name_exactly_the_culprit(name: str, tmp_path: Path) -> None:
    series, panels = CULPRITS[name]
    tests = [gives(panel.asked(), (panel.labels, panel.value), at=panel.at) for panel in panels]
    assert answer(tmp_path, series, tests) == ""


def test_where_all_is_well_nobody_is_named(tmp_path: Path) -> None:
    # -1: looked, and found nothing.
    assert answer(tmp_path, {}, [gives(f"({expression(*panel)}) != -1") for panel in QUIET]) == ""


@pytest.mark.parametrize("at", ["17m45s", "18m15s"])
def test_a_lost_batch_is_marked_at_its_own_moment_only(at: str, tmp_path: Path) -> None:
    asked = expression("training-run", "MFU of every batch", 6, **POINTS)
    assert answer(tmp_path, INCIDENTS["a lost batch"], [gives(asked, at=at)]) == ""


def test_points_of_a_followed_log_say_of_how_many_steps_they_are(tmp_path: Path) -> None:
    asked = expression("training-run", "MFU of every batch", 7, run="r")
    log = {f'pyrometer_train_batch_steps{{{where(NODES[0])}, run="r", job_id="7", attempt="1"}}': "10x120"}
    assert answer(tmp_path, log, [gives(asked, ('{steps="10"}', 1))]) == ""
    assert answer(tmp_path, dict.fromkeys(log, "1x120"), [gives(asked)]) == ""


def test_a_node_that_is_gone_has_no_numbers(tmp_path: Path) -> None:
    titles = ("Steps from the rail's median", "Links lost", "Worst GPU, throttled", "The others wait for")
    tests = [gives(expression("node", title, gpu=".+")) for title in titles]
    # The fabric's own exporter goes on to know the ports.
    fabric = f'pyrometer_fabric_port_info{{{where("gpu-042")}, device="mlx5_3", port="1", rail="3", switch="leaf-1"}}'
    assert answer(tmp_path, INCIDENTS["a dead exporter"] | {fabric: "1x120"}, tests) == ""


def test_a_mark_is_the_start_of_an_alert_that_fires_and_one_that_fires_again_has_no_other(tmp_path: Path) -> None:
    board = json.loads(rendered()["throttling.json"])
    (mark,) = [each for each in board["annotations"]["list"] if each["name"] == "Critical"]
    asked = interpolate(mark["target"]["expr"], {"cluster": "c1", "__interval": "1m"})
    fires, waits = (f'alertname="{name}", severity="critical", cluster="c1"' for name in ("Fires", "Waits"))
    series = {
        f"ALERTS_FOR_STATE{{{fires}}}": "_x4 50x8 _x4 230x40",
        f'ALERTS{{{fires}, alertstate="firing"}}': "_x4 1x8 _x4 1x40",
        f"ALERTS_FOR_STATE{{{waits}}}": "50x60",
        f'ALERTS{{{waits}, alertstate="pending"}}': "1x60",
    }
    begins = gives(asked, (f"{{{fires}}}", 50_000), at="90s")
    later = [gives(asked, at=at) for at in ("150s", "255s", "330s", "10m")]
    assert answer(tmp_path, series, [begins, *later]) == ""


def test_alerts_stand_by_what_they_ask_for_and_not_by_the_name_of_their_severity(tmp_path: Path) -> None:
    order = ("critical", "warning", "info", "page")
    series = {}
    for severity in order:
        names = f'alertname="A", severity="{severity}", cluster="c1"'
        series[f"ALERTS_FOR_STATE{{{names}}}"] = "0x120"
        series[f'ALERTS{{{names}, alertstate="firing"}}'] = "1x120"
    asked = f"count by (severity, urgency) ({expression('alerts', 'Firing now, with the part that is meant')})"
    expected = [(f'{{severity="{name}", urgency="{at}"}}', 1.0) for at, name in enumerate(order)]
    assert answer(tmp_path, series, [gives(asked, *expected)]) == ""
