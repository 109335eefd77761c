"""The node condition and the init container against a real API server, with the files that `kubectl apply` takes.

The DaemonSet's controller makes its pods; nothing schedules or starts them, so the test binds them to their nodes, asks
for their tokens as a kubelet does, and runs the real command with the DaemonSet's flags. Needs `make cluster-programs`
and etcd; skipped with the reason elsewhere.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.compose.api_server import RUNTIME_CLASS, SERVER, Api, missing
from tests.compose.containers import eventually, titled
from tests.exporters.commands.check.test_main import flags
from tests.exporters.node.checks.conftest import node
from tools import chart

FOLDER = Path(__file__).resolve().parents[2] / "compose/kubernetes"
MISSING = missing(*SERVER, "kube-controller-manager", "kubectl")
PODS = "/api/v1/namespaces/pyrometer/pods"
UNFIT = "hca_links: 7 of 8 links are up: mlx5_3/1 DOWN, Polling"

pytestmark = [
    pytest.mark.compose, pytest.mark.e2e, pytest.mark.timeout(600),
    pytest.mark.skipif(bool(MISSING), reason=MISSING),
]  # fmt: skip
__all__ = ["node"]


def kubectl(api: Api, *arguments: str) -> str:
    command = [str(chart.program("kubectl")), f"--kubeconfig={api.config}", *arguments]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with Api.running(tmp_path_factory.mktemp("condition"), controllers=True) as server:
        assert server.ask("POST", "/apis/node.k8s.io/v1/runtimeclasses", RUNTIME_CLASS)[0] == 201
        for name in ("gpu-001", "gpu-002"):
            labels = {"nvidia.com/gpu.present": "true"}
            assert server.ask("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": labels}})[0] == 201
            ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}], "capacity": {"cpu": "64"}}}
            assert server.ask("PATCH", f"/api/v1/nodes/{name}/status", ready)[0] == 200
        kubectl(server, "apply", *(f"--filename={FOLDER / name}.yaml" for name in ("namespace", "node-condition")))
        assert eventually(lambda: len(pods(server)) == 2, 60), server.ask("GET", PODS)
        for name, pod in pods(server).items():
            target = {"metadata": {"name": pod}, "target": {"kind": "Node", "name": name}}
            assert server.ask("POST", f"{PODS}/{pod}/binding", target)[0] == 201
        assert eventually(lambda: patch(server, token(server, "gpu-001"), "gpu-002", condition())[0] == 422, 60)
        yield server


def pods(api: Api) -> dict[str, str]:
    """Return the DaemonSet's pods by the node that its controller made each for."""
    found = {}
    for pod in api.ask("GET", PODS)[1]["items"]:
        affinity = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        found[affinity["nodeSelectorTerms"][0]["matchFields"][0]["values"][0]] = pod["metadata"]["name"]
    return found


def token(api: Api, node_name: str, *, of_pod: bool = True) -> str:
    """Return the token that the kubelet of a node gets for the DaemonSet's pod there."""
    pod = api.ask("GET", f"{PODS}/{pods(api)[node_name]}")[1]
    uid = pod["metadata"]["uid"]
    bound = {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": pod["metadata"]["name"], "uid": uid}}
    path = f"/api/v1/namespaces/pyrometer/serviceaccounts/{pod['spec']['serviceAccountName']}/token"
    status, said = api.ask("POST", path, {"spec": bound if of_pod else {}})
    assert status == 201, said
    return str(said["status"]["token"])


def condition(kind: str = "PyrometerUnfit", status: str = "False") -> dict[str, Any]:
    return {"status": {"conditions": [{"type": kind, "status": status, "reason": "x", "message": "y"}]}}


def patch(api: Api, account: str, node_name: str, change: Any, path: str = "/status") -> tuple[int, Any]:
    return api.ask(
        "PATCH", f"/api/v1/nodes/{node_name}{path}", change, account, kind="application/strategic-merge-patch+json"
    )


def conditions(api: Api, node_name: str) -> dict[str, Any]:
    found = api.ask("GET", f"/api/v1/nodes/{node_name}")[1]["status"]["conditions"]
    return {each["type"]: each for each in found}


def command(api: Api, node: Any, folder: Path, account: str, of_node: str) -> list[str]:
    """Return the DaemonSet's command for a node, with the test's files in place of the host's."""
    (daemonset,) = [
        each for each in yaml.safe_load_all((FOLDER / "node-condition.yaml").read_text(encoding="utf-8"))
        if each["kind"] == "DaemonSet"
    ]  # fmt: skip
    (container,) = daemonset["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["pyrometer-check"]
    places = {"$(NODE_NAME)": of_node, "/run/pyrometer": str(folder), "--every=60": "--every=1", "=2": "=0"}
    given = [part for part in container["args"] if not part.startswith("--path.state")]
    for old, new in places.items():
        given = [part.replace(old, new) for part in given]
    (folder / "token").write_text(account)
    (folder / "ca.crt").write_bytes(api.certificate.read_bytes())
    start = [sys.executable, "-m", "pyrometer_simulator.check", f"--gpus={node.gpus.path}", "--"]
    return [*start, *flags(node, *given, f"--kubernetes.account={folder}")]


def running(api: Api, arguments: list[str]) -> subprocess.Popen[str]:
    host, _, port = api.url.removeprefix("https://").partition(":")
    environment = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port, "PATH": ""}
    return subprocess.Popen(arguments, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def init_container(folder: Path) -> subprocess.CompletedProcess[str]:
    pod = yaml.safe_load((FOLDER / "init-container.yaml").read_text(encoding="utf-8"))["spec"]
    arguments = [part.replace("/run/pyrometer", str(folder)) for part in pod["initContainers"][0]["command"]]
    environment = {"NODE_NAME": "gpu-001", "PATH": "/usr/bin:/bin"}
    return subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False)


def test_the_condition_follows_the_node_and_keeps_jobs_away_while_it_is_unfit(
    api: Api, node: Any, tmp_path: Path
) -> None:
    def is_now(status: str) -> bool:
        return bool(conditions(api, "gpu-001").get("PyrometerUnfit", {}).get("status") == status)

    node.look(keep=True)
    with running(api, command(api, node, tmp_path, token(api, "gpu-001"), "gpu-001")) as process:
        assert eventually(lambda: is_now("False"), 60), process.stderr
        assert init_container(tmp_path).returncode == 0
        node.tree.nic("mlx5_3").down()
        assert eventually(lambda: is_now("True"), 60)
        found = conditions(api, "gpu-001")
        ours = found["PyrometerUnfit"]
        assert (ours["reason"], ours["message"], found["Ready"]["status"]) == ("CheckFailed", UNFIT, "True")
        said = init_container(tmp_path)
        assert (said.returncode, said.stderr) == (1, f"node gpu-001 is unfit for this job: {UNFIT}\n")
        node.config.write_text("checks: {gpu_cont: off}\n")
        assert eventually(lambda: is_now("Unknown"), 60)
        assert init_container(tmp_path).returncode == 0
        node.config.write_text("")
        assert eventually(lambda: is_now("True"), 60)
        process.terminate()
        _, errors = process.communicate(timeout=30)
    assert errors == ""
    assert conditions(api, "gpu-001")["PyrometerUnfit"]["message"] == "unknown: pyrometer-check has stopped"
    assert "PyrometerUnfit" not in conditions(api, "gpu-002")
    spec = api.ask("GET", "/api/v1/nodes/gpu-001")[1]["spec"]
    assert "unschedulable" not in spec, "a condition drains nobody"


def test_the_condition_of_another_node_is_refused_with_one_line(api: Api, node: Any, tmp_path: Path) -> None:
    node.look(keep=True)
    with running(api, command(api, node, tmp_path, token(api, "gpu-001"), "gpu-002")) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        process.terminate()
        _, more = process.communicate(timeout=30)
    assert line.startswith("pyrometer-check: can't write the condition of gpu-002: HTTP status 422: ")
    assert "a pod may change the condition of its own node only" in line
    assert more == ""
    assert "PyrometerUnfit" not in conditions(api, "gpu-002")


@pytest.mark.parametrize(
    ("change", "path", "status"),
    [
        (condition(), "/status", 200),
        (condition("Ready", "False"), "/status", 422),
        (condition("PyrometerUnfit2"), "/status", 422),
        ({"status": {"conditions": [{"type": "Ready", "$patch": "delete"}]}}, "/status", 422),
        ({"status": {"capacity": {"nvidia.com/gpu": "8"}}}, "/status", 422),
        ({"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.9"}]}}, "/status", 422),
        ({"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 1}}}}, "/status", 422),
        ({"metadata": {"labels": {"a": "b"}}}, "/status", 422),
        ({"metadata": {"annotations": {"pyrometer.io/policy-stop": "true"}}}, "/status", 422),
        ({"metadata": {"finalizers": ["x.example/y"]}}, "/status", 422),
        ({"spec": {"unschedulable": True}}, "", 403),
        ({"metadata": {"labels": {"a": "b"}}}, "", 403),
    ],
    ids=str,
)
def test_the_account_may_change_nothing_but_this_condition(api: Api, change: Any, path: str, status: int) -> None:
    answer = patch(api, token(api, "gpu-001"), "gpu-001", change, path)
    assert answer[0] == status, answer


@pytest.mark.parametrize("path", ["/api/v1/nodes", "/api/v1/nodes/gpu-001", "/api/v1/pods", "/api/v1/secrets"])
def test_the_account_may_read_nothing_but_the_status_of_nodes(api: Api, path: str) -> None:
    assert api.ask("GET", path, None, token(api, "gpu-001"))[0] == 403


def test_a_token_that_is_of_no_pod_may_write_nothing(api: Api) -> None:
    assert patch(api, token(api, "gpu-001", of_pod=False), "gpu-001", condition())[0] == 422


def test_a_job_with_the_init_container_is_accepted(api: Api, tmp_path: Path) -> None:
    pod = yaml.safe_load((FOLDER / "init-container.yaml").read_text(encoding="utf-8"))["spec"]
    failure = yaml.safe_load(titled("Job", "howto/kubernetes.md", "yaml"))["spec"]
    pod["containers"][0]["image"] = "training"
    template = {"spec": {**pod, "restartPolicy": "Never"}}
    job = {
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "training", "namespace": "default"},
        "spec": {"template": template, **failure},
    }  # fmt: skip
    (tmp_path / "job.json").write_text(json.dumps(job))
    assert "job.batch/training created" in kubectl(
        api, "create", "--dry-run=server", "--validate=strict", f"--filename={tmp_path}/job.json"
    )


def test_the_page_of_the_uninstallation_removes_the_condition_and_leaves_others(api: Api) -> None:
    assert patch(api, token(api, "gpu-002"), "gpu-002", condition())[0] == 200
    block = titled("Kubernetes, node condition", "howto/uninstall.md")
    words = f'kubectl() {{ command {chart.program("kubectl")} --kubeconfig={api.config} "$@"; }}; export -f kubectl\n'
    block = block.replace("xargs -I{} kubectl", f"xargs -I{{}} {chart.program('kubectl')} --kubeconfig={api.config}")
    answer = subprocess.run(["bash", "-ec", words + block], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    assert conditions(api, "gpu-002").keys() == {"Ready"}
