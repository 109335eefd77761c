"""Every query of every board has an answer on a real Prometheus that scrapes a simulated cluster with planted faults.

The fleet's names and labels are held to those that the exporters define, so an answer here is an answer there.
"""

from __future__ import annotations

import json
import re
import time
import urllib.parse
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from tools.board_lint import claims, finding
from tools.board_lint.interpolation import builtin_variables, interpolate

from pyrometer_dashboards.main import rendered
from pyrometer_exporters.framework.metrics import Family
from pyrometer_exporters.node.nccl.families import RANK_BEHIND, STANDSTILL
from pyrometer_exporters.node.nccl.inspector import BANDWIDTH
from pyrometer_simulator import http_call
from pyrometer_simulator.fleet import training_metrics
from pyrometer_simulator.fleet.feed import Feed
from pyrometer_simulator.fleet.plan import Plan, planted
from pyrometer_simulator.http_server import HttpServer, Request, Responder, Response
from pyrometer_simulator.stack import StackError, find_stack
from pyrometer_simulator.stack.prometheus import running
from pyrometer_simulator.victoria import shipped, single
from pyrometer_simulator.victoria.cluster import Cluster

RULES = Path(__file__).parents[2] / "alert_rules"
# One of them is spare.
NODES = 12
# Windows of two minutes have to fill; on a busy machine rules come late.
LONGEST_SECONDS = 480.0
# Nodes must have answered for a while before the faults: an Xid of a node that is new may be an old one.
HEALTHY_SECONDS = 20.0


@pytest.fixture(scope="module")
def victoria(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a VictoriaMetrics that our Prometheus writes to; empty where there is none."""
    program, folder = single.program(), tmp_path_factory.mktemp("victoria")
    if program is None:
        yield ""
        return
    # Recordings that were written a moment ago are asked for at once.
    with single.running(program, folder, "-search.latencyOffset=0s", "-inmemoryDataFlushInterval=1s") as url:
        yield url


@pytest.fixture(scope="module")
def victoria_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster | None]:
    """The cluster version, with the flags of compose.scale.yaml, which our Prometheus writes to, or None."""
    if shipped.missing():
        yield None
        return
    cluster = Cluster(tmp_path_factory.mktemp("victoria") / "cluster", {"alertmanager": 9}, {})
    try:
        cluster.start_stores()
        yield cluster
    finally:
        cluster.close()


@pytest.fixture(params=["single", "cluster"])
def store(request: pytest.FixtureRequest, victoria: str, victoria_cluster: Cluster | None) -> str:
    """The address of VictoriaMetrics, the single and the cluster version."""
    if request.param == "single":
        return victoria or pytest.skip(single.HOW_TO_GET)
    return pytest.skip(shipped.missing()) if victoria_cluster is None else victoria_cluster.url


@pytest.fixture(scope="module")
def prometheus(
    tmp_path_factory: pytest.TempPathFactory, victoria: str, victoria_cluster: Cluster | None
) -> Iterator[str]:
    """The address of a Prometheus that scrapes the simulated cluster each second and evaluates our rules as often."""
    try:
        stack = find_stack(lambda _: None)
    except StackError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("prometheus")
    soon = pytest.MonkeyPatch()
    # By default one comes every 20 minutes, and few tests would see it.
    soon.setattr(training_metrics, "CHECKPOINT_SECONDS", 60)
    # All rules each second make much garbage beside few samples: it is collected when there is five times as much.
    soon.setenv("GOGC", "400")
    plan = _plan(time.time() + HEALTHY_SECONDS)
    servers = [HttpServer(respond).start() for respond in (Feed(plan).respond, _collectives(time.time()))]
    feed, nccl = (server.server_port for server in servers)
    written = [f"{victoria}/api/v1/write"] if victoria else []
    written += [victoria_cluster.write_url] if victoria_cluster else []
    with running(stack.prometheus, lambda port: _configure(folder, feed, nccl, port, written), folder / "log") as url:
        yield url
    for server in servers:
        server.stop()
    soon.undo()


def _collectives(since: float) -> Responder:
    """Answer with a run whose collectives lose bandwidth after half a minute and that waits for a rank all the time."""
    job = {"run": "moe-1t", "job_id": "4711"}
    behind = {"comm": "0x1", "rank": "3", "host": "10.0.0.42", "gpu": "3", "state": "behind", "certain": "yes"}
    kind = {"comm_ranks": "32", "comm_nodes": "4", "collective": "AllReduce", "size_class": "16-256MiB"}

    def respond(_: Request) -> Response:
        age = time.time() - since
        samples = (
            (STANDSTILL, job, 30 + age),
            (RANK_BEHIND, job | behind, 1),
            (BANDWIDTH, job | kind | {"stat": "median"}, 350e9 if age < 30 else 100e9),
        )
        return Response("".join(_line(*sample) for sample in samples).encode(), content_type="text/plain")

    return respond


def _line(family: Family, labels: dict[str, str], value: float) -> str:
    assert set(labels) == set(family.labels)
    everywhere = {"cluster": "atlas", "node": "gpu-001"}
    return f"{family.name}{{{','.join(f'{k}={v!r}' for k, v in (everywhere | labels).items())}}} {value}\n".replace(
        "'", '"'
    )


def _plan(since: float) -> Plan:
    """Every fault planted, a batch lost each minute, and a run that is known from its log."""
    faults = replace(planted(NODES, since), lost_batch=60)
    return Plan(nodes=NODES, named=("lovelace",), faults=faults, line=2)


def _configure(folder: Path, feed: int, nccl: int, port: int, written: list[str]) -> list[str]:
    """Our rules at a second's pace: their windows of minutes would else take minutes to fill. Prometheus's flags."""
    (folder / "rules").mkdir(exist_ok=True)
    for path in RULES.glob("*.rules.yaml"):
        text = re.sub(r"^    interval: \w+$", "    interval: 1s", path.read_text(), flags=re.MULTILINE)
        # A single event must be new for several evaluations, on a busy machine too.
        ago = "30s" if path.name == "fleet_history.rules.yaml" else "4s"
        text = re.sub(r"offset (5m|1m|30s|2m|10m)\b", f"offset {ago}", text)
        # 20 steps in two minutes are one in four seconds; tags are looked for in the same time as their parts.
        text = text.replace("offset 4s >= 20", "offset 4s >= 1")
        text = re.sub(r"(pyrometer_train_batch_tag\{[^}]*\})\[2m\]", r"\1[4s]", text)
        (folder / "rules" / path.name).write_text(text)
    targets = {"honor_labels": True, "static_configs": [{"targets": [f"127.0.0.1:{feed}"]}]}
    own = {"job_name": "prometheus", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
    collectives = {"job_name": "nccl", "honor_labels": True, "static_configs": [{"targets": [f"127.0.0.1:{nccl}"]}]}
    batches = {"job_name": "batches", "metrics_path": "/batches", **targets}
    jobs = [{"job_name": "feed", **targets}, batches, collectives, own]
    timing = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
    whole: dict[str, Any] = {"global": timing, "rule_files": ["rules/*.yaml"], "scrape_configs": jobs}
    if written:
        whole["remote_write"] = [{"url": url} for url in written]
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(whole))
    return [f"--config.file={folder}/prometheus.yaml", f"--storage.tsdb.path={folder}/data", "--log.level=error"]


def _queries() -> Iterator[tuple[str, str, str, str, bool]]:
    """(board, panel, query's letter, expression filled in, instant) of every query of every board, some nodes, runs."""
    faults = planted(NODES)
    assert faults.hot
    assert faults.flapping
    assert faults.lost
    for name, text in rendered().items():
        for panel in finding.panels(json.loads(text)):
            for target in finding.targets(panel):
                places = (faults.hot, faults.flapping, faults.lost)
                for (node, index), run in product(places, ("llama3-70b", "moe-1t")):
                    values = {
                        **builtin_variables(600), "__rate_interval": "10s", "cluster": "atlas", "clusters": ".+",
                        "node": node, "gpu": ".+", "index": str(index), "job": "4711",
                        "serial": f"16549{int(node[-3:]) - 1:05d}{index:02d}", "rack": "r001",
                        "switch": ".+", "other": "llama3-70b", "jobs": ".*", "other_jobs": ".*",
                        "run": ".+" if "$run" in text and name == "overview.json" else run,
                        "points": "600", "mfu": "pyrometer_train_batch_mfu_ratio",
                        "steps": "pyrometer_train_batch_step", "what": "temperature",
                        "arrange": "number", "slowed": ".+",
                    }  # fmt: skip
                    # Failures that are ten minutes apart would take as long.
                    expr = interpolate(target["expr"], values).replace(":5m]", ":1s]").replace(">= 600)", ">= 1)")
                    yield name, panel["title"], target["refId"], expr, bool(target.get("instant"))


def _besides() -> Iterator[tuple[str, str, str, str, bool]]:
    """The same of what boards ask beside their panels, in marks and for choices.

    A mark of what is new (a deploy, a restart) has nothing to mark here: for these, the present series are queried.
    """
    faults = planted(NODES)
    assert faults.hot
    values = {
        **builtin_variables(600),
        "cluster": "atlas",
        "node": faults.hot[0],
        "index": str(faults.hot[1]),
        "run": "llama3-70b",
        "job": "4711",
        "job_id": "4711",
        "other": "llama3-70b",
        "other_job": "4711",
        "jobs": ".*",
    }
    for name, text in rendered().items():
        board = json.loads(text)
        for mark in board["annotations"]["list"]:
            if "target" in mark:
                yield (
                    name,
                    f"mark {mark['name']}",
                    "A",
                    interpolate(mark["target"]["expr"].partition(" unless ")[0], values),
                    True,
                )
        for variable in board["templating"]["list"]:
            if call := re.fullmatch(r"(label_values|query_result)\((.*)\)", variable.get("definition", "")):
                inner, _, label = call[2].rpartition(", ") if call[1] == "label_values" else (call[2], "", "")
                asked = f'group by ({label}) ({inner}) unless group by ({label}) ({inner.rstrip("}")}, {label}=""}})'
                expr = asked if label else f"({inner})"
                yield name, f"choice {variable['name']}", "A", interpolate(expr, values), True


def _ask(address: str, path: str, **asked: object) -> dict[str, Any]:
    url = f"{address}/api/v1/{path}?{urllib.parse.urlencode(asked)}"
    try:
        reply = http_call.call(url)
    except OSError as error:
        return {"status": "error", "error": str(error)}
    return json.loads(reply.body) if reply.status == 200 else {"status": "error", "error": reply.body.decode()}


def _has_answer(address: str, expr: str, instant: bool) -> bool:
    now = time.time()
    if instant:
        answer = _ask(address, "query", query=expr, time=now)
    else:
        # A window's value is drawn at its middle: such a line ends a minute ago where no value is carried to its end.
        answer = _ask(address, "query_range", query=expr, start=now - 90, end=now, step=5)
    assert answer["status"] == "success" or "refused" in answer["error"], f"{expr}: {answer['error']}"
    return bool(answer.get("data", {}).get("result"))


@pytest.mark.e2e
@pytest.mark.timeout(900)
def test_every_query_has_an_answer(prometheus: str) -> None:
    assert _unanswered(prometheus) == []


def _unanswered(address: str) -> list[str]:
    """The queries that had no answer until the end, by board and panel."""
    waiting: dict[tuple[str, ...], list[tuple[str, bool]]] = {}
    for *where, expr, instant in (*_queries(), *_besides()):
        waiting.setdefault(tuple(where), []).append((expr, instant))
    deadline = time.monotonic() + LONGEST_SECONDS
    while waiting and time.monotonic() < deadline:
        time.sleep(2)
        waiting = {
            where: asked
            for where, asked in waiting.items()
            if not any(_has_answer(address, expr, instant) for expr, instant in asked)
        }
    return [" / ".join(where) for where in sorted(waiting)]


@pytest.mark.e2e
@pytest.mark.timeout(900)
def test_every_query_has_an_answer_with_victoriametrics_as_the_data_source(prometheus: str, store: str) -> None:
    only_here = set(_unanswered(store))
    waiting = {" / ".join(where): (expr, instant) for *where, expr, instant in (*_queries(), *_besides())}
    assert sorted(each for each in only_here if _has_answer(prometheus, *waiting[each])) == []


@pytest.mark.e2e
@pytest.mark.timeout(900)
def test_lost_gpus_and_those_of_a_dead_node_are_marks_of_their_own_with_victoriametrics(
    prometheus: str, store: str
) -> None:
    assert prometheus
    faults, where = planted(NODES), ("gpu-matrix.json", "GPU map: every GPU against its rail", "A")
    assert faults.lost
    expected = {(faults.lost[0], str(faults.lost[1]))} | {(faults.dead, str(gpu)) for gpu in range(8)}
    (expr,) = {each[3] for each in _queries() if each[:3] == where}
    deadline = time.monotonic() + LONGEST_SECONDS
    gone: set[tuple[str, str]] = set()
    while gone != expected and time.monotonic() < deadline:
        time.sleep(1)
        rows = _ask(store, "query", query=expr, time=time.time()).get("data", {}).get("result", [])
        # From a million on a square has the colour of what is missing.
        gone = {(row["metric"]["node"], row["metric"]["gpu"]) for row in rows if float(row["value"][1]) >= 1e6}
    assert gone == expected


@pytest.mark.e2e
@pytest.mark.timeout(900)
def test_no_panel_says_that_all_is_well_of_a_cluster_that_victoriametrics_does_not_know(
    prometheus: str, store: str
) -> None:
    assert prometheus
    found = set()
    for panel in (panel for text in rendered().values() for panel in finding.panels(json.loads(text))):
        values = {**builtin_variables(600), "cluster": "nowhere", "clusters": "nowhere", "node": "gpu-999",
                  "run": "none", "gpu": ".+", "jobs": ".*", "other_jobs": ".*",
                  "points": "600", "mfu": "pyrometer_train_batch_mfu_ratio", "steps": "pyrometer_train_batch_step",
                  "what": "temperature", "arrange": "number", "slowed": "gpu-999"}  # fmt: skip
        answers = []
        for target in finding.targets(panel):
            answer = _ask(store, "query", query=interpolate(target["expr"], values), time=time.time())
            rows = answer.get("data", {}).get("result", [])
            answers.append([(row["metric"], float(row["value"][1])) for row in rows if "value" in row])
        found |= {f"{panel['title']}: {words}" for words in claims.claims(panel, answers)}
    # Alertmanager and the alerting service are there once, for all clusters.
    of_the_service = {"Open incidents: who did it, and why: no open incident",
                      "Open incidents of all clusters: no open incident",
                      "Calls of Slack, by outcome: ok",  # so they are named, as others are rate_limited
                      "Incidents by harm in the range: no loss known"}  # fmt: skip
    assert found <= of_the_service


@pytest.mark.e2e
@pytest.mark.timeout(900)
def test_a_planted_lost_gpu_fires_its_own_alert_and_is_named(prometheus: str) -> None:
    node, gpu = planted(NODES).lost or ("", 0)
    culprit = {("GpuLost", node, str(gpu)), ("GpuXidCritical", node, str(gpu))}
    deadline = time.monotonic() + LONGEST_SECONDS
    named: set[tuple[str, ...]] = set()
    while not culprit <= named and time.monotonic() < deadline:
        time.sleep(1)
        answer = _ask(prometheus, "query", query='ALERTS{alertstate="firing", alertname=~"GpuLost|GpuXidCritical"}')
        rows = [each["metric"] for each in answer.get("data", {}).get("result", [])]
        named = {(row["alertname"], row["node"], row.get("gpu", "")) for row in rows}
    assert named == culprit


# The queries of dcgm-exporter's dashboard (12239 on grafana.com), with its variables $instance and $gpu.
OF_12239 = (
    'DCGM_FI_DEV_GPU_TEMP{instance=~"$instance", gpu=~"$gpu"}',
    'avg(DCGM_FI_DEV_GPU_TEMP{instance=~"$instance", gpu=~"$gpu"})',
    'DCGM_FI_DEV_POWER_USAGE{instance=~"$instance", gpu=~"$gpu"}',
    'sum(DCGM_FI_DEV_POWER_USAGE{instance=~"$instance", gpu=~"$gpu"})',
    'DCGM_FI_DEV_SM_CLOCK{instance=~"$instance", gpu=~"$gpu"} * 1000000',
    'DCGM_FI_DEV_GPU_UTIL{instance=~"$instance", gpu=~"$gpu"}',
    'DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{instance=~"$instance", gpu=~"$gpu"}',
    'DCGM_FI_DEV_FB_USED{instance=~"$instance", gpu=~"$gpu"}',
)


@pytest.mark.e2e
@pytest.mark.timeout(900)
def test_the_queries_of_dashboard_12239_have_answers(prometheus: str) -> None:
    waiting = [interpolate(expr, {"instance": "gpu-002:9935", "gpu": "0|1"}) for expr in OF_12239]
    deadline = time.monotonic() + LONGEST_SECONDS
    while waiting and time.monotonic() < deadline:
        time.sleep(1)
        waiting = [expr for expr in waiting if not _has_answer(prometheus, expr, instant=True)]
    assert waiting == []
