"""The policy against a real API server: kube-apiserver over etcd, on loopback, with the rights of policy-rbac.yaml.

Needs kube-apiserver, etcd and openssl on PATH; skipped with the reason elsewhere.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from pyrometer_alerting.policy.kubernetes import TAINT, Kubernetes
from pyrometer_alerting.policy.rules import KubernetesSettings
from pyrometer_alerting.policy.schedulers import RefusedError, SchedulerError
from pyrometer_simulator.ports import free_port

RIGHTS = Path(__file__).resolve().parents[2] / "compose/kubernetes/policy-rbac.yaml"
MISSING = [name for name in ("kube-apiserver", "etcd", "openssl") if shutil.which(name) is None]
ACCOUNT = "/api/v1/namespaces/pyrometer/serviceaccounts"
PATHS = {
    "ServiceAccount": ACCOUNT,
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "ValidatingAdmissionPolicy": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
}
ADMINISTRATOR = "administrator"
MERGE = "application/merge-patch+json"
MARKS = ("pyrometer:0123456789ab", "pyrometer:0123456789ac")

pytestmark = [
    pytest.mark.compose,
    pytest.mark.e2e,
    pytest.mark.skipif(bool(MISSING), reason=f"no {', '.join(MISSING)} on PATH"),
]


class Api:
    """An API server of its own, and an administrator's calls."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._started = folder, list[subprocess.Popen[bytes]]()
        self.url = f"https://127.0.0.1:{free_port()}"
        self.certificate, self.token = folder / "server.crt", folder / "token"

    def start(self) -> None:
        folder, port, peer = self._folder, free_port(), free_port()
        subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
        new = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
        subprocess.run(
            [*new, "-keyout", folder / "server.key", "-out", self.certificate], check=True, capture_output=True
        )
        subprocess.run(["openssl", "genrsa", "-out", folder / "account.key", "2048"], check=True, capture_output=True)
        (folder / "tokens.csv").write_text(f"{ADMINISTRATOR},admin,1,system:masters\n")
        etcd = f"http://127.0.0.1:{port}"
        self._start(
            "etcd", f"--data-dir={folder}/etcd", f"--listen-client-urls={etcd}", f"--advertise-client-urls={etcd}",
            f"--listen-peer-urls=http://127.0.0.1:{peer}",
        )  # fmt: skip
        self._start(
            "kube-apiserver", f"--etcd-servers={etcd}", f"--secure-port={self.url.rpartition(':')[2]}",
            "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", f"--tls-cert-file={self.certificate}",
            f"--tls-private-key-file={folder}/server.key", f"--service-account-key-file={folder}/account.key",
            f"--service-account-signing-key-file={folder}/account.key", f"--service-account-issuer={self.url}",
            "--authorization-mode=RBAC", f"--token-auth-file={folder}/tokens.csv",
            "--service-cluster-ip-range=10.0.0.0/24",
        )  # fmt: skip
        self._until_ready()

    def _start(self, *command: str) -> None:
        with (self._folder / f"{command[0]}.log").open("wb") as log:
            self._started.append(subprocess.Popen(command, stdout=log, stderr=log, env=dict(os.environ)))

    def _until_ready(self) -> None:
        deadline = time.monotonic() + 120
        while True:
            try:
                if self.ask("GET", "/readyz")[0] == 200:
                    return
            except requests.RequestException:
                pass
            assert time.monotonic() < deadline, (self._folder / "kube-apiserver.log").read_text()[-2000:]
            time.sleep(0.5)

    def ask(self, method: str, path: str, body: Any = None, token: str = ADMINISTRATOR) -> tuple[int, Any]:
        kind = MERGE if method == "PATCH" else "application/json"
        headers = {"Authorization": f"Bearer {token}", "Content-Type": kind}
        answer = requests.request(
            method, self.url + path, json=body, headers=headers, verify=str(self.certificate), timeout=10
        )
        return answer.status_code, answer.json() if answer.text.startswith("{") else answer.text

    def give_rights(self) -> None:
        self.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "pyrometer"}})
        for document in yaml.safe_load_all(RIGHTS.read_text(encoding="utf-8")):
            status, said = self.ask("POST", f"{PATHS[document['kind']]}?fieldValidation=Strict", document)
            assert status == 201, said
        status, said = self.ask("POST", f"{ACCOUNT}/pyrometer-policy/token", {"spec": {}})
        assert status == 201, said
        self.token.write_text(said["status"]["token"])

    def add_node(self, name: str) -> None:
        taint = {"key": "other", "effect": "NoSchedule"}
        node = {"metadata": {"name": name, "labels": {"pool": "a"}}, "spec": {"taints": [taint]}}
        assert self.ask("POST", "/api/v1/nodes", node)[0] == 201
        ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        assert self.ask("PATCH", f"/api/v1/nodes/{name}/status", ready)[0] == 200

    def stop(self) -> None:
        for process in reversed(self._started):
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(20)


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    server = Api(tmp_path_factory.mktemp("kubernetes"))
    try:
        server.start()
        server.give_rights()
        for number in range(3):
            server.add_node(f"n{number}")
        yield server
    finally:
        server.stop()


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
    kubernetes.drain("n1", "pyrometer: GpuLost http://p/#1", MARKS[0])
    state = kubernetes.nodes()["n1"]
    assert (state.in_service, state.held, state.pools, state.marks) == (False, True, ("pool=a",), MARKS[0])
    assert state.why == f"pyrometer: GpuLost http://p/#1 [{MARKS[0]}]"
    assert taints(api, "n1") - {"node.kubernetes.io/unschedulable"} == before | {TAINT}
    kubernetes.resume("n1", MARKS[1])
    state = kubernetes.nodes()["n1"]
    assert (state.in_service, state.held, state.why, state.marks) == (True, False, "", MARKS[1])
    assert taints(api, "n1") == before


def test_a_cordon_by_a_person_is_not_ours(api: Api, kubernetes: Kubernetes) -> None:
    assert api.ask("PATCH", "/api/v1/nodes/n2", {"spec": {"unschedulable": True}})[0] == 200
    state = kubernetes.nodes()["n2"]
    assert (state.held, state.why) == (True, "cordoned")


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"labels": {"x": "y"}}},
        {"metadata": {"annotations": {"x": "y"}}},
        {"spec": {"taints": [{"key": TAINT, "effect": "NoSchedule"}]}},  # without that of others
    ],
)
def test_the_account_may_change_nothing_else_of_a_node(api: Api, change: dict[str, Any]) -> None:
    token = api.token.read_text()
    deadline = time.monotonic() + 30  # an admission policy is in force a moment after it was made
    while (answer := api.ask("PATCH", "/api/v1/nodes/n0", change, token))[0] == 200 and time.monotonic() < deadline:
        time.sleep(0.5)
    assert answer[0] == 422, answer


@pytest.mark.parametrize(
    ("method", "path"),
    [("DELETE", "/api/v1/nodes/n0"), ("GET", "/api/v1/pods"), ("GET", "/api/v1/secrets"), ("POST", "/api/v1/nodes")],
)
def test_the_account_may_do_nothing_else(api: Api, method: str, path: str) -> None:
    assert api.ask(method, path, {} if method == "POST" else None, api.token.read_text())[0] == 403


def test_refusals_and_silence_are_told_apart(api: Api, kubernetes: Kubernetes, tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="404"):
        kubernetes.drain("nope", "x", MARKS[0])
    (tmp_path / "token").write_text("wrong")
    with pytest.raises(RefusedError, match="401"):
        Kubernetes(KubernetesSettings(api.url, tmp_path / "token", api.certificate)).nodes()
    away = KubernetesSettings(f"https://127.0.0.1:{free_port()}", api.token, api.certificate)
    with pytest.raises(SchedulerError) as error:
        Kubernetes(away).nodes()
    assert not isinstance(error.value, RefusedError)
