"""The Helm chart: rendered, checked by the real schemas, and the same as the files for kustomize.

Where Helm, kubeconform or kustomize is missing, what needs it is skipped: `make chart-programs` builds them.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from tools import chart

from pyrometer_dashboards.prometheus_rules import Wrapping, wrapped
from pyrometer_simulator.yaml_loader import LOADER

ROOT = Path(__file__).resolve().parents[2]
BASE = ROOT / "compose/kubernetes"
VERSION = (ROOT / "VERSION").read_text(encoding="utf-8").strip()
# Every switch away from its default, and every option that adds something.
EVERYTHING = (
    "--set=image.registry=registry.example.org/gpu/,image.pullSecrets[0].name=pull,node.kernelLog=true",
    "--set=node.webConfig.secret=web,clusterExporter.webConfig.secret=web,alerting.webConfig.secret=web",
    "--set=alerting.slack.channel=#gpu,alerting.slack.secret=slack,alerting.slack.buttons=true",
    "--set=alerting.config.notice=TEST,alertmanagerConfig.enabled=true,monitors.host.enabled=true,node.podNames=true",
    "--set=monitors.consumers={prom-a,prom-b},monitors.endpoint.scheme=https",
    "--set=networkPolicy.from[0].namespaceSelector.matchLabels.name=ingress,boards.namespace=monitoring",
    "--set=alerting.persistence.storageClass=fast,clusterExporter.persistence.enabled=false,grafana.externalUrl=https://g",
    "--set=grafana.loki.url=http://loki:3100,grafana.loki.uid=logs",
    "--set=nodeCondition.enabled=true,nodeCondition.extraArgs={--ignore=acs},node.checks.expect.gpus=8",
    "--set=alerting.policy.mode=on,alerting.policy.clusters.cluster.kubernetes.pool=rack,alerting.secrets={desk}",
    *(
        f"--set={part}.env.HTTPS_PROXY=http://proxy:3128,{part}.podAnnotations.a=true,{part}.podLabels.c=1,"
        f"{part}.env.WORD.valueFrom.secretKeyRef.name=s,{part}.env.WORD.valueFrom.secretKeyRef.key=k,"
        f"{part}.extraVolumes[0].name=ca,{part}.extraVolumes[0].configMap.name=ca,"
        f"{part}.extraVolumeMounts[0].name=ca,{part}.extraVolumeMounts[0].mountPath=/ca"
        for part in ("node", "clusterExporter", "alerting")
    ),
    "--set=clusterExporter.priorityClassName=high,alerting.priorityClassName=high",
    *(f'--set-json={part}.affinity={{"podAntiAffinity": {{}}}}' for part in ("clusterExporter", "alerting")),
)
TWO = (
    "--set=alerting.replicas=2,alerting.storage.url=postgresql://pyrometer@db/alerting",
    "--set=alerting.storage.secret=pyrometer-database",
)
# Rules and boards are most of what is rendered: left out where a test is about neither.
BARE = "--set=rules.enabled=false,boards.enabled=false"
POLICY = "--set=alerting.policy.clusters.cluster.kubernetes.pool=rack"
LESS = (
    "--set=" + ",".join(f"{part}.enabled=false" for part in ("node", "alerting", "rules", "boards", "networkPolicy")),
)


def need(name: str) -> str:
    found = chart.program(name)
    if found is None:
        pytest.skip(f"no {name}: `make chart-programs` builds it")
    return str(found)


@cache
def template(*arguments: str) -> str:
    need("helm")
    return chart.template(*arguments)


def loaded(text: str) -> Iterator[dict[str, Any]]:
    """Yield the documents of 2 MB of YAML: libyaml takes 0.04 s, and Python 1.2 s."""
    return (each for each in yaml.load_all(text, LOADER) if each)


def rendered(*arguments: str) -> list[dict[str, Any]]:
    return list(loaded(template(*arguments)))


def named(objects: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    found = {(each["kind"], each["metadata"]["name"]): each for each in objects}
    assert len(found) == len(objects)
    return found


def values() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((chart.CHART / "values.yaml").read_text(encoding="utf-8"))
    return found


def schema() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((chart.CHART / "values.schema.json").read_text(encoding="utf-8"))
    return found


def test_the_files_for_kustomize_are_those_of_this_chart() -> None:
    """Without Helm: each names the digest of what it was rendered from."""
    for name in chart.RENDERED:
        head = (BASE / f"{name}.yaml").read_text(encoding="utf-8").partition("\n")[0]
        assert f"digest {chart.digest()}:" in head, f"{name}.yaml is stale: run `make kubernetes`"


def test_the_files_for_kustomize_are_what_helm_renders() -> None:
    need("helm")
    assert {name: (BASE / name).read_text(encoding="utf-8") for name in chart.rendered()} == chart.rendered()


def test_images_may_be_named_by_their_digests() -> None:
    digest = "sha256:" + "d" * 64
    objects = rendered(f"--set=image.digests.exporters={digest},image.registry=r.example.org")
    images = set(re.findall(r"'image': '([^']+)'", str(objects)))
    assert images == {
        f"r.example.org/pyrometer-exporters:{VERSION}@{digest}", f"r.example.org/pyrometer-alerting:{VERSION}",
    }  # fmt: skip


def test_the_chart_has_the_version_of_everything_else() -> None:
    found = yaml.safe_load((chart.CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert (found["version"], found["appVersion"]) == (VERSION, VERSION)
    kustomization = yaml.safe_load((BASE / "kustomization.yaml").read_text(encoding="utf-8"))
    assert {image["newTag"] for image in kustomization["images"]} == {VERSION}


def test_rules_and_boards_are_those_of_the_tree() -> None:
    assert (chart.CHART / "files/rules").resolve() == ROOT / "alert_rules"
    assert (chart.CHART / "files/boards").resolve() == ROOT / "dashboards/json"


def test_every_default_fits_the_schema_and_is_in_it() -> None:
    jsonschema.Draft7Validator.check_schema(schema())
    jsonschema.validate(values(), schema())

    def absent(found: dict[str, Any], known: dict[str, Any], place: str) -> list[str]:
        inner = known.get("properties")
        if inner is None:
            return []
        return [
            line
            for key, value in found.items()
            for line in ([f"{place}.{key}"] if key not in inner else absent(value, inner[key], f"{place}.{key}"))
            if isinstance(value, dict) or key not in inner
        ]

    assert absent(values(), schema(), "") == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("node.prot", 9935),
        ("node.port", 99350),
        ("cluster", ""),
        ("monitors.interval", "5"),
        ("prometheus.url", "prometheus:9090"),
        ("alerting.slack.channel", "gpu-alerts"),
        ("alerting.replicas", 2),
        ("alerting.replicas", 0),
        ("alerting.storage.url", "mysql://db/alerting"),
        ("alerting.storage.url", "postgresql://pyrometer:word@db/alerting"),
        ("alerting.storage.password", "s3cret"),
        ("monitors.consumers", []),
        ("clusterExporter.extraArgs", ["no-collector.slurm"]),
        ("image.pullPolicy", "Sometimes"),
        ("image.digests.exporters", "sha256:short"),
        ("grafana.loki.url", "loki:3100"),
        ("grafana.loki.uid", "two words"),
        ("alerting.env", ["HTTPS_PROXY=http://proxy:3128"]),
        ("alerting.env", {"HTTPS-PROXY": "http://proxy:3128"}),
        ("alerting.extraVolumes", [{"configMap": {"name": "ca"}}]),
        ("alerting.secrets", ["Desk Token"]),
        ("alerting.podAnnotations", {"a": []}),
        ("alerting.policy", {"clusters": {"a": None}}),
        ("nodeCondition.every", 0),
    ],
)
def test_a_slip_in_the_values_is_refused(path: str, value: object) -> None:
    found = values()
    *parents, last = path.split(".")
    place = found
    for name in parents:
        place = place[name]
    place[last] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(found, schema())


def test_lint_has_nothing_to_say() -> None:
    need("helm")
    said = chart.helm("lint", "--strict", str(chart.CHART))
    assert "0 chart(s) failed" in said
    assert "[WARNING]" not in said


FITTING: set[str] = set()  # documents that another case's options render to the very same text, and that fit


@pytest.mark.parametrize(
    "options",
    [(), EVERYTHING, LESS, TWO, (*EVERYTHING, *TWO)],
    ids=["defaults", "everything", "less", "two alerting services", "everything twice"],
)
def test_every_object_fits_the_schemas_of_kubernetes_and_of_the_operator(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    kubeconform = need("kubeconform")
    places = chart.schemas()
    if len(places) < 2:
        pytest.skip("no schemas: `make chart-programs` fetches them")
    named(rendered(*options))
    documents = {each for each in re.split(r"(?m)^---\n", template(*options)) if each.strip()}
    (tmp_path / "all.yaml").write_text("---\n".join(documents - FITTING), encoding="utf-8")
    locations = [f"-schema-location={place}" for place in places]
    answer = subprocess.run(
        [kubeconform, "-strict", "-summary", *locations, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stdout
    assert f"Valid: {len(documents - FITTING)}, Invalid: 0, Errors: 0, Skipped: 0" in answer.stdout
    FITTING.update(documents)


def test_another_name_of_the_release_is_on_everything() -> None:
    need("helm")
    text = chart.helm("template", "gpu", str(chart.CHART), f"--kube-version={chart.KUBERNETES}", *EVERYTHING)
    names = [each["metadata"]["name"] for each in loaded(text)]
    assert [name for name in names if not name.startswith("gpu-pyrometer")] == []


@pytest.mark.parametrize(
    ("given", "source", "flag"),
    [
        ({}, None, None),
        ({"url": "http://loki:3100"}, ("loki", "http://loki:3100"), "--grafana.logs=loki"),
        ({"url": "http://loki:3100", "uid": "logs"}, ("logs", "http://loki:3100"), "--grafana.logs=logs"),
        ({"uid": "theirs"}, None, "--grafana.logs=theirs"),
    ],
    ids=["no Loki", "an address", "with a uid", "a data source of theirs"],
)
def test_a_loki_is_a_data_source_and_a_link_in_messages(
    given: dict[str, str], source: tuple[str, str] | None, flag: str | None
) -> None:
    objects = named(rendered(BARE, *(f"--set=grafana.loki.{name}={value}" for name, value in given.items())))
    added = objects.get(("ConfigMap", "pyrometer-loki"))
    assert (added is None) == (source is None)
    if added:
        (found,) = yaml.safe_load(added["data"]["pyrometer-loki.yaml"])["datasources"]
        assert (found["type"], found["uid"], found["url"]) == ("loki", *source)
        assert added["metadata"]["labels"]["grafana_datasource"] == "1"
    args = objects["Deployment", "pyrometer-alerting"]["spec"]["template"]["spec"]["containers"][0]["args"]
    assert [each for each in args if "grafana.logs" in each] == ([flag] if flag else [])


def test_more_than_one_alerting_service_without_a_database_is_refused() -> None:
    """By the chart as well, where somebody skips the schema."""
    need("helm")
    for more in ((), ("--skip-schema-validation",)):
        with pytest.raises(SystemExit, match=r"alerting\.replicas: more than one need|/alerting/storage/url"):
            chart.template("--set=alerting.replicas=2", *more)


def test_two_alerting_services_share_a_database_and_have_no_volume() -> None:
    objects = named(rendered(BARE, *TWO))
    assert ("PersistentVolumeClaim", "pyrometer-alerting") not in objects
    assert objects["PodDisruptionBudget", "pyrometer-alerting"]["spec"]["maxUnavailable"] == 1
    spec = objects["Deployment", "pyrometer-alerting"]["spec"]
    assert (spec["replicas"], spec["strategy"]["rollingUpdate"]["maxSurge"]) == (2, 0)
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    found = [each for each in container["args"] if each.startswith("--storage")]
    assert found == [
        "--storage.url=postgresql://pyrometer@db/alerting", "--storage.password-file=/etc/pyrometer/database/password",
    ]  # fmt: skip
    (volume,) = [each for each in pod["volumes"] if each["name"] == "database"]
    assert volume["secret"] == {"secretName": "pyrometer-database", "defaultMode": 0o440}
    assert "podAntiAffinity" in pod["affinity"]
    assert [each["name"] for each in pod["volumes"]] == ["database", "tmp"]


@pytest.mark.parametrize(
    ("hosts", "ports"),
    [
        ("db", [5432]),
        ("pyrometer@db", [5432]),
        ("db:6432", [6432]),
        ("pyrometer@db-1:6432\\,db-2:6433", [6432, 6433]),
        ("pyrometer@[fd00::1]:6432", [6432]),
        ("pyrometer@[fd00::1]", [5432]),
    ],
)
def test_the_alerting_services_may_reach_their_database(hosts: str, ports: list[int]) -> None:
    objects = named(rendered(BARE, f"--set=alerting.storage.url=postgresql://{hosts}/alerting?connect_timeout=5"))
    allowed = [
        port["port"] for rule in objects["NetworkPolicy", "pyrometer-alerting"]["spec"]["egress"] if "to" not in rule
        for port in rule["ports"]
    ]  # fmt: skip
    assert allowed == [53, 53, 443, *ports]
    others = [rule.get("ports") for rule in objects["NetworkPolicy", "pyrometer-cluster"]["spec"]["egress"]]
    assert len(others) == 2


def test_rules_are_the_same_by_helm_and_by_the_command() -> None:
    by_helm = {name: each for (kind, name), each in named(rendered()).items() if kind == "PrometheusRule"}
    texts = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "alert_rules").glob("*.rules.yaml")}
    files = wrapped(texts, Wrapping(labels={"release": "kube-prometheus-stack"}))
    by_command = [next(loaded(text)) for name, text in files.items() if name != "kustomization.yaml"]
    assert {each["metadata"]["name"]: each["spec"] for each in by_command} == {
        name: each["spec"] for name, each in by_helm.items()
    }
    assert all(each["metadata"]["labels"]["release"] == "kube-prometheus-stack" for each in by_helm.values())


def test_boards_are_those_of_the_tree_byte_for_byte() -> None:
    boards = [each for (kind, name), each in named(rendered()).items() if kind == "ConfigMap" and "-board-" in name]
    found = {name: text for each in boards for name, text in each["data"].items()}
    assert found == {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "dashboards/json").glob("*.json")}
    assert all(each["metadata"]["labels"]["grafana_dashboard"] == "1" for each in boards)


def test_the_release_fits_into_the_secret_that_helm_keeps_it_in() -> None:
    """Chart and objects as JSON, gzip, base64, as helm.sh/helm/v3/pkg/storage/driver writes them: 1 MiB at most."""
    manifest = template() if chart.program("helm") else ""
    paths = [path for path in chart.CHART.rglob("*") if path.is_file()]
    paths += [path for folder in ("files/rules", "files/boards") for path in (chart.CHART / folder).glob("*.*")]
    files = [{"name": str(path), "data": base64.b64encode(path.read_bytes()).decode()} for path in paths]
    release = base64.b64encode(gzip.compress(json.dumps({"chart": files, "manifest": manifest}).encode()))
    assert len(release) < 0.85 * 2**20


@pytest.mark.parametrize("path", sorted((ROOT / "dashboards/json").glob("*.json")), ids=lambda path: path.stem)
def test_a_board_fits_into_the_annotation_that_kubectl_keeps_it_in(path: Path) -> None:
    """`kubectl apply` keeps the whole object as JSON in an annotation; annotations have 262,144 bytes at most."""
    assert len(json.dumps(path.read_text(encoding="utf-8")).encode()) < 0.95 * 2**18


PAGE = (ROOT / "docs/howto/kubernetes.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("title", re.findall(r'^```yaml title="(values\.yaml[^"]*)"$', PAGE, re.MULTILINE))
def test_the_pages_values_are_good_and_change_the_objects(tmp_path: Path, title: str) -> None:
    block = PAGE.partition(f'```yaml title="{title}"\n')[2].partition("```")[0]
    found = yaml.safe_load(block)
    jsonschema.validate(found, schema())
    (tmp_path / "values.yaml").write_text(block, encoding="utf-8")
    assert chart.program("helm") is None or named(rendered(f"--values={tmp_path / 'values.yaml'}")) != named(rendered())
