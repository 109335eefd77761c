"""The Kubernetes manifests, by a strict schema of our own: every key that may stand where, with its type.

Written after Kubernetes 1.31's OpenAPI and prometheus-operator's PodMonitor, as far as the manifests go: a key that is
not here is either a slip or has to be looked up first.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "compose/kubernetes"

TEXTS = {str: str}
RESOURCES = {"limits": TEXTS, "requests": TEXTS}
META = {"name": str, "namespace": str, "labels": TEXTS, "annotations": TEXTS}
PROBE = {
    "httpGet": {"path": str, "port": (int, str)}, "periodSeconds": int, "timeoutSeconds": int, "failureThreshold": int,
}  # fmt: skip
CONTAINER = {
    "name": str, "image": str, "command": [str], "args": [str], "env": [{"name": str, "value": str}],
    "ports": [{"name": str, "containerPort": int, "hostPort": int, "protocol": str}],
    "securityContext": {
        "runAsUser": int, "runAsGroup": int, "runAsNonRoot": bool, "allowPrivilegeEscalation": bool,
        "readOnlyRootFilesystem": bool, "privileged": bool, "capabilities": {"drop": [str], "add": [str]},
    },
    "resources": RESOURCES, "livenessProbe": PROBE, "readinessProbe": PROBE,
    "volumeMounts": [{"name": str, "mountPath": str, "readOnly": bool, "mountPropagation": str}],
}  # fmt: skip
POD = {
    "automountServiceAccountToken": bool, "priorityClassName": str, "runtimeClassName": str, "nodeSelector": TEXTS,
    "tolerations": [{"operator": str, "key": str, "effect": str}], "hostNetwork": bool, "dnsPolicy": str,
    "hostPID": bool,
    "terminationGracePeriodSeconds": int, "securityContext": {"seccompProfile": {"type": str}},
    "initContainers": [CONTAINER], "containers": [CONTAINER],
    "volumes": [{"name": str, "hostPath": {"path": str, "type": str}}],
}  # fmt: skip
RELABEL = {"sourceLabels": [str], "targetLabel": str, "replacement": str, "regex": str, "action": str}
SCHEMAS: dict[str, Any] = {
    "DaemonSet": {"apiVersion": str, "kind": str, "metadata": META, "spec": {
        "selector": {"matchLabels": TEXTS},
        "updateStrategy": {"type": str, "rollingUpdate": {"maxUnavailable": (int, str)}},
        "template": {"metadata": META, "spec": POD},
    }},
    "Pod": {"apiVersion": str, "kind": str, "metadata": META, "spec": POD},
    "Namespace": {"apiVersion": str, "kind": str, "metadata": META},
    "Service": {"apiVersion": str, "kind": str, "metadata": META, "spec": {
        "clusterIP": str, "selector": TEXTS,
        "ports": [{"name": str, "port": int, "targetPort": (int, str), "protocol": str}],
    }},
    "PodMonitor": {"apiVersion": str, "kind": str, "metadata": META, "spec": {
        "selector": {"matchLabels": TEXTS}, "attachMetadata": {"node": bool}, "sampleLimit": int, "labelLimit": int,
        "labelValueLengthLimit": int, "bodySizeLimit": str, "podMetricsEndpoints": [{
            "port": str, "path": str, "params": {str: [str]}, "interval": str, "scrapeTimeout": str,
            "honorTimestamps": bool, "relabelings": [RELABEL],
        }],
    }},
    "Kustomization": {"apiVersion": str, "kind": str, "resources": [str],
        "images": [{"name": str, "newName": str, "newTag": str}],
        "patches": [{"target": {"kind": str, "name": str}, "patch": str, "path": str}],
    },
    "ServiceAccount": {"apiVersion": str, "kind": str, "metadata": META},
    "ClusterRole": {"apiVersion": str, "kind": str, "metadata": META,
        "rules": [{"apiGroups": [str], "resources": [str], "verbs": [str]}],
    },
    "ClusterRoleBinding": {"apiVersion": str, "kind": str, "metadata": META, "roleRef": TEXTS, "subjects": [TEXTS]},
    "ValidatingAdmissionPolicy": {"apiVersion": str, "kind": str, "metadata": META, "spec": {
        "failurePolicy": str, "matchConditions": [TEXTS], "variables": [TEXTS], "validations": [TEXTS],
        "matchConstraints": {"resourceRules": [
            {"apiGroups": [str], "apiVersions": [str], "operations": [str], "resources": [str]},
        ]},
    }},
    "ValidatingAdmissionPolicyBinding": {"apiVersion": str, "kind": str, "metadata": META, "spec": {
        "policyName": str, "validationActions": [str],
    }},
}  # fmt: skip
VERSIONS = {
    "ServiceAccount": "v1", "ClusterRole": "rbac.authorization.k8s.io/v1",
    "ClusterRoleBinding": "rbac.authorization.k8s.io/v1",
    "ValidatingAdmissionPolicy": "admissionregistration.k8s.io/v1",
    "ValidatingAdmissionPolicyBinding": "admissionregistration.k8s.io/v1",
    "DaemonSet": "apps/v1", "Service": "v1", "Namespace": "v1", "Pod": "v1", "PodMonitor": "monitoring.coreos.com/v1",
    "Kustomization": "kustomize.config.k8s.io/v1beta1",
}  # fmt: skip


def wrong(found: Any, schema: Any, place: str = "") -> Iterator[str]:
    """Each mismatch with its place."""
    if isinstance(schema, dict):
        for key, value in found.items() if isinstance(found, dict) else [("", None)]:
            expected = schema.get(key, schema.get(str))
            if expected is None:
                yield f"{place}.{key}: unknown"
            else:
                yield from wrong(value, expected, f"{place}.{key}")
    elif isinstance(schema, list):
        for number, value in enumerate(found) if isinstance(found, list) else [(0, None)]:
            yield from wrong(value, schema[0], f"{place}[{number}]")
    elif type(found) not in (schema if isinstance(schema, tuple) else (schema,)):
        yield f"{place}: {found!r} is not {schema}"


def documents() -> list[tuple[str, dict[str, Any]]]:
    found = []
    for path in sorted(FOLDER.glob("*.yaml")):
        found += [(path.name, document) for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))]
    return found


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [document for name, document in documents() if document["kind"] == kind and "patch" not in name]


def prometheus_jobs() -> dict[str, dict[str, Any]]:
    config = yaml.safe_load((ROOT / "compose/prometheus/prometheus.yaml").read_text(encoding="utf-8"))
    return {job["job_name"]: job for job in config["scrape_configs"]}


@pytest.mark.parametrize(("file", "document"), documents(), ids=lambda value: value if isinstance(value, str) else "")
def test_every_manifest_fits_the_schema(file: str, document: dict[str, Any]) -> None:
    assert document["apiVersion"] == VERSIONS[document["kind"]]
    assert list(wrong(document, SCHEMAS[document["kind"]])) == []


def test_the_schema_finds_slips() -> None:
    (daemonset,) = of_kind("DaemonSet")
    daemonset["spec"]["template"]["spec"]["hostPid"] = True
    daemonset["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"] = 128
    found = " ".join(wrong(daemonset, SCHEMAS["DaemonSet"]))
    assert "hostPid: unknown" in found
    assert "memory: 128 is not" in found


def test_everything_selects_the_same_pods() -> None:
    (daemonset,), (service,) = of_kind("DaemonSet"), of_kind("Service")
    wanted = daemonset["spec"]["selector"]["matchLabels"]
    assert wanted.items() <= daemonset["spec"]["template"]["metadata"]["labels"].items()
    assert service["spec"]["selector"] == wanted
    assert [monitor["spec"]["selector"]["matchLabels"] for monitor in of_kind("PodMonitor")] == [wanted, wanted]
    (port,) = daemonset["spec"]["template"]["spec"]["containers"][0]["ports"]
    assert service["spec"]["ports"][0]["targetPort"] == port["name"]


def test_mounts_have_volumes_and_volumes_mounts() -> None:
    (daemonset,) = of_kind("DaemonSet")
    pod = daemonset["spec"]["template"]["spec"]
    mounted = {mount["name"] for part in (*pod["initContainers"], *pod["containers"]) for mount in part["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}


def test_the_exporter_is_an_ordinary_user_without_capabilities() -> None:
    (daemonset,) = of_kind("DaemonSet")
    (container,) = daemonset["spec"]["template"]["spec"]["containers"]
    assert container["securityContext"] == {
        "runAsUser": 10935, "runAsGroup": 10935, "runAsNonRoot": True, "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip


def test_the_kernels_log_takes_one_capability_and_one_mount() -> None:
    patch = yaml.safe_load((FOLDER / "kernel-log-patch.yaml").read_text(encoding="utf-8"))
    pod = patch["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert set(pod) == {"containers", "volumes"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": True, "capabilities": {"drop": ["ALL"], "add": ["SYSLOG"]},
    }  # fmt: skip
    assert container["volumeMounts"] == [{"name": "kmsg", "mountPath": "/dev/kmsg", "readOnly": True}]
    assert pod["volumes"] == [{"name": "kmsg", "hostPath": {"path": "/dev/kmsg", "type": "CharDevice"}}]
    assert container["command"][0] == "/opt/pyrometer/bin/python3-syslog"


def test_pods_are_scraped_as_prometheus_yaml_scrapes_nodes() -> None:
    """The jobs' names, which rules and boards use, the limits and the intervals."""
    jobs = prometheus_jobs()
    for monitor in of_kind("PodMonitor"):
        spec = monitor["spec"]
        (endpoint,) = spec["podMetricsEndpoints"]
        (job,) = [rule["replacement"] for rule in endpoint["relabelings"] if rule.get("targetLabel") == "job"]
        assert spec["sampleLimit"] == jobs[job]["sample_limit"]
        assert spec["labelLimit"] == jobs[job]["label_limit"]
        assert spec["labelValueLengthLimit"] == jobs[job]["label_value_length_limit"]
        assert spec["bodySizeLimit"] == jobs[job]["body_size_limit"]
        assert endpoint["path"] == jobs[job].get("metrics_path", "/metrics")
        assert endpoint.get("params") == jobs[job].get("params")
        assert endpoint.get("honorTimestamps") == jobs[job].get("honor_timestamps")


def test_kustomization_names_files_that_exist_and_patches_the_cluster() -> None:
    (found,) = of_kind("Kustomization")
    assert all((FOLDER / name).is_file() for name in found["resources"])
    (operation,) = yaml.safe_load(found["patches"][0]["patch"])
    for monitor in of_kind("PodMonitor"):
        assert monitor["spec"]["podMetricsEndpoints"][0]["relabelings"][0]["targetLabel"] == "cluster"
    assert operation["path"] == "/spec/podMetricsEndpoints/0/relabelings/0/replacement"
