"""The pages for other stacks: their blocks are good for the real programs, where these are at hand."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from pyrometer_dashboards.main import main as dashboards
from pyrometer_exporters.commands.doctor import main as doctor
from pyrometer_exporters.commands.doctor.stack_alertmanager import _inhibitions, _routes
from pyrometer_kit.alertmanager_config import parse
from pyrometer_simulator.stack import Stack
from pyrometer_simulator.stack.promtool import objections

ROOT = Path(__file__).parents[2]
HOWTO = ROOT / "docs/howto"
PAGES = ("kube-prometheus-stack", "victoriametrics", "hosted-prometheus")
BLOCK = re.compile(r'^```\w+(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
RULES = ROOT / "alert_rules"

# The chart's own route and rules, of its values.yaml; lists of ours replace these, maps are merged.
CHART = """
inhibit_rules:
  - source_matchers: ['severity = critical']
    target_matchers: ['severity =~ warning|info']
    equal: [namespace, alertname]
  - {source_matchers: ['severity = warning'], target_matchers: ['severity = info'], equal: [namespace, alertname]}
  - {source_matchers: ['alertname = InfoInhibitor'], target_matchers: ['severity = info'], equal: [namespace]}
  - {target_matchers: ['alertname = InfoInhibitor']}
route:
  group_by: [namespace]
  receiver: "null"
  routes: [{receiver: "null", matchers: ['alertname = "Watchdog"']}]
receivers: [{name: "null"}]
"""
# As the operator renders our chart's AlertmanagerConfig with the strategy None: before the routes that are there.
OURS = {"receiver": "pyrometer", "matchers": ['component=~"gpu|host|nic|stack|train"'], "continue": True}
RECEIVER = {"name": "pyrometer", "webhook_configs": [{"url": "http://pyrometer-alerting:9937/api/v1/alertmanager"}]}


def blocks(page: str) -> dict[str, str]:
    """Return the blocks of a page by title; those without are commands."""
    return dict(BLOCK.findall((HOWTO / f"{page}.md").read_text(encoding="utf-8")))


def configuration(inhibitions: Any) -> dict[str, Any]:
    chart = yaml.safe_load(CHART)
    route = chart["route"] | {"routes": [OURS, *chart["route"]["routes"]]}
    return chart | {"route": route, "receivers": [*chart["receivers"], RECEIVER], "inhibit_rules": inhibitions}


def test_with_the_charts_own_inhibitions_ours_would_be_hidden() -> None:
    found = parse(yaml.safe_dump(configuration(yaml.safe_load(CHART)["inhibit_rules"])))
    assert len(list(_inhibitions(found))) == 1
    info = {"alertname": "Watchdog", "component": "stack", "severity": "info"}
    assert found.inhibition(info, {"alertname": "InfoInhibitor", "namespace": ""}) is not None


def test_kube_prometheus_stacks_values_let_our_alerts_and_the_heartbeat_through(stack: Stack, tmp_path: Path) -> None:
    values = yaml.safe_load(blocks("kube-prometheus-stack")["kube-prometheus-stack.yaml"])
    text = yaml.safe_dump(configuration(values["alertmanager"]["config"]["inhibit_rules"]))
    (tmp_path / "am.yaml").write_text(text, encoding="utf-8")
    done = subprocess.run(
        [*stack.amtool_command, "check-config", str(tmp_path / "am.yaml")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = parse(text)
    assert [*_inhibitions(found), *_routes(found)] == []
    for severity in ("none", "info", "warning"):
        labels = {"alertname": "Watchdog", "component": "stack", "severity": severity}
        assert found.routes(labels)[0].receiver == "pyrometer"
        assert found.inhibition(labels, {"alertname": "InfoInhibitor", "severity": "none"}) is None
    theirs = {"alertname": "KubePodCrashLooping", "severity": "info", "namespace": "a"}
    assert found.inhibition(theirs, {"alertname": "InfoInhibitor", "namespace": "a"}), "theirs stay as they were"


def test_our_values_are_settings_of_our_chart() -> None:
    schema = json.loads((ROOT / "compose/helm/pyrometer/values.schema.json").read_text(encoding="utf-8"))
    jsonschema.validate(yaml.safe_load(blocks("kube-prometheus-stack")["values.yaml"]), schema)


@pytest.fixture
def pasted(tmp_path: Path) -> Path:
    for title, text in blocks("victoriametrics").items():
        if title.endswith(".yaml"):
            (tmp_path / title).write_text(text, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("title", ["vmsingle", "vmalert"])
def test_victoriametrics_takes_its_blocks(pasted: Path, title: str) -> None:
    program, *flags = shlex.split(blocks("victoriametrics")[title].replace("\\\n", " "))
    if shutil.which(program) is None:
        pytest.skip(f"no {program} on PATH: go install github.com/VictoriaMetrics/VictoriaMetrics/app/{program}@latest")
    flags = [flag.replace("alert_rules/", f"{RULES}/") for flag in flags]
    done = subprocess.run([program, *flags, "-dryRun"], cwd=pasted, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_vmalerts_notifier_gives_a_cluster_to_those_without_alone(stack: Stack, pasted: Path) -> None:
    """The relabelling is Prometheus': its own program checks the same block."""
    relabelling = yaml.safe_load((pasted / "notifier.yaml").read_text())["alert_relabel_configs"]
    assert relabelling == [
        {"source_labels": ["cluster"], "regex": "", "target_label": "cluster", "replacement": "prod-a"}
    ]
    (pasted / "p.yaml").write_text(yaml.safe_dump({"alerting": {"alert_relabel_configs": relabelling}}))
    assert objections(stack.promtool, "check", "config", pasted / "p.yaml") == ""


def test_the_operators_scrape_is_our_charts(pasted: Path) -> None:
    scrape = yaml.safe_load(blocks("victoriametrics")["batches, VMServiceScrape"])
    (endpoint,) = scrape["spec"]["endpoints"]
    ours = yaml.safe_load((pasted / "scrape.yaml").read_text())["scrape_configs"][1]
    assert (endpoint["path"], endpoint["params"]) == (ours["metrics_path"], ours["params"])
    assert endpoint["honorTimestamps"] is ours["honor_timestamps"] is True
    assert {"job", "node", "cluster"} == {each["targetLabel"] for each in endpoint["relabelConfigs"]}


def test_mimir_takes_the_rules_as_the_page_writes_them(tmp_path: Path) -> None:
    first, load = blocks("hosted-prometheus")["rules"].splitlines()
    flags = first.replace("alert_rules", str(RULES)).replace("mimir-rules", str(tmp_path / "rules")).split()
    assert dashboards(flags[1:]) == 0
    groups = [
        group for path in (tmp_path / "rules").glob("*.yaml") for group in yaml.safe_load(path.read_text())["groups"]
    ]
    assert max(len(group["rules"]) for group in groups) <= 20
    assert len(groups) <= 60, "some are left for others"
    assert load.startswith("mimirtool rules load mimir-rules/*.yaml --address=")
    if shutil.which("mimirtool"):
        files = [str(path) for path in (tmp_path / "rules").glob("*.yaml")]
        done = subprocess.run(["mimirtool", "rules", "check", *files], capture_output=True, text=True, check=False)
        assert "invalid" not in done.stdout + done.stderr


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_have_flags_that_exist(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = (HOWTO / f"{page}.md").read_text(encoding="utf-8")
    known = ""
    for program, arguments in (
        (doctor.main, ["--help"]),
        (dashboards, ["build", "--help"]),
        (dashboards, ["rules", "--help"]),
    ):
        with pytest.raises(SystemExit):
            program(arguments)
        known += capsys.readouterr().out
    for command in re.findall(r"pyrometer-(?:doctor|dashboards) [^`]*", text):
        flags = re.findall(r"--[a-z.-]+[a-z]", command.replace("\\\n", " ").partition("\n")[0])
        assert [flag for flag in flags if flag not in known] == []
