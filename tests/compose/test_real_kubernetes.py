"""The policy against a real API server: kube-apiserver over etcd, on loopback, with the rights of policy-rbac.yaml.

Needs kube-apiserver, etcd and openssl; skipped with the reason elsewhere.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.compose.api_server import SERVER, Api, missing

from pyrometer_alerting.policy.kubernetes import TAINT, Kubernetes
from pyrometer_alerting.policy.rules import KubernetesSettings
from pyrometer_alerting.policy.schedulers import Claim, RefusedError, SchedulerError
from pyrometer_simulator.ports import free_port

RIGHTS = Path(__file__).resolve().parents[2] / "compose/kubernetes/policy-rbac.yaml"
MISSING = missing(*SERVER)
ACCOUNT = "/api/v1/namespaces/pyrometer/serviceaccounts"
PATHS = {
    "ServiceAccount": ACCOUNT,
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "ValidatingAdmissionPolicy": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
}
CLAIM = Claim(("GpuLost",), 1_764_400_000.0)
MARKS = ("pyrometer:0123456789ab", "pyrometer:0123456789ac")

pytestmark = [
    pytest.mark.compose,
    pytest.mark.e2e,
    pytest.mark.skipif(bool(MISSING), reason=MISSING),
]


def give_rights(api: Api) -> None:
    api.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "pyrometer"}})
    for document in yaml.safe_load_all(RIGHTS.read_text(encoding="utf-8")):
        status, said = api.ask("POST", f"{PATHS[document['kind']]}?fieldValidation=Strict", document)
        assert status == 201, said
    status, said = api.ask("POST", f"{ACCOUNT}/pyrometer-policy/token", {"spec": {}})
    assert status == 201, said
    api.token.write_text(said["status"]["token"])


def add_node(api: Api, name: str) -> None:
    taint = {"key": "other", "effect": "NoSchedule"}
    node = {"metadata": {"name": name, "labels": {"pool": "a"}}, "spec": {"taints": [taint]}}
    assert api.ask("POST", "/api/v1/nodes", node)[0] == 201
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    assert api.ask("PATCH", f"/api/v1/nodes/{name}/status", ready)[0] == 200


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with Api.running(tmp_path_factory.mktemp("kubernetes")) as server:
        give_rights(server)
        for number in range(3):
            add_node(server, f"n{number}")
        wait_for_policy(server)
        yield server


def wait_for_policy(server: Api, seconds: float = 60.0) -> None:
    """Return once the admission policy is in force, a moment after it was made; what changes nothing it lets pass."""
    token, deadline = server.token.read_text(), time.monotonic() + seconds
    for number in itertools.count():
        change = {"metadata": {"labels": {"probe": str(number)}}}
        if server.ask("PATCH", "/api/v1/nodes/n0", change, token)[0] == 422:
            return
        assert time.monotonic() < deadline, "no admission policy"
        time.sleep(0.5)


@pytest.fixture
def kubernetes(api: Api) -> Kubernetes:
    return Kubernetes(KubernetesSettings(api.url, api.token, api.certificate, selector="pool", pool="pool"))


def taints(api: Api, node: str) -> set[str]:
    return {each["key"] for each in api.ask("GET", f"/api/v1/nodes/{node}")[1]["spec"].get("taints", ())}


def test_a_node_is_cordoned_tainted_and_put_back_and_the_taints_of_others_stay(
    api: Api, kubernetes: Kubernetes
) -> None:
    before = taints(api, "n1")
    assert kubernetes.nodes()["n1"].in_service
    kubernetes.drain("n1", "pyrometer: GpuLost http://p/#1", MARKS[0], CLAIM)
    state = kubernetes.nodes()["n1"]
    assert (state.in_service, state.held, state.pools, state.marks) == (False, True, ("pool=a",), MARKS[0])
    assert state.why == f"pyrometer: GpuLost http://p/#1 [{MARKS[0]}]"
    assert taints(api, "n1") - {"node.kubernetes.io/unschedulable"} == before | {TAINT}
    kubernetes.resume("n1", MARKS[1], state.why)
    state = kubernetes.nodes()["n1"]
    assert (state.in_service, state.held, state.why, state.marks) == (True, False, "", MARKS[1])
    assert taints(api, "n1") == before


def test_claims_returns_and_the_switch_are_annotations_that_the_account_may_write(kubernetes: Kubernetes) -> None:
    why = f"pyrometer: check gpu_count failed [{MARKS[0]}]"
    kubernetes.drain("n1", "pyrometer: check gpu_count failed", MARKS[0], Claim(("gpu_count",), 1_795_300_000.0))
    state = kubernetes.nodes()["n1"]
    assert (state.is_ours, state.why, state.claim and state.claim.topics) == (True, why, ("gpu_count",))
    for refused in (
        lambda: kubernetes.drain("n1", "pyrometer: again", MARKS[1], CLAIM),
        lambda: kubernetes.resume("n1", MARKS[1], "pyrometer: another reason"),
    ):
        with pytest.raises(RefusedError):
            refused()
    kubernetes.stop("n0", on=True)
    assert [state.name for state in kubernetes.nodes().values() if state.stops] == ["n0"]
    kubernetes.stop("n0", on=False)
    kubernetes.resume("n1", MARKS[1], why, 1_795_300_100.0)
    state = kubernetes.nodes()["n1"]
    assert (state.in_service, state.claim, state.returned_at, state.stops) == (True, None, 1_795_300_100.0, False)


def test_the_commands_stop_list_and_undo_with_this_account(api: Api, kubernetes: Kubernetes, tmp_path: Path) -> None:
    def drains(*words: str) -> str:
        command = [sys.executable, "-m", "pyrometer_alerting.app.main", "drains", words[0], f"--policy.file={file}"]
        answer = subprocess.run([*command, *words[1:]], capture_output=True, text=True, check=False)
        assert answer.returncode == 0, answer.stderr
        return answer.stdout

    file = tmp_path / "policy.yaml"
    here = {"url": api.url, "token-file": str(api.token), "ca-file": str(api.certificate), "selector": "pool"}
    file.write_text(yaml.safe_dump({"clusters": {"prod": {"kubernetes": here}}, "rules": []}))
    kubernetes.drain("n1", "pyrometer: GpuLost http://p/#1", MARKS[0], CLAIM)
    assert "n1" in drains("list")
    drains("stop")
    assert any(state.stops for state in kubernetes.nodes().values())
    drains("start")
    assert not any(state.stops for state in kubernetes.nodes().values())
    drains("undo", "n1")
    state = kubernetes.nodes()["n1"]
    assert (state.in_service, state.claim) == (True, None)


def test_a_cordon_by_a_person_is_not_ours(api: Api, kubernetes: Kubernetes) -> None:
    assert api.ask("PATCH", "/api/v1/nodes/n2", {"spec": {"unschedulable": True}})[0] == 200
    state = kubernetes.nodes()["n2"]
    assert (state.held, state.why) == (True, "cordoned")


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"labels": {"x": "y"}}},
        {"metadata": {"annotations": {"x": "y"}}},
        {"metadata": {"finalizers": ["x.example/y"]}},
        {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "1"}]}},  # collected
        {"spec": {"taints": [{"key": TAINT, "effect": "NoSchedule"}]}},  # without that of others
        {"spec": {"providerID": "x://y"}},
    ],
)
def test_the_account_may_change_nothing_else_of_a_node(api: Api, change: dict[str, Any]) -> None:
    answer = api.ask("PATCH", "/api/v1/nodes/n0", change, api.token.read_text())
    assert answer[0] == 422, answer


@pytest.mark.parametrize(
    ("method", "path"),
    [("DELETE", "/api/v1/nodes/n0"), ("GET", "/api/v1/pods"), ("GET", "/api/v1/secrets"), ("POST", "/api/v1/nodes")],
)
def test_the_account_may_do_nothing_else(api: Api, method: str, path: str) -> None:
    assert api.ask(method, path, {} if method == "POST" else None, api.token.read_text())[0] == 403


def test_refusals_and_silence_are_told_apart(api: Api, kubernetes: Kubernetes, tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="404"):
        kubernetes.drain("nope", "x", MARKS[0], CLAIM)
    (tmp_path / "token").write_text("wrong")
    with pytest.raises(
        SchedulerError, match="401"
    ) as error:  # of the request, such as a token that ran out: tried again
        Kubernetes(KubernetesSettings(api.url, tmp_path / "token", api.certificate)).nodes()
    assert not isinstance(error.value, RefusedError)
    away = KubernetesSettings(f"https://127.0.0.1:{free_port()}", api.token, api.certificate)
    with pytest.raises(SchedulerError) as error:
        Kubernetes(away).nodes()
    assert not isinstance(error.value, RefusedError)
