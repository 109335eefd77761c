"""The policy's questions to a real Prometheus: who fails for how long and with whom, what a node waits for.

VictoriaMetrics answers the same (`make test-scale`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests
from alerting_fakes import body, raw_alert

from pyrometer_alerting.incidents.alertmanager_payload import parse
from pyrometer_alerting.incidents.lifecycle import fold
from pyrometer_alerting.policy.brake import affected, is_common
from pyrometer_alerting.policy.findings import Topic, look, missing_for_return
from pyrometer_alerting.policy.rules import Policy, Rule, SlurmSettings
from pyrometer_alerting.policy.schedulers import Claim, NodeState
from pyrometer_kit.prometheus import HttpPrometheus
from pyrometer_simulator.stack.prometheus import holding
from pyrometer_simulator.victoria import single

AGO = 60.0  # promtool writes blocks, which end in the past
STEP = 15.0
FAILS = {"n1": 20.0, "n2": 5.0, "n3": 2.0, 'n"(4': 12.0}  # since so many minutes; one look each five minutes
POLICY = Policy(
    "on", clusters={"c1": SlurmSettings()},
    rules=(Rule("alert", "GpuLost", 300.0, "drain"), Rule("check", "gpu_.*", 600.0, "drain")),
)  # fmt: skip


@pytest.fixture(scope="module", params=["prometheus", pytest.param("victoria", marks=pytest.mark.e2e)])
def prometheus(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[HttpPrometheus, float]]:
    now, folder = float(round(time.time())) - AGO, tmp_path_factory.mktemp(request.param)
    opened = holding(request.getfixturevalue("stack"), folder, samples(now))
    if request.param == "victoria":
        opened = victoria(folder, now)
    with opened as url:
        asked = HttpPrometheus(url, whole=True)
        yield asked, now
        asked.close()


@contextmanager
def victoria(folder: Path, now: float) -> Iterator[str]:
    """Run a VictoriaMetrics that holds the samples."""
    program = single.program()
    if program is None:
        pytest.skip(single.HOW_TO_GET)
    with single.running(program, folder) as url:
        lines = [line.rsplit(" ", 1) for line in samples(now) if not line.startswith("#")]
        text = "".join(f"{series} {float(at) * 1000:.0f}\n" for series, at in lines)
        assert requests.post(f"{url}/api/v1/import/prometheus", data=text.encode(), timeout=20).ok
        assert requests.post(f"{url}/internal/force_flush", timeout=20).ok
        yield url


def samples(now: float) -> Iterator[str]:
    times = [now - STEP * n for n in range(240, -1, -1)]
    nodes = [*FAILS, "n5"]

    def rows(name: str, labels: str, values: list[tuple[float, float]]) -> Iterator[str]:
        for at, value in values:
            yield f'{name}{{cluster="c1",{labels}}} {value} {at}'

    for metric in ("ok", "last_run_timestamp_seconds"):
        yield f"# TYPE pyrometer_check_{metric} gauge"
        for node in nodes:
            quoted = node.replace('"', '\\"')
            looked = [(at, at - (at - now) % 300) for at in times]
            good = [float(look_at < now - 60 * FAILS.get(node, -1.0)) for _at, look_at in looked]
            values = good if metric == "ok" else [look_at for _at, look_at in looked]
            yield from rows(
                f"pyrometer_check_{metric}", f'node="{quoted}",check="gpu_count"', list(zip(times, values, strict=True))
            )
    yield "# TYPE pyrometer_check_reason_info gauge"
    for severity, check in (("warning", "gpu_count"),):
        yield from rows(
            "pyrometer_check_reason_info", f'node="n1",check="{check}",severity="{severity}"', [(at, 1) for at in times]
        )
    yield "# TYPE ALERTS gauge"
    for state, since, until in (("pending", 12, 10), ("firing", 10, 0)):
        values = [(at, 1.0) for at in times if now - 60 * since <= at <= now - 60 * until]
        yield from rows("ALERTS", f'node="n5",alertname="GpuLost",alertstate="{state}"', values)
    for name in ("timestamp_seconds", "ok"):
        yield f"# TYPE pyrometer_active_test_{name} gauge"
        values = [(at, 1.0 if name == "ok" else now - 60) for at in times]
        yield from rows(f"pyrometer_active_test_{name}", 'node="n1",test="nccl"', values)


def test_who_fails_long_enough_is_found_and_who_may_have_the_same_cause_is_counted(
    prometheus: tuple[HttpPrometheus, float],
) -> None:
    asked, now = prometheus
    change = fold(None, parse(body(raw_alert(node="n5", cluster="c1", starts_at=now - 60))).alerts, 0, now)
    assert change is not None
    found = look(POLICY, asked, [change.incident], now)
    places = {(each.node, str(each.topic)) for each in found.found}
    assert places == {("n1", "check gpu_count"), ('n"(4', "check gpu_count"), ("n5", "alert GpuLost")}
    runs = {run.node: run.since - now for run in found.runs[Topic("check", "gpu_count")]}
    assert {node: round(since / 300) for node, since in runs.items()} == {"n1": -4, "n2": -1, "n3": 0, 'n"(4': -2}
    finding = next(each for each in found.found if each.node == 'n"(4')
    nodes = affected(finding.topic, finding.since, found, {})
    assert is_common(nodes, {"c1": {}})
    assert look(POLICY, asked, [change.incident], now - 3000).found == []


def test_what_a_node_waits_for(prometheus: tuple[HttpPrometheus, float]) -> None:
    asked, now = prometheus
    n1 = NodeState("n1", in_service=False, held=True, claim=Claim(("gpu_count",), now - 900))
    n5 = NodeState("n5", in_service=False, held=True, claim=Claim(("GpuLost",), now - 900))
    waits = [missing_for_return(asked, "c1", node, tests=["nccl"], since=now - 900, now=now) for node in (n1, n5)]
    assert waits == ["check failed: gpu_count", "test not run since: nccl; alert fires: GpuLost"]


def test_its_clock_is_asked(prometheus: tuple[HttpPrometheus, float], request: pytest.FixtureRequest) -> None:
    # VictoriaMetrics answers as of 30 s ago (-search.latencyOffset), of the time as of all else.
    ago = 30.0 if "victoria" in request.node.name else 0.0
    assert abs(prometheus[0].now() + ago - time.time()) < 30
