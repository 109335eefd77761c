"""Parts of the chart on demand: proxies, the policy with its account, the node condition.

Where Helm is missing, all is skipped: `make chart-programs` builds it.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from tests.compose.test_helm import BARE, POLICY, loaded, named, need, rendered
from tools import chart

from pyrometer_alerting.policy.rules import KubernetesSettings
from pyrometer_alerting.policy.rules import load as load_policy
from pyrometer_exporters.node.checks.config import load as load_checks


@pytest.mark.parametrize(
    ("proxy", "port"),
    [
        ("http://proxy:3128", 3128),
        ("http://user:8080@proxy:3128/", 3128),
        ("proxy:3128", 3128),
        ("http://[fd00::1]:3128", 3128),
        ("http://proxy", 80),
    ],
)
@pytest.mark.parametrize("part", ["clusterExporter", "alerting"])
def test_a_proxy_may_be_reached(tmp_path: Path, part: str, proxy: str, port: int) -> None:
    (tmp_path / "values.yaml").write_text(yaml.safe_dump({part: {"env": {"https_proxy": proxy, "NO_PROXY": ".svc"}}}))
    objects = named(rendered(BARE, f"--values={tmp_path / 'values.yaml'}"))
    name = "pyrometer-alerting" if part == "alerting" else "pyrometer-cluster"
    rules = objects["NetworkPolicy", name]["spec"]["egress"]
    assert rules[-1] == {"ports": [{"protocol": "TCP", "port": port}]}
    (container,) = objects["Deployment", name]["spec"]["template"]["spec"]["containers"]
    assert container["env"] == [{"name": "NO_PROXY", "value": ".svc"}, {"name": "https_proxy", "value": proxy}]


def test_a_policy_has_its_file_its_account_its_secrets_and_its_way_to_the_api_server(tmp_path: Path) -> None:
    (tmp_path / "values.yaml").write_text("""
alerting:
  policy:
    mode: on
    clusters: {cluster: {kubernetes: {selector: nvidia.com/gpu.present=true}}}
    rules: [{alert: GpuLost, do: webhook}]
    webhook: {url: "https://desk.example/nodes", token-file: /etc/pyrometer/secrets/desk/token}
  secrets: [desk]
""")
    objects = named(rendered(BARE, f"--values={tmp_path / 'values.yaml'}"))
    (tmp_path / "policy.yaml").write_text(objects["ConfigMap", "pyrometer-alerting"]["data"]["policy.yaml"])
    policy = load_policy(tmp_path / "policy.yaml")
    settings = policy.clusters["cluster"]
    assert isinstance(settings, KubernetesSettings)
    token = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
    assert (policy.is_on, settings.url, settings.token_file) == (True, "https://kubernetes.default.svc", token)
    pod = objects["Deployment", "pyrometer-alerting"]["spec"]["template"]["spec"]
    assert (pod["serviceAccountName"], pod["automountServiceAccountToken"]) == ("pyrometer-policy", True)
    (container,) = pod["containers"]
    assert "--policy.file=/etc/pyrometer/alerting/policy.yaml" in container["args"]
    mounts = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
    volumes = {each["name"]: each for each in pod["volumes"]}
    assert volumes[mounts["/etc/pyrometer/alerting"]]["configMap"] == {"name": "pyrometer-alerting"}
    assert volumes[mounts["/etc/pyrometer/secrets/desk"]]["secret"]["secretName"] == "desk"
    rules = objects["NetworkPolicy", "pyrometer-alerting"]["spec"]["egress"]
    assert {"ports": [{"protocol": "TCP", "port": 6443}]} in rules


RIGHTS = {("ServiceAccount", "pyrometer-policy"), ("ClusterRole", "pyrometer-policy")}


@pytest.mark.parametrize(
    ("options", "account", "port"),
    [
        ((), None, False),
        ((POLICY,), "pyrometer-policy", True),
        ((POLICY, "--set=alerting.serviceAccountName=theirs"), "theirs", True),
        (("--set=alerting.serviceAccountName=theirs",), "theirs", False),
        (("--set=alerting.policy.clusters.cluster.slurm.scontrol=scontrol",), None, True),
        ((POLICY, "--set=alerting.policy.clusters.cluster.kubernetes.token-file=/other/token"), None, True),
        (("--set=alerting.extraArgs={--policy.file=/etc/pyrometer/policy.yaml}",), None, True),
    ],
)
def test_the_account_and_the_port_are_there_for_those_who_need_them(
    options: tuple[str, ...], account: str | None, port: bool
) -> None:
    objects = named(rendered(BARE, *options))
    pod = objects["Deployment", "pyrometer-alerting"]["spec"]["template"]["spec"]
    assert (pod.get("serviceAccountName"), pod["automountServiceAccountToken"]) == (account, account is not None)
    assert objects.keys() & RIGHTS == (RIGHTS if account == "pyrometer-policy" else set())
    rules = objects["NetworkPolicy", "pyrometer-alerting"]["spec"]["egress"]
    assert ({"ports": [{"protocol": "TCP", "port": 6443}]} in rules) is port


@pytest.mark.parametrize(("version", "policies"), [("1.29.0", 0), ("1.30.0-gke.1", 2), ("1.34.1", 2)])
def test_an_older_kubernetes_gets_no_admission_policies_and_is_told(version: str, policies: int) -> None:
    need("helm")
    options = (BARE, POLICY, "--set=nodeCondition.enabled=true", f"--kube-version={version}")
    objects = list(loaded(chart.template(*options)))
    kinds = [each["kind"] for each in objects]
    assert kinds.count("ValidatingAdmissionPolicy") == kinds.count("ValidatingAdmissionPolicyBinding") == policies


def test_the_condition_has_the_checks_of_the_node_exporter_and_its_rights_to_look(tmp_path: Path) -> None:
    objects = named(rendered(BARE, "--set=nodeCondition.enabled=true,node.kernelLog=true,node.checks.expect.gpus=8"))
    (tmp_path / "checks.yaml").write_text(objects["ConfigMap", "pyrometer-checks"]["data"]["checks.yaml"])
    assert load_checks(tmp_path / "checks.yaml", "gpu-001", ()).expect == {"gpus": 8}
    file = "/etc/pyrometer/checks/checks.yaml"
    containers = [
        objects["DaemonSet", name]["spec"]["template"]["spec"]["containers"][0]
        for name in ("pyrometer-node", "pyrometer-condition")
    ]
    assert f"--collector.checks.config={file}" in containers[0]["args"]
    assert f"--config.file={file}" in containers[1]["args"]
    assert containers[0]["securityContext"] == containers[1]["securityContext"]
    assert {each["name"] for each in containers[1]["volumeMounts"]} == {"sys", "state", "answer", "kmsg", "checks"}
