"""`pyrometer-doctor --stack`: what somebody's own Prometheus, Alertmanager and Grafana lack, with the next step."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from pyrometer_exporters.commands.doctor import main as doctor
from pyrometer_exporters.commands.doctor import stack
from pyrometer_simulator.http_server import HttpServer, Request, Response, json_response
from pyrometer_simulator.stack import Stack
from pyrometer_simulator.stack.prometheus import running

RULES = Path(__file__).resolve().parents[4] / "alert_rules"
NOW = 1_700_000_000.0
HEALTHY_UP = [
    {"job": job, "instance": f"gpu-{number}:9935", "cluster": "c1", "node": f"gpu-{number}", "value": "1"}
    for job in ("node", "batches")
    for number in (1, 2)
] + [
    {"job": job, "instance": f"mon:{port}", "cluster": "c1", "value": "1"}
    for job, port in (("cluster", 9936), ("host", 9100), ("alerting", 9937))
]


# As Alertmanager shows it: addresses are hidden, and each has the name of a file.
CONFIGURATION = """
route:
  receiver: "null"
  routes:
  - receiver: pyrometer
    matchers:
    - component=~"gpu|host|nic|stack|train"
    continue: false
receivers:
- name: "null"
- name: old-slack
  slack_configs:
  - channel: '#ops'
- name: pyrometer
  webhook_configs:
  - url: <secret>
    url_file: ""
"""
NULL_FIRST = CONFIGURATION.replace(
    "  routes:\n", '  routes:\n  - receiver: "null"\n    matchers:\n    - alertname="Watchdog"\n'
)
# kube-prometheus-stack's, of its values.yaml.
INHIBITIONS = """
inhibit_rules:
- {source_matchers: [severity="critical"], target_matchers: ['severity=~"warning|info"'], equal: [namespace, alertname]}
- {source_matchers: [alertname="InfoInhibitor"], target_matchers: [severity="info"], equal: [namespace]}
"""


def fired(name: str, receiver: str, by: str = "", **labels: str) -> dict[str, Any]:
    """Return an alert as Alertmanager has it; ``by`` is the fingerprint of what inhibits it."""
    status = {"state": "suppressed" if by else "active", "inhibitedBy": [by] if by else [], "silencedBy": []}
    return {
        "fingerprint": name, "labels": {"alertname": name, **labels}, "receivers": [{"name": receiver}],
        "status": status,
    }  # fmt: skip


class FakeStack:
    """Answers for all four services, in the shapes of Prometheus 3, Alertmanager 0.33 and Grafana 12."""

    def __init__(self) -> None:
        self.up: list[dict[str, str]] = [dict(each) for each in HEALTHY_UP]
        self.build = {"version": "3.5.0", "revision": "8be3a9560fbdd18a94dedec4b747c35178177202"}
        self.scraped = 15.0
        self.batches = (300, 300)
        self.flags = ""
        self.groups: list[dict[str, Any]] = [
            {"name": "pyrometer_gpu", "interval": 15, "evaluationTime": 0.1, "rules": [{"name": "A", "health": "ok"}]},
            {
                "name": "pyrometer_stack",
                "interval": 15,
                "rules": [
                    {"name": "Watchdog", "type": "alerting", "health": "ok", "state": "firing", "query": "vector(1)"}
                ],
            },
            {"name": "theirs", "interval": 15, "evaluationTime": 99, "rules": [{"name": "B", "health": "err"}]},
        ]
        self.alertmanagers = [{"url": "http://am:9093/api/v2/alerts"}]
        self.routed = [fired("Watchdog", "pyrometer", component="stack")]
        self.original = CONFIGURATION
        self.heartbeat = f"{stack.HEARTBEAT} {NOW - 30}\n"
        self.boards = [{"uid": "pyrometer-overview"}, {"uid": "pyrometer-node"}]
        self.token = ""
        self.broken: dict[str, Response] = {}

    def respond(self, request: Request) -> Response:
        if request.path in self.broken:
            return self.broken[request.path]
        if request.path == "/api/search" and self.token and self.token not in request.headers.get("Authorization", ""):
            return Response(b"no", 401)
        if request.path == "/-/ready":
            return Response(b"ready\n")
        if request.path == "/flags":
            return Response(self.flags.encode(), 200 if self.flags else 404)
        if request.path == "/metrics":
            return Response(f'# HELP x\n{self.heartbeat}a{{b="1 2"}} 3\n'.encode())
        return json_response(self.document(request))

    def document(self, request: Request) -> Any:
        return {
            "/api/v1/status/buildinfo": lambda: {"data": self.build},
            "/api/v1/query": lambda: {
                "status": "success",
                "data": {"result": self.answer(unquote(request.query["query"]))},
            },
            "/api/v1/rules": lambda: {"data": {"groups": self.groups}},
            "/api/v1/alertmanagers": lambda: {"data": {"activeAlertmanagers": self.alertmanagers}},
            "/api/v2/status": lambda: {"versionInfo": {"version": "0.28"}, "config": {"original": self.original}},
            "/api/v2/alerts": lambda: self.routed,
            "/api/health": lambda: {"version": "12.2.0"},
            "/api/search": lambda: self.boards,
        }[request.path]()

    def answer(self, query: str) -> list[dict[str, Any]]:
        if "pyrometer_train_batch" in query:
            value = self.batches["count_over_time" in query]
            return [{"metric": {}, "value": [NOW, str(value)]}] if value else []
        if query.startswith("topk"):
            return [{"metric": {"instance": "gpu-1:9935"}, "value": [NOW, "1"]}]
        if query.endswith("[10m]"):
            return [{"metric": {}, "values": [[NOW - self.scraped * ago, "1"] for ago in (3, 2, 1)]}]
        if query.startswith("count"):
            jobs = [each["job"] for each in self.up]
            return [{"metric": {"job": job}, "value": [NOW, str(jobs.count(job))]} for job in dict.fromkeys(jobs)]
        job = query.partition('job="')[2].partition('"')[0]
        lacking = "cluster" if 'cluster=""' in query else "node" if 'node=""' in query else ""
        found = [each for each in self.up if each["job"] == job]
        found = [each for each in found if (not each.get(lacking) if lacking else each["value"] == "0")]
        return [{"metric": each, "value": [NOW, each["value"]]} for each in found]


@pytest.fixture(autouse=True)
def own_logging(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyrometer_kit.logs.set_up", lambda *_: None)  # it is for a whole process


@pytest.fixture
def fake() -> Iterator[tuple[FakeStack, stack.Stack]]:
    answers = FakeStack()
    with HttpServer(answers.respond) as server:
        yield answers, stack.Stack(server.url, server.url, server.url, "", server.url)


def said(chosen: stack.Stack) -> list[str]:
    return [str(finding) for finding in stack.check(chosen, lambda: NOW)]


def missing(chosen: stack.Stack) -> list[str]:
    return [line.removeprefix("missing  ") for line in said(chosen) if line.startswith("missing")]


def test_a_whole_stack_has_nothing_missing(fake: tuple[FakeStack, stack.Stack]) -> None:
    assert said(fake[1]) == [
        "ok       Prometheus 3.5.0 answers",
        "ok       job node: 2 targets answer",
        "ok       job node is scraped each 15 s",
        "ok       job batches: 2 targets answer",
        "ok       job batches is scraped each 15 s",
        *(f"ok       job {job}: 1 targets answer" for job in ("cluster", "host", "alerting")),
        "ok       all batches of the last 5 minutes are kept (300)",
        "ok       2 rules in 2 groups are evaluated",
        "ok       groups with alerts: 1 each 15 s, so a fault is an alert after at most 30 s in most groups",
        "ok       Prometheus sends alerts to http://am:9093/api/v2/alerts",
        "ok       Alertmanager 0.28 answers",
        "ok       Alertmanager has the Watchdog alert, for pyrometer",
        "ok       the alerting service is ready, and Watchdog arrived 30 s ago",
        "ok       Grafana 12.2.0 answers",
        "ok       Grafana has 2 of our boards",
    ]


def test_another_name_of_the_job_is_named_with_those_that_there_are(fake: tuple[FakeStack, stack.Stack]) -> None:
    answers, chosen = fake
    for each in answers.up:
        each["job"] = each["job"].replace("node", "gpu-nodes")
    (line,) = missing(chosen)
    assert line.startswith(
        "Prometheus has no target of job node (it has alerting, batches, cluster, gpu-nodes, host): rename yours, or"
    )
    assert missing(chosen._replace(node_job="gpu-nodes")) == []


def test_targets_that_are_down_or_lack_a_label_are_named(fake: tuple[FakeStack, stack.Stack]) -> None:
    answers, chosen = fake
    answers.up[0]["value"] = "0"
    answers.up[1]["cluster"] = ""
    assert [line.partition(": ")[2].partition(":")[0] for line in missing(chosen)] == [
        "1 of 2 targets are down (gpu-1", "1 of 2 targets have no label cluster (gpu-2",
    ]  # fmt: skip


def test_rules_that_are_absent_fail_or_are_late_are_told(fake: tuple[FakeStack, stack.Stack]) -> None:
    answers, chosen = fake
    ours = answers.groups[0]
    ours["rules"] = [{"name": "A", "health": "err", "lastError": "many-to-many"}]
    ours["evaluationTime"] = 20.0
    assert [line.partition(": give")[0] for line in missing(chosen)] == [
        "1 of 2 rules fail (A: many-to-many): fix each one by its error",
        "1 groups of rules take longer than their interval (pyrometer_gpu)",
    ]
    answers.groups = []
    assert missing(chosen)[0].startswith("Prometheus has none of our rules: add alert_rules/")


def test_a_heartbeat_that_does_not_arrive_is_followed_along_its_way(fake: tuple[FakeStack, stack.Stack]) -> None:
    answers, chosen = fake
    answers.alertmanagers, answers.routed, answers.heartbeat = [], [], ""
    del answers.groups[1]
    assert [line.partition(":")[0] for line in missing(chosen)] == [
        "the heartbeat Watchdog does not fire",
        "Prometheus sends alerts nowhere",
        "Alertmanager has no Watchdog alert from Prometheus",
        "the alerting service is ready, but no Watchdog alert has ever arrived",
    ]


@pytest.mark.parametrize(("changed", "lacking"), [
    ({"heartbeat": f"{stack.HEARTBEAT} {NOW - 3600}\n"},
     "the last Watchdog reached the alerting service 3600 s ago: look at Alertmanager's log$"),
    ({"original": NULL_FIRST, "routed": [fired("Watchdog", "null", component="stack")]},
     r'Alertmanager routes Watchdog to null by route 1 \(alertname="Watchdog"\), and no receiver there has a webhook'),
    ({"boards": []}, "Grafana has none of our boards, or this account can't see them"),
    ({"up": [each for each in HEALTHY_UP if each["job"] == "node"]},
     ".*scrape the same targets a second time with metrics_path /batches$"),
], ids=["an old heartbeat", "another receiver", "no boards", "no batches"])  # fmt: skip
def test_what_is_lacking_is_named_with_the_next_step(
    fake: tuple[FakeStack, stack.Stack], changed: dict[str, Any], lacking: str
) -> None:
    vars(fake[0]).update(changed)
    (line,) = missing(fake[1])
    assert re.match(lacking, line)


def test_jobs_that_not_everybody_has_are_a_note_with_their_use(fake: tuple[FakeStack, stack.Stack]) -> None:
    answers, chosen = fake
    answers.up[-2]["job"] = "node-exporter"
    del answers.up[-1]
    note = (
        "note     jobs without a target, and what is absent without them: host: disks and pressure; alerting: incidents"
    )
    assert [line for line in said(chosen) if line.startswith(note)]
    renamed = said(chosen._replace(other_jobs={**stack.OTHER_JOBS, "host": "node-exporter"}))
    assert "ok       job node-exporter: 1 targets answer" in renamed


THERMAL = {
    "name": "GpuThrottledThermal", "type": "alerting", "health": "ok", "state": "inactive", "duration": 30,
    "query": "gpu:pyrometer_gpu_thermal_slowdown:last1m > 0.05",
}  # fmt: skip
SLOWDOWN = {
    "name": "gpu:pyrometer_gpu_thermal_slowdown:last1m", "type": "recording", "health": "ok",
    "query": 'sum by (cluster, node) (rate(pyrometer_gpu_clock_event_seconds_total{reason=~"a}b|c"}[1m]))',
}  # fmt: skip
OFTEN = {
    "name": "NodeBootsOften", "type": "alerting", "health": "ok", "query": "count_over_time(up[7d:5m]) > 3",
}  # fmt: skip
WATCHDOG: dict[str, Any] = {"name": "Watchdog", "type": "alerting", "health": "ok", "state": "firing"}
HIDDEN = [fired("Watchdog", "pyrometer", by="InfoInhibitor", severity="info"), fired("InfoInhibitor", "null")]


@pytest.mark.parametrize(("changed", "line"), [
    ({"scraped": 60.0}, r"note     job node is scraped each 60 s: what happens is read up to 60 s later: give the job"),
    ({"scraped": 60.0, "groups": [{"name": "pyrometer_gpu", "interval": 15, "rules": [SLOWDOWN, THERMAL, WATCHDOG]}]},
     r"missing  1 alerts can't fire, .*: 1m of pyrometer_gpu_clock_event_seconds_total holds 1 of the 2 scrapes that"),
    ({"groups": [{"name": "pyrometer_gpu", "interval": 60, "rules": [SLOWDOWN, THERMAL, WATCHDOG, OFTEN]}]},
     r"note     2 alerts come up to 60 s late, as rarely as they are evaluated \(GpuThrottledThermal, Watchdog\)"),
    ({"groups": [{"name": "pyrometer_stack", "interval": 15, "rules": [{**WATCHDOG, "state": "inactive"}]}]},
     r"note     the heartbeat Watchdog is loaded and was not evaluated yet: ask again in a minute$"),
    ({"batches": (227, 4)}, r"missing  4 of 227 batches of the last 5 minutes are kept: docs/alerts.md#trainbatch"),
    ({"batches": (227, 4), "flags": '-dedup.minScrapeInterval="15s"\n-httpListenAddr=":8428"\n'},
     r"missing  4 of 227 batches .*, as -dedup.minScrapeInterval=15s keeps one sample of each 15s: set -dedup.*=1ms"),
    ({"batches": (0, 0), "flags": '-dedup.minScrapeInterval="15s"\n'},
     r"missing  VictoriaMetrics keeps one sample of each 15s"),
    ({"flags": '-dedup.minScrapeInterval="1ms"\n'}, r"ok       all batches of the last 5 minutes"),
    ({"build": {"version": "2.24.0"}, "flags": '-httpListenAddr=":8428"\n'},
     r"note     VictoriaMetrics hides the newest 30s from queries .*: set -search.latencyOffset=0s$"),
    ({"build": {"version": "2.24.0"}, "groups": []},
     r"note     rules: not asked, as VictoriaMetrics evaluates none: give --rules.url, vmalert's address$"),
    ({"build": {"version": "2.24.0"}}, r"ok       VictoriaMetrics answers$"),
    ({"build": {"application": "Grafana Mimir", "version": "3.1.0"}}, r"ok       Grafana Mimir 3.1.0 answers$"),
    ({"broken": {"/api/v1/alertmanagers": Response(b"unsupported path", 400)}},
     r"note     where alerts are sent: not told by this server: whatever evaluates the rules sends them$"),
    ({"broken": {"/api/v2/status": Response(b"404", 404)}},
     r"missing  Alertmanager: .*/api/v2/status answers 404 Not Found \(its address ends with its prefix: --web.route"),
    ({"original": ""}, r"note     Alertmanager shows no configuration"),
    ({"original": CONFIGURATION + INHIBITIONS},
     r'note     an inhibition .* hides our alerts of one node .* hides severity=~"warning\|info", equal: namespace'),
    ({"original": CONFIGURATION + INHIBITIONS, "routed": HIDDEN},
     r'missing  the heartbeat Watchdog is inhibited by InfoInhibitor \(inhibit_rules: alertname="InfoInhibitor" hides'),
    ({"original": CONFIGURATION.replace("matchers:", 'matchers:\n    - namespace="pyrometer"')},
     r"missing  Alertmanager routes our alerts \(component gpu, host, nic, stack, train\) to null by the default"),
])  # fmt: skip
def test_how_it_is_run_is_told_with_its_cost(
    fake: tuple[FakeStack, stack.Stack], changed: dict[str, Any], line: str
) -> None:
    vars(fake[0]).update(changed)
    lines = said(fake[1])
    assert [each for each in lines if re.match(line, each)], "\n".join(lines)


def test_rules_of_vmalert_are_asked_where_they_are_evaluated(fake: tuple[FakeStack, stack.Stack]) -> None:
    answers, chosen = fake
    with HttpServer(FakeStack().respond) as vmalert:
        answers.build, answers.groups = {"version": "2.24.0"}, []
        answers.broken = {"/api/v1/alertmanagers": Response(b"unsupported path", 400)}
        assert missing(chosen._replace(rules=vmalert.url)) == []
        assert "ok       2 rules in 2 groups are evaluated" in said(chosen._replace(rules=vmalert.url))
    assert missing(chosen) == [], "the page says no more than what is there"


def test_a_token_is_sent_and_its_lack_is_named(fake: tuple[FakeStack, stack.Stack]) -> None:
    answers, chosen = fake
    answers.token = "Bearer glsa_1"
    (line,) = missing(chosen)
    assert "/api/search?type=dash-db&limit=500&tag=pyrometer answers 401" in line
    assert line.endswith("put user and password into the address, or pass a token")
    assert missing(chosen._replace(grafana_token="glsa_1")) == []
    answers.token = base64.b64encode(b"me:pass word").decode()
    assert missing(chosen._replace(grafana=chosen.grafana.replace("//", "//me:pass%20word@"))) == []


def test_a_part_that_fails_hides_no_other_and_tells_no_password(fake: tuple[FakeStack, stack.Stack]) -> None:
    answers, chosen = fake
    lines = missing(chosen._replace(prometheus="http://me:secret-word@127.0.0.1:1"))
    assert len(lines) == 1
    assert lines[0].startswith("Prometheus: http://127.0.0.1:1: ")
    assert "secret-word" not in lines[0]
    answers.broken = {
        "/api/v1/status/buildinfo": Response(b"<html>log in</html>"),
        "/api/v2/status": json_response({"status": "other"}),
        "/-/ready": Response(b"starting", 503),
    }
    place = chosen.prometheus.removeprefix("http://")
    assert missing(chosen) == [
        f"Prometheus: {place}/api/v1/status/buildinfo: not JSON (a login page in front of it?)",
        "Alertmanager: an unexpected answer: is it another program?",
        f"alerting service: {chosen.alerting}/-/ready answers 503 Service Unavailable",
    ]


def test_parts_without_an_address_are_not_asked(fake: tuple[FakeStack, stack.Stack]) -> None:
    notes = [line for line in said(stack.Stack(fake[1].prometheus)) if line.startswith("note")]
    assert notes == [
        "note     Alertmanager: not asked: give --alertmanager.url",
        "note     alerting service: not asked: give --alerting.url",
        "note     Grafana: not asked: give --grafana.url",
    ]


def test_the_command_prints_lines_or_json_and_its_status_says_whether_all_is_there(
    fake: tuple[FakeStack, stack.Stack], capsys: pytest.CaptureFixture[str]
) -> None:
    url = fake[1].prometheus
    assert doctor.main(["--stack", f"--prometheus.url={url}"]) == 0
    assert capsys.readouterr().out.startswith("ok       Prometheus 3.5.0 answers\n")
    fake[0].groups = []
    assert doctor.main(["--stack", "--json", f"--prometheus.url={url}"]) == 1
    levels = {each["level"] for each in json.loads(capsys.readouterr().out)["findings"]}
    assert levels == {"ok", "note", "missing"}


@pytest.mark.parametrize(("flags", "expected"), [
    (["--stack"], "--stack needs --prometheus.url"),
    (["--stack", "--prometheus.url=localhost:9090"], "--prometheus.url: expected an address such as http"),
    (["--stack", "--prometheus.url=http://a", "--grafana.token-file=/none"], "--grafana.token-file=/none"),
])  # fmt: skip
def test_a_wrong_flag_is_one_line(flags: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor.main(flags) == 2
    error = capsys.readouterr().err
    assert (error.count("\n"), expected in error) == (1, True)


def test_a_real_prometheus_with_our_rules_and_nothing_else_is_told_so(stack: Stack, tmp_path: Path) -> None:
    from pyrometer_exporters.commands.doctor import stack as checked

    (tmp_path / "rules").symlink_to(RULES)
    configuration = "global: {evaluation_interval: 1s}\nrule_files: [rules/*.rules.yaml]\n"
    (tmp_path / "p.yaml").write_text(configuration, encoding="utf-8")
    flags = (f"--config.file={tmp_path / 'p.yaml'}", f"--storage.tsdb.path={tmp_path / 'data'}")
    with running(stack.prometheus, lambda _port: flags, tmp_path / "log") as url:
        lines = [str(finding) for finding in checked.check(checked.Stack(url))]
    assert lines[0].startswith("ok       Prometheus ")
    assert "missing  Prometheus has no target of job node (it has none at all)" in lines[1]
    assert any(line.startswith("ok       ") and " rules in " in line for line in lines)
    assert any(line.startswith("missing  Prometheus sends alerts nowhere") for line in lines)
