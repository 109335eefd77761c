"""The committed boards are the generated ones, pass all checks, and ask only for what exists."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.families import labels_by_metric
from tools.board_lint import finding, run
from tools.board_lint.interpolation import builtin_variables, interpolate

from pyrometer_alerting.incidents.metrics import FAMILIES as OF_ALERTING
from pyrometer_dashboards import promql
from pyrometer_dashboards.main import main, rendered
from pyrometer_simulator.stack import find_stack
from pyrometer_simulator.stack.promtool import groups_of

PROJECT = Path(__file__).parents[2]
COMMITTED = PROJECT / "dashboards" / "json"
# Fixed for good: other programs and people's bookmarks lead to them.
UIDS = {
    "alerts.json": "pyrometer-alerts",
    "clusters.json": "pyrometer-clusters",
    "collectives.json": "pyrometer-collectives",
    "compare-runs.json": "pyrometer-compare-runs",
    "fabric.json": "pyrometer-fabric",
    "gpu-detail.json": "pyrometer-gpu",
    "gpu-matrix.json": "pyrometer-gpu-matrix",
    "hosts.json": "pyrometer-hosts",
    "job.json": "pyrometer-job",
    "node.json": "pyrometer-node",
    "nodes-and-spares.json": "pyrometer-nodes",
    "overview.json": "pyrometer-overview",
    "racks.json": "pyrometer-racks",
    "reliability.json": "pyrometer-reliability",
    "stack-health.json": "pyrometer-stack-health",
    "throttling.json": "pyrometer-throttling",
    "training-run.json": "pyrometer-training-run",
}


@pytest.fixture(scope="module")
def boards() -> dict[str, dict[str, Any]]:
    return {name: json.loads(text) for name, text in rendered().items()}


def expressions(boards: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Yield every query of panels and annotations, with its variables unfilled."""
    for board in boards.values():
        yield from (target["expr"] for panel in finding.panels(board) for target in finding.targets(panel))
        yield from (mark["target"]["expr"] for mark in board["annotations"]["list"] if "target" in mark)


def test_the_committed_boards_are_the_generated_ones() -> None:
    committed = {path.name: path.read_text() for path in COMMITTED.glob("*.json")}
    assert committed == rendered(), "run: make docs"


def test_all_checks_pass(boards: dict[str, dict[str, Any]]) -> None:
    context = run.load_context(PROJECT, boards, {})
    assert context.metrics
    assert context.runbooks
    assert [each.line() for each in run.findings(boards, context, ours=True)] == []


def test_uids_never_change(boards: dict[str, dict[str, Any]]) -> None:
    assert {name: board["uid"] for name, board in boards.items()} == UIDS


def test_the_overview_links_to_every_board_or_the_menu_does(boards: dict[str, dict[str, Any]]) -> None:
    for board in boards.values():
        menu = board["links"][0]
        assert menu["tags"] == ["pyrometer"]
        assert menu["includeVars"]
        assert menu["keepTime"]
        assert "pyrometer" in board["tags"]


def test_every_query_names_metrics_that_are_defined(boards: dict[str, dict[str, Any]]) -> None:
    known = set(labels_by_metric())
    for path in (PROJECT / "alert_rules").glob("*.rules.yaml"):
        for group in groups_of(path):
            known |= {rule["record"] for rule in group["rules"] if "record" in rule}
    known |= {f"{family.name}{end}" for family in OF_ALERTING for end in ("", "_sum", "_count")}
    named = {
        inner.name for expr in expressions(boards) for inner, _ in promql.parse(expr).walk() if inner.kind == "selector"
    }
    ours = {name for name in named if re.match(r"(\w+:)?(pyrometer|DCGM)", name)}
    assert ours
    assert ours - known == set()


def test_every_query_is_promql(boards: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    values = {"mfu": "pyrometer_train_batch_mfu_ratio", "steps": "pyrometer_train_batch_step", **builtin_variables(600)}
    asked = [interpolate(expr, values | {"points": "60"}) for expr in expressions(boards)]
    # A rule can't record a range; without its brackets the selector is the same one.
    asked = [re.sub(r"^(\w+\{[^}]*\})\[60s\]$", r"\1", expr) for expr in asked]
    rules = [{"record": f"board:query:{number}", "expr": query} for number, query in enumerate(asked)]
    path = tmp_path / "queries.rules.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "boards", "rules": rules}]}))
    promtool = find_stack().promtool
    checked = subprocess.run([promtool, "check", "rules", path], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


def test_panels_stand_in_the_order_in_which_grafana_saves_them(boards: dict[str, dict[str, Any]]) -> None:
    for board in boards.values():
        places = [(panel["gridPos"]["y"], panel["gridPos"]["x"]) for panel in board["panels"]]
        assert places == sorted(places)


def test_every_square_of_the_map_leads_to_its_node(boards: dict[str, dict[str, Any]]) -> None:
    (chart,) = [panel for panel in finding.panels(boards["gpu-matrix.json"]) if panel["type"] == "xychart"]
    assert (
        "var-node=${__data.fields.node}&var-gpu=${__data.fields.gpu}"
        in chart["fieldConfig"]["defaults"]["links"][0]["url"]
    )
    # Grafana asks the field that is a point's y for its links.
    of_y = {each["y"]["matcher"]["options"] for each in chart["options"]["series"]}
    changed = [each for each in chart["fieldConfig"]["overrides"] if each["matcher"]["options"] in of_y]
    assert len(changed) == len(of_y)
    assert "links" not in {one["id"] for each in changed for one in each["properties"]}


def test_an_unwritable_folder_ends_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert main(["build", str(tmp_path / "file" / "boards")]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "can't write" in said


@pytest.mark.parametrize("arguments", [["--unknown"], [], ["build"], ["nothing"]])
def test_wrong_arguments_end_in_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_rules_and_boards_are_written_for_other_names_of_jobs(tmp_path: Path) -> None:
    rules = Path(__file__).resolve().parents[2] / "alert_rules"
    others = [f"--job-{job}=once-{job}" for job in ("batches", "cluster", "host", "alerting")]
    assert main(["rules", str(rules), str(tmp_path / "rules"), "--job-node=gpu-exporters", *others]) == 0
    assert main(["build", str(tmp_path / "boards"), "--job-node=gpu-exporters", *others]) == 0
    ours = [*rules.glob("*.rules.yaml"), *(rules.parent / "dashboards/json").glob("*.json")]
    theirs = [*(tmp_path / "rules").iterdir(), *(tmp_path / "boards").iterdir()]
    assert {path.name for path in theirs} == {path.name for path in ours}
    before, after = ("".join(path.read_text() for path in sorted(paths, key=_name)) for paths in (ours, theirs))
    assert after.replace("gpu-exporters", "node").replace('job="once-', 'job="') == before
    assert not re.search(r'job="(node|batches|cluster|host|alerting)"', after.replace("\\", ""))


def test_boards_are_written_for_another_kind_of_data_source(tmp_path: Path) -> None:
    kind = "victoriametrics-metrics-datasource"
    assert main(["build", str(tmp_path), f"--datasource={kind}"]) == 0
    board = json.loads((tmp_path / "overview.json").read_text())
    chosen = next(one for one in board["templating"]["list"] if one["name"] == "datasource")
    assert (chosen["type"], chosen["query"]) == ("datasource", kind)
    assert {panel["datasource"]["type"] for panel in board["panels"] if "targets" in panel} == {kind}
    assert "prometheus" not in re.findall(r'"(?:type|query)": "(\w+)"', (tmp_path / "overview.json").read_text())


def _name(path: Path) -> str:
    return path.name


def test_rules_are_written_as_objects_of_the_prometheus_operator(tmp_path: Path) -> None:
    rules = Path(__file__).resolve().parents[2] / "alert_rules"
    flags = ["--prometheus-rules", "--namespace=gpu", "--label=release=mon", "--label=team=hpc"]
    assert main(["rules", str(rules), str(tmp_path), *flags]) == 0
    listed = yaml.safe_load((tmp_path / "kustomization.yaml").read_text())["resources"]
    assert set(listed) == {path.name.replace(".rules", "") for path in rules.glob("*.rules.yaml")}
    for name in listed:
        found = yaml.safe_load((tmp_path / name).read_text())
        assert (found["kind"], found["metadata"]["namespace"]) == ("PrometheusRule", "gpu")
        assert {"release": "mon", "team": "hpc"}.items() <= found["metadata"]["labels"].items()
        wanted = yaml.safe_load((rules / name.replace(".yaml", ".rules.yaml")).read_text())["groups"]
        assert found["spec"]["groups"] == wanted


def test_a_label_without_a_value_ends_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules = str(Path(__file__).resolve().parents[2] / "alert_rules")
    assert main(["rules", rules, str(tmp_path), "--prometheus-rules", "--label=release"]) == 2
    assert "--label: 'release' is not NAME=VALUE" in capsys.readouterr().err


@pytest.mark.parametrize(("flag", "source"), [('--job-node=a"b', "alert_rules"), ("--job-node=a", "docs")])
def test_what_cannot_be_written_as_rules_ends_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flag: str, source: str
) -> None:
    folder = Path(__file__).resolve().parents[2] / source
    assert main(["rules", str(folder), str(tmp_path / "rules"), flag]) == 2
    assert capsys.readouterr().err.count("\n") == 1
