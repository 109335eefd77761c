"""The scenario as VictoriaMetrics keeps it, vmalert judges it and the boards show it: as Prometheus does."""

from __future__ import annotations

import json
import math
import re
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.compose.containers import eventually, healthy
from tools.board_lint import finding
from tools.board_lint.interpolation import builtin_variables, interpolate

from pyrometer_dashboards.main import rendered
from pyrometer_simulator.demo.observe import Prometheus
from pyrometer_simulator.demo.topology import CLUSTER, NODES, RUN
from pyrometer_simulator.engine.site import Site
from pyrometer_simulator.http_call import call

pytestmark = [pytest.mark.e2e, pytest.mark.compose, pytest.mark.timeout(1800)]

ROOT = Path(__file__).resolve().parents[2]
EXPECTED = "run:pyrometer_train_batch_mfu_ratio:recent_per_expected"
NOT_COMPARED = (
    "gpu:pyrometer_map:", EXPECTED, 'max_over_time(node:pyrometer_node:state{cluster="$cluster"}[$__range] @ end())',
)  # fmt: skip


def test_victoriametrics_keeps_every_batch_that_prometheus_keeps(running: Site, played: dict[str, Any]) -> None:
    selector = f'pyrometer_train_batch_step{{run="{RUN}"}}[10m]'
    at = played["at"] - 20.0
    kept = {name: Prometheus(running.url(name)).samples(selector, at) for name in ("PROMETHEUS", "VICTORIA")}
    # It shows where it ended a series for a moment; Prometheus has such marks too, and hides them.
    kept["VICTORIA"] = [sample for sample in kept["VICTORIA"] if not math.isnan(sample[1])]
    steps = [int(step) for _, step in kept["VICTORIA"]]
    assert len(steps) > 500
    assert steps == list(range(steps[0], steps[-1] + 1))
    assert kept["VICTORIA"] == kept["PROMETHEUS"]


def test_vmalert_fires_what_prometheus_fires(running: Site, played: dict[str, Any]) -> None:
    def fired(name: str) -> set[frozenset[tuple[str, str]]]:
        found = Prometheus(running.url(name)).values('count_over_time(ALERTS{alertstate="firing"}[15m])', played["at"])
        # Prometheus adds its external label to alerts only, vmalert to the series ALERTS too.
        return {frozenset((k, v) for k, v in json.loads(labels).items() if k != "cluster") for labels in found}

    assert {dict(labels)["alertname"] for labels in fired("PROMETHEUS")} >= {
        "GpuThrottledThermal", "NicLinkFlapping", "TrainMfuDropped", "Watchdog",
    }  # fmt: skip
    assert fired("VICTORIA") == fired("PROMETHEUS")


def test_vmalert_evaluates_every_rule_of_every_file(running: Site, played: dict[str, Any]) -> None:
    files = [yaml.safe_load(path.read_text()) for path in (ROOT / "alert_rules").glob("*.rules.yaml")]
    written = sorted(
        rule.get("alert") or rule["record"] for file in files for group in file["groups"] for rule in group["rules"]
    )
    assert sorted(rule["name"] for rule in rules(running)) == written
    assert [(rule["name"], rule["lastError"]) for rule in rules(running) if rule["lastError"]] == []


def rules(running: Site) -> list[dict[str, Any]]:
    """All rules as vmalert has them."""
    answer = running.inside("vmalert", "wget", "-q", "-O", "-", "http://127.0.0.1:8880/api/v1/rules")
    return [rule for group in json.loads(answer)["data"]["groups"] for rule in group["rules"]]


@pytest.fixture
def cluster(running: Site, played: dict[str, Any]) -> str:
    """Where the cluster version is asked."""
    if not running.has_cluster:
        pytest.skip("Debian has only VictoriaMetrics' single version: needs vmstorage, vminsert and vmselect on PATH")
    return f"{running.url('VMSELECT')}/select/0/prometheus"


def test_the_cluster_version_keeps_every_batch_also_without_one_of_its_two(
    running: Site, played: dict[str, Any], cluster: str
) -> None:
    selector, at = f'pyrometer_train_batch_step{{run="{RUN}"}}[10m]', played["at"] - 20.0
    expected = Prometheus(running.url("PROMETHEUS")).samples(selector, at)
    assert len(expected) > 500

    def kept() -> list[tuple[float, float]]:
        return [sample for sample in Prometheus(cluster).samples(selector, at) if not math.isnan(sample[1])]

    assert kept() == expected
    for name in ("vmstorage-0", "vmstorage-1"):
        running.docker.run("kill", running.container(name))
        assert eventually(lambda: kept() == expected, 30), name
        running.person.play(f"docker compose up --detach {name}")
        assert eventually(lambda name=name: not healthy(running, [name]), 90)  # type: ignore[misc]


def test_vmalert_works_on_the_cluster_version_with_the_documented_addresses(
    running: Site, played: dict[str, Any], cluster: str
) -> None:
    text = (ROOT / "compose/.env.example").read_text(encoding="utf-8")
    addresses = re.findall(r"^#   (VICTORIA_\w+=\S+)$", text, re.MULTILINE)
    assert len(addresses) == 3
    before = time.time()
    running.person.play(f"{' '.join(addresses)} docker compose up --detach vmalert")
    fires = 'timestamp(ALERTS{alertname="Watchdog",alertstate="firing"})'
    assert eventually(lambda: max(Prometheus(cluster).values(fires).values(), default=0.0) > before)
    assert [rule["lastError"] for rule in rules(running) if rule["lastError"]] == []
    running.person.play("docker compose up --detach vmalert")


def test_vmalert_learns_what_is_expected_of_the_run_as_prometheus_does(running: Site, played: dict[str, Any]) -> None:
    """Each learns it with evaluations of a group that come every five minutes.

    VictoriaMetrics takes one more: the group's second rule does not see yet what its first one has just written.
    """
    for name in ("PROMETHEUS", "VICTORIA"):
        found = Prometheus(running.url(name))
        assert eventually(lambda found=found: found.values(f'{EXPECTED}{{run="{RUN}"}}'), 660), name  # type: ignore[misc]


def test_boards_show_of_victoriametrics_what_they_show_of_prometheus(running: Site, played: dict[str, Any]) -> None:
    """Compare each board's queries: label names that one store returns at all times, the other returns at least once.

    Both scrape at moments of their own and topk chooses freely among equals, so values are not compared. Leaves out
    the map of GPUs, which takes longer than the scenario (docs/deployment.md), the nodes that were ever out, as one
    store alone may have seen a node start, and what is expected of the run, which each learns once in five minutes.
    """
    times = [played["at"] - seconds for seconds in range(30, 150, 20)]
    different, shown = [], 0
    for board, expr, instant in queries():
        seen = [
            [shapes(running.url(name), expr, at, instant=instant) for at in times]
            for name in ("PROMETHEUS", "VICTORIA")
        ]
        for ours, theirs in (seen, seen[::-1]):
            missing = set.intersection(*ours) - set.union(*theirs)
            different += [(board, expr, missing)] if missing else []
        shown += bool(set.intersection(*seen[0]))
    assert not different, "\n".join(f"{board}: {expr}: {missing}" for board, expr, missing in different)
    assert shown > 100


def queries() -> Iterator[tuple[str, str, bool]]:
    values = {
        **builtin_variables(600), "__rate_interval": "20s", "cluster": CLUSTER, "node": NODES[2], "gpu": ".+",
        "run": RUN, "jobs": ".*",
        "points": "600", "mfu": "pyrometer_train_batch_mfu_ratio", "steps": "pyrometer_train_batch_step",
        "what": "temperature", "arrange": "number",
    }  # fmt: skip
    for name, text in rendered().items():
        assert "__name__" not in text, name
        for panel in finding.panels(json.loads(text)):
            for target in finding.targets(panel):
                if any(name in target["expr"] for name in NOT_COMPARED):
                    continue
                yield name, interpolate(target["expr"], values), bool(target.get("instant"))


def shapes(url: str, expr: str, at: float, *, instant: bool) -> set[str]:
    """Return the label names of each series in a query's answer, or the server's error.

    Leaves out the metric's name: VictoriaMetrics keeps it in the result of max_over_time, and no board uses it.
    """
    asked = {"time": at} if instant else {"start": at - 300, "end": at, "step": 5}
    path = f"query{'' if instant else '_range'}?{urllib.parse.urlencode({'query': expr, **asked})}"
    reply = call(f"{url}/api/v1/{path}")
    if reply.status != 200:
        return {f"refused: {reply.body.decode()[:300]}"}
    found = json.loads(reply.body)["data"]["result"]
    return {" ".join(sorted(one["metric"].keys() - {"__name__"})) for one in found}
