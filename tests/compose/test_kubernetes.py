"""The Kubernetes manifests, by a strict schema of our own: every key that may stand where, with its type.

Written after Kubernetes 1.31's OpenAPI and prometheus-operator's ServiceMonitor, as far as the manifests go: a key that
is not here is either a slip or has to be looked up first. test_helm.py checks them by the real schemas.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from pyrometer_simulator.yaml_loader import LOADER

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "compose/kubernetes"
BOARDS = ROOT / "dashboards/json"

TEXTS = {str: str}
RESOURCES = {"limits": TEXTS, "requests": TEXTS}
META = {"name": str, "namespace": str, "labels": TEXTS, "annotations": TEXTS}
PROBE = {
    "httpGet": {"path": str, "port": (int, str)}, "periodSeconds": int, "timeoutSeconds": int, "failureThreshold": int,
}  # fmt: skip
CONTAINER = {
    "name": str, "image": str, "imagePullPolicy": str, "command": [str], "args": [str],
    "env": [{"name": str, "value": str, "valueFrom": {"fieldRef": {"fieldPath": str}}}],
    "ports": [{"name": str, "containerPort": int, "hostPort": int, "protocol": str}],
    "securityContext": {
        "runAsUser": int, "runAsGroup": int, "runAsNonRoot": bool, "allowPrivilegeEscalation": bool,
        "readOnlyRootFilesystem": bool, "privileged": bool, "capabilities": {"drop": [str], "add": [str]},
    },
    "resources": RESOURCES, "livenessProbe": PROBE, "readinessProbe": PROBE,
    "volumeMounts": [{"name": str, "mountPath": str, "readOnly": bool, "mountPropagation": str}],
    "terminationMessagePolicy": str,
}  # fmt: skip
POD = {
    "automountServiceAccountToken": bool, "serviceAccountName": str,
    "priorityClassName": str, "runtimeClassName": str, "nodeSelector": TEXTS,
    "tolerations": [{"operator": str, "key": str, "effect": str}], "hostNetwork": bool, "dnsPolicy": str,
    "hostPID": bool,
    "terminationGracePeriodSeconds": int, "securityContext": {"seccompProfile": {"type": str}, "fsGroup": int},
    "initContainers": [CONTAINER], "containers": [CONTAINER],
    "volumes": [{
        "name": str, "hostPath": {"path": str, "type": str}, "persistentVolumeClaim": {"claimName": str},
        "emptyDir": {"medium": str, "sizeLimit": str},
    }],
}  # fmt: skip
PORTS = [{"protocol": str, "port": (int, str)}]
PEERS = [{"namespaceSelector": {"matchLabels": TEXTS}}]
RELABEL = {"sourceLabels": [str], "targetLabel": str, "replacement": str, "regex": str, "action": str}
SCHEMAS: dict[str, Any] = {
    "DaemonSet": {"apiVersion": str, "kind": str, "metadata": META, "spec": {
        "selector": {"matchLabels": TEXTS},
        "updateStrategy": {"type": str, "rollingUpdate": {"maxUnavailable": (int, str)}},
        "template": {"metadata": META, "spec": POD},
    }},
    "Deployment": {"apiVersion": str, "kind": str, "metadata": META, "spec": {
        "replicas": int, "strategy": {"type": str}, "selector": {"matchLabels": TEXTS},
        "template": {"metadata": META, "spec": POD},
    }},
    "PersistentVolumeClaim": {"apiVersion": str, "kind": str, "metadata": META, "spec": {
        "accessModes": [str], "resources": RESOURCES,
    }},
    "NetworkPolicy": {"apiVersion": str, "kind": str, "metadata": META, "spec": {
        "podSelector": {"matchLabels": TEXTS}, "policyTypes": [str],
        "ingress": [{"from": PEERS, "ports": PORTS}], "egress": [{"to": PEERS, "ports": PORTS}],
    }},
    "Pod": {"apiVersion": str, "kind": str, "metadata": META, "spec": POD},
    "Namespace": {"apiVersion": str, "kind": str, "metadata": META},
    "Service": {"apiVersion": str, "kind": str, "metadata": META, "spec": {
        "clusterIP": str, "selector": TEXTS,
        "ports": [{"name": str, "port": int, "targetPort": (int, str), "protocol": str}],
    }},
    "ServiceMonitor": {"apiVersion": str, "kind": str, "metadata": META, "spec": {
        "selector": {"matchLabels": TEXTS}, "attachMetadata": {"node": bool}, "sampleLimit": int, "labelLimit": int,
        "labelValueLengthLimit": int, "bodySizeLimit": str, "endpoints": [{
            "port": str, "path": str, "params": {str: [str]}, "interval": str, "scrapeTimeout": str,
            "honorTimestamps": bool, "honorLabels": bool, "relabelings": [RELABEL],
        }],
    }},
    "Kustomization": {"apiVersion": str, "kind": str, "resources": [str],
        "images": [{"name": str, "newName": str, "newTag": str}],
        "patches": [{"target": {"kind": str, "name": str}, "patch": str, "path": str}],
    },
    "ServiceAccount": {"apiVersion": str, "kind": str, "metadata": META, "automountServiceAccountToken": bool},
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
    "DaemonSet": "apps/v1", "Deployment": "apps/v1", "Service": "v1", "Namespace": "v1", "Pod": "v1",
    "PersistentVolumeClaim": "v1", "NetworkPolicy": "networking.k8s.io/v1", "PodMonitor": "monitoring.coreos.com/v1",
    "ServiceMonitor": "monitoring.coreos.com/v1",
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
        found += [(path.name, document) for document in yaml.load_all(path.read_text(encoding="utf-8"), LOADER)]
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
    (daemonset,) = [each for each in of_kind("DaemonSet") if named(each, "node")]
    daemonset["spec"]["template"]["spec"]["hostPid"] = True
    daemonset["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"] = 128
    found = " ".join(wrong(daemonset, SCHEMAS["DaemonSet"]))
    assert "hostPid: unknown" in found
    assert "memory: 128 is not" in found


@pytest.mark.parametrize("part", ["node", "cluster", "alerting"])
def test_everything_of_a_part_selects_the_same_pods(part: str) -> None:
    (program,) = [each for kind in ("DaemonSet", "Deployment") for each in of_kind(kind) if named(each, part)]
    (service,) = [each for each in of_kind("Service") if named(each, part)]
    wanted = program["spec"]["selector"]["matchLabels"]
    assert wanted.items() <= program["spec"]["template"]["metadata"]["labels"].items()
    assert service["spec"]["selector"] == wanted
    assert wanted.items() <= service["metadata"]["labels"].items()  # by which a ServiceMonitor finds it
    (port,) = program["spec"]["template"]["spec"]["containers"][0]["ports"]
    assert service["spec"]["ports"][0]["targetPort"] == port["name"] == service["spec"]["ports"][0]["name"]
    selected = [each["spec"]["selector"]["matchLabels"] for each in of_kind("ServiceMonitor")]
    assert selected.count(wanted) == (2 if part == "node" else 1)
    policies = [each["spec"]["podSelector"]["matchLabels"] for each in of_kind("NetworkPolicy")]
    assert policies.count(wanted) == (0 if part == "node" else 1)  # there is none for the host's network


def named(found: dict[str, Any], part: str) -> bool:
    return bool(found["metadata"]["name"] == f"pyrometer-{part}")


def test_mounts_have_volumes_and_volumes_mounts() -> None:
    for program in (*of_kind("DaemonSet"), *of_kind("Deployment")):
        pod = program["spec"]["template"]["spec"]
        containers = (*pod.get("initContainers", ()), *pod["containers"])
        mounted = {mount["name"] for part in containers for mount in part["volumeMounts"]}
        assert mounted == {volume["name"] for volume in pod["volumes"]}


@pytest.mark.parametrize(
    "program", [*of_kind("DaemonSet"), *of_kind("Deployment")], ids=lambda each: each["metadata"]["name"]
)
def test_every_program_is_an_ordinary_user_without_capabilities(program: dict[str, Any]) -> None:
    (container,) = program["spec"]["template"]["spec"]["containers"]
    # Only what writes to the API server has an account of its own.
    pod = program["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is ("serviceAccountName" in pod) is named(program, "condition")
    assert container["securityContext"] == {
        "runAsUser": 10935, "runAsGroup": 10935, "runAsNonRoot": True, "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip


@pytest.mark.parametrize("name", ["kernel-log-patch", "kernel-log-condition-patch"])
def test_the_kernels_log_takes_one_capability_and_one_mount(name: str) -> None:
    patch = yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    pod = patch["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert set(pod) == {"containers", "volumes"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": True, "capabilities": {"drop": ["ALL"], "add": ["SYSLOG"]},
    }  # fmt: skip
    assert container["volumeMounts"] == [{"name": "kmsg", "mountPath": "/dev/kmsg", "readOnly": True}]
    assert pod["volumes"] == [{"name": "kmsg", "hostPath": {"path": "/dev/kmsg", "type": "CharDevice"}}]
    assert container["command"][0] == "/opt/pyrometer/bin/python3-syslog"


@pytest.mark.parametrize(
    ("answer", "minutes", "status"),
    [
        ("fit", 0, 0),
        ("unknown: gpu_driver, gpu_count", 0, 0),
        ("unknown: pyrometer-check has stopped", 0, 0),
        ("hca_links: 7 of 8 links are up: mlx5_3/1 DOWN, Polling", 0, 1),
        ("hca_links: 7 of 8 links are up: mlx5_3/1 DOWN, Polling", 9, 1),
        ("hca_links: 7 of 8 links are up: mlx5_3/1 DOWN, Polling", 11, 0),  # nobody looks any more
        ("", 0, 0),
        ("Traceback (most recent call last):", 0, 0),
        (None, 0, 0),
    ],
)
def test_the_init_container_keeps_a_pod_from_an_unfit_node_with_one_line(
    tmp_path: Path, answer: str | None, minutes: int, status: int
) -> None:
    pod = yaml.safe_load((FOLDER / "init-container.yaml").read_text(encoding="utf-8"))["spec"]
    (container,) = pod["initContainers"]
    writer = next(each for each in of_kind("DaemonSet") if named(each, "condition"))["spec"]["template"]["spec"]
    (file,) = [each[14:] for each in writer["containers"][0]["args"] if each.startswith("--path.answer=")]
    assert container["volumeMounts"] == [
        {"name": "pyrometer-answer", "mountPath": str(Path(file).parent), "readOnly": True}
    ]
    assert pod["volumes"][0]["hostPath"] in [each["hostPath"] for each in writer["volumes"]]
    if answer is not None:
        (tmp_path / "check").write_text(f"{answer}\n" if answer else "")
        at = time.time() - 60 * minutes
        os.utime(tmp_path / "check", (at, at))
    command = [part.replace(file, str(tmp_path / "check")) for part in container["command"]]
    assert command != container["command"]
    environment = {"NODE_NAME": "gpu-001", "PATH": os.environ["PATH"]}
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    line = f"node gpu-001 is unfit for this job: {answer}\n" if status else ""
    assert (said.returncode, said.stdout, said.stderr) == (status, "", line)


def test_pods_are_scraped_as_prometheus_yaml_scrapes_nodes() -> None:
    """The jobs' names, which rules and boards use, the limits and the intervals."""
    jobs = prometheus_jobs()
    seen = set()
    for monitor in of_kind("ServiceMonitor"):
        spec = monitor["spec"]
        (endpoint,) = spec["endpoints"]
        (job,) = [rule["replacement"] for rule in endpoint["relabelings"] if rule.get("targetLabel") == "job"]
        seen.add(job)
        assert spec.get("sampleLimit") == jobs[job].get("sample_limit")
        assert spec.get("labelLimit") == jobs[job].get("label_limit")
        assert spec.get("labelValueLengthLimit") == jobs[job].get("label_value_length_limit")
        assert spec.get("bodySizeLimit") == jobs[job].get("body_size_limit")
        assert endpoint.get("honorLabels") == jobs[job].get("honor_labels")
        assert endpoint["path"] == jobs[job].get("metrics_path", "/metrics")
        assert endpoint.get("params") == jobs[job].get("params")
        assert endpoint.get("honorTimestamps") == jobs[job].get("honor_timestamps")
    assert seen == {"node", "batches", "cluster", "alerting"}


def test_kustomization_names_files_that_exist_and_patches_the_cluster() -> None:
    (found,) = of_kind("Kustomization")
    assert all((FOLDER / name).exists() for name in found["resources"])
    (operation,) = yaml.safe_load(found["patches"][0]["patch"])
    for monitor in of_kind("ServiceMonitor"):
        assert monitor["spec"]["endpoints"][0]["relabelings"][0]["targetLabel"] == "cluster"
    assert operation["path"] == "/spec/endpoints/0/relabelings/0/replacement"


def test_every_board_is_in_a_config_map_of_its_own() -> None:
    found = yaml.safe_load((BOARDS / "kustomization.yaml").read_text(encoding="utf-8"))
    listed = {each["name"]: each["files"] for each in found["configMapGenerator"]}
    wanted = {f"pyrometer-board-{path.stem}": [path.name] for path in BOARDS.glob("*.json")}
    assert listed == wanted, "dashboards/json/kustomization.yaml is outdated; run: make reference"
    assert max(path.stat().st_size for path in BOARDS.glob("*.json")) < 262_144  # what kubectl apply notes beside it


@pytest.mark.skipif(os.geteuid() != 0, reason="the init container is root")
@pytest.mark.parametrize("stranger", ["nothing", "link", "dangling link", "folder", "file", "root's folder"])
def test_the_daemon_sets_folder_of_rings_is_roots_or_left_alone(tmp_path: Path, stranger: str) -> None:
    """Whoever makes a link of that name first would have root open another folder to everybody."""
    shm, secret = tmp_path / "shm", tmp_path / "secret"
    for folder in (shm, secret):
        folder.mkdir(mode=0o700)
    rings = shm / "pyrometer"
    if "link" in stranger:
        rings.symlink_to(secret if stranger == "link" else tmp_path / "nowhere")
    elif stranger != "nothing":
        rings.touch(0o600) if stranger == "file" else rings.mkdir(0o755)
        os.chown(rings, 0 if stranger == "root's folder" else 65534, 0)
    before = rings.lstat() if stranger != "nothing" else None
    documents = yaml.load_all((FOLDER / "node-daemonset.yaml").read_text(), LOADER)
    (daemon_set,) = [document for document in documents if document["kind"] == "DaemonSet"]
    (folders,) = daemon_set["spec"]["template"]["spec"]["initContainers"]
    *shell, script = folders["command"]
    subprocess.run([*shell, script.replace("/host/", f"{tmp_path}/")], check=True, timeout=20)
    now = rings.lstat()
    if stranger in ("nothing", "root's folder"):
        assert (now.st_uid, now.st_mode & 0o7777) == (0, 0o1777)
    else:
        assert before is not None
        assert (now.st_uid, now.st_mode, now.st_ino) == (before.st_uid, before.st_mode, before.st_ino)
    assert secret.stat().st_mode & 0o7777 == 0o700
    assert not (tmp_path / "nowhere").exists()
