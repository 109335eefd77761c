"""The Kubernetes pages' blocks, followed with Helm and kubectl: install, upgrade, way back, uninstall, kustomize.

A kube-apiserver with its controllers and the Prometheus operator's definitions; no kubelet, so that no pod runs: the
test declares them ready, as a kubelet would. Needs `make chart-programs cluster-programs` and etcd; skipped with the
reason elsewhere.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.compose.api_server import RUNTIME_CLASS, SERVER, Api, missing
from tests.compose.containers import eventually
from tools import chart

ROOT = Path(__file__).resolve().parents[2]
PAGES = "\n".join(
    (ROOT / f"docs/{page}.md").read_text(encoding="utf-8")
    for page in ("howto/kubernetes", "upgrading", "howto/uninstall", "howto/two-alerting-services")
)
# The first release of the chart, which has objects that are named otherwise or absent today.
BEFORE = "e3cef58c"
MISSING = missing(*SERVER, "kube-controller-manager", "kubectl", "helm")
PART = "app.kubernetes.io/part-of=pyrometer"
# Written by the cluster on its own, and kept by Helm of a release that is installed.
OWN = ("event", "lease.", "endpoint", "controllerrevision", "secret/sh.helm.", "componentstatus", "ipaddress.")
KINDS = "deployments,daemonsets,services,configmaps,networkpolicies,servicemonitors,prometheusrules,alertmanagerconfigs"
READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
# The page expects both, as the GPU operator makes them.
GPU_NODE = {
    "class": RUNTIME_CLASS,
    "node": {
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "n0", "labels": {"nvidia.com/gpu.present": "true"}},
    },
}  # fmt: skip

pytestmark = [
    pytest.mark.compose, pytest.mark.e2e, pytest.mark.timeout(600),
    pytest.mark.skipif(bool(MISSING), reason=MISSING),
]  # fmt: skip


def block(title: str, kind: str = "sh") -> str:
    found = re.findall(rf'^```{kind} title="{re.escape(title)}"\n(.*?)^```$', PAGES, re.MULTILINE | re.DOTALL)
    assert len(found) == 1, title
    return str(found[0])


class Person:
    """Somebody with kubectl and Helm, in a checkout with the page's values.yaml beside it."""

    def __init__(self, api: Api, folder: Path) -> None:
        self.folder = folder
        bin_folder = folder / "bin"
        bin_folder.mkdir()
        for name in ("kubectl", "helm"):
            (bin_folder / name).symlink_to(chart.program(name) or name)
        self._env = {
            **os.environ, "KUBECONFIG": str(api.config), "HOME": str(folder),
            "PATH": f"{bin_folder}:{Path(os.sys.executable).parent}:{os.environ['PATH']}",  # type: ignore[attr-defined]
        }  # fmt: skip
        for name in ("compose", "alert_rules", "dashboards"):
            shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        (folder / "values.yaml").write_text(block("values.yaml", "yaml"))
        (folder / "bot-token").write_text("xoxb-of-nobody")

    def play(self, commands: str, seconds: float = 120.0) -> str:
        answer = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", commands], cwd=self.folder, env=self._env, text=True,
            stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False,
        )  # fmt: skip
        assert answer.returncode == 0, f"{commands}\n{answer.stdout[-3000:]}{answer.stderr[-3000:]}"
        return answer.stdout

    def get(self, what: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.play(f"kubectl --namespace=pyrometer get {what} --output=json"))
        return found

    def objects(self, selector: str = "") -> set[str]:
        """Return the names of all objects of the cluster that nobody but a person or Helm has made."""
        kinds = "$(kubectl api-resources --verbs=list --output=name | paste -sd,)"
        chosen = f"--selector={selector}" if selector else ""
        lines = self.play(f"kubectl get {kinds} --all-namespaces --output=name {chosen}").split()
        return {line for line in lines if not line.startswith(OWN)}

    def ready(self, deployment: str) -> int | None:
        """Return how many pods a deployment has, all of today's kind and ready; None while it is being rolled out."""
        for pod in self.get("pods")["items"]:
            if "conditions" not in pod["status"]:
                name, status = pod["metadata"]["name"], json.dumps({"status": READY})
                self.play(f"kubectl --namespace=pyrometer patch pod/{name} --subresource=status --patch='{status}'")
        found = self.get(f"deployment/{deployment}")
        wanted, status = found["spec"]["replicas"], found["status"]
        if status.get("observedGeneration") != found["metadata"]["generation"]:
            return None
        counts = [status.get(name, 0) for name in ("replicas", "updatedReplicas", "availableReplicas")]
        return wanted if counts == [wanted] * 3 else None

    def pods(self) -> list[str]:
        return sorted(each["metadata"]["labels"]["app.kubernetes.io/name"] for each in self.get("pods")["items"])

    def claim(self) -> str | None:
        """Return which claim holds the alerting service's state."""
        found = self.get("persistentvolumeclaims")["items"]
        return next(
            (each["metadata"]["uid"] for each in found if each["metadata"]["name"] == "pyrometer-alerting"), None
        )


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    with Api.running(tmp_path_factory.mktemp("chart-api"), controllers=True) as api:
        found = Person(api, tmp_path_factory.mktemp("chart"))
        found.play(f"kubectl create --filename={chart.folder() / 'definitions'}")
        found.play("kubectl create namespace monitoring")
        for name, document in GPU_NODE.items():
            (found.folder / f"{name}.json").write_text(json.dumps(document))
            found.play(f"kubectl create --filename={name}.json")
        yield found


@pytest.fixture
def empty(person: Person) -> Iterator[set[str]]:
    """Yield the cluster without our objects, and remove what a failed test has left."""
    before = person.objects()
    yield before
    person.play(
        "helm uninstall pyrometer --namespace=pyrometer --ignore-not-found; "
        "kubectl delete namespace pyrometer --ignore-not-found --timeout=90s"
    )
    for path in ("compose/kubernetes", "compose/helm"):
        shutil.rmtree(person.folder / path)
        shutil.copytree(ROOT / path, person.folder / path, symlinks=True)


def install(person: Person) -> None:
    person.play(block("install"))
    assert eventually(lambda: len(person.pods()) == 3, 60), person.pods()


def test_the_pages_installation_is_accepted_and_makes_the_pods(person: Person, empty: set[str]) -> None:
    install(person)
    assert person.pods() == ["pyrometer-alerting", "pyrometer-cluster", "pyrometer-node"]
    ours = person.objects(PART)
    kinds = {name.partition("/")[0].partition(".")[0] for name in ours}
    assert kinds >= {
        "daemonset", "deployment", "service", "persistentvolumeclaim", "configmap", "networkpolicy",
        "servicemonitor", "prometheusrule", "alertmanagerconfig",
    }  # fmt: skip
    assert len([name for name in ours if name.startswith("prometheusrule")]) == len(
        list((ROOT / "alert_rules").glob("*.rules.yaml"))
    )


def test_an_upgrade_keeps_the_state_and_the_way_back_brings_the_old_objects_back(
    person: Person, empty: set[str]
) -> None:
    before(person)
    install(person)
    first, old = person.claim(), spec(person)
    now(person)
    person.play(block("up: Kubernetes"))
    assert person.claim() == first
    new = spec(person)
    assert new != old
    person.play(block("back: Kubernetes"))
    assert spec(person) == old
    assert (person.claim() or first) != first
    assert eventually(lambda: len(person.pods()) == 3, 60), person.pods()
    assert person.get("deployment/pyrometer-alerting")["spec"]["replicas"] == 1


def before(person: Person) -> None:
    """Put the chart of the release before in the place of today's, with the values that it knows."""
    shutil.rmtree(person.folder / "compose/helm")
    command = f"git -C {ROOT} archive {BEFORE} compose/helm | tar -x"
    person.play(command)


def now(person: Person) -> None:
    shutil.rmtree(person.folder / "compose/helm")
    shutil.copytree(ROOT / "compose/helm", person.folder / "compose/helm", symlinks=True)


def spec(person: Person) -> dict[str, Any]:
    """Return what the cluster's objects of ours are to be, by kind and name, without the addresses that it chooses."""
    found = person.get(f"{KINDS} --selector={PART}")["items"]
    own = ("clusterIP", "clusterIPs")
    return {
        f"{each['kind']}/{each['metadata']['name']}": {
            **{key: value for key, value in each.get("spec", {}).items() if key not in own}, "data": each.get("data"),
        }
        for each in found
    }  # fmt: skip


def test_two_alerting_services_are_an_upgrade_and_the_way_back_is_one(person: Person, empty: set[str]) -> None:
    install(person)
    (person.folder / "values-two.yaml").write_text(block("values.yaml, two alerting services", "yaml"))
    person.play("kubectl --namespace=pyrometer create secret generic pyrometer-database --from-literal=password=x")
    person.play(block("up: Kubernetes").rstrip() + " --values=values-two.yaml")
    assert eventually(lambda: person.ready("pyrometer-alerting") == 2, 60), person.get("deployment/pyrometer-alerting")
    # The file's claim is kept: the way back finds what it had.
    assert person.claim() is not None
    person.play("helm rollback pyrometer --namespace=pyrometer")
    assert eventually(lambda: person.ready("pyrometer-alerting") == 1, 60), person.get("deployment/pyrometer-alerting")


def test_the_condition_and_the_policy_are_an_upgrade_and_come_with_accounts_that_may_do_their_work(
    person: Person, empty: set[str]
) -> None:
    install(person)
    titles = ("node condition", "policy", "proxy")
    for title in titles:
        (person.folder / f"values-{title}.yaml").write_text(block(f"values.yaml, {title}", "yaml"))
    person.play("kubectl --namespace=pyrometer create secret generic desk --from-literal=token=x")
    person.play("kubectl --namespace=pyrometer create configmap example-ca --from-literal=ca.crt=x")
    more = " ".join(f"--values='values-{title}.yaml'" for title in titles)
    person.play(f"{block('up: Kubernetes').rstrip()} {more}")
    assert eventually(lambda: "pyrometer-condition" in person.pods(), 60), person.pods()
    assert eventually(lambda: person.ready("pyrometer-alerting") == 1, 60), person.get("deployment/pyrometer-alerting")
    pod = person.get("deployment/pyrometer-alerting")["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == "pyrometer-policy"
    for account, right, answer in (
        ("policy", "patch nodes", "yes"),
        ("policy", "patch nodes --subresource=status", "no"),
        ("policy", "delete nodes", "no"),
        ("policy", "get secrets --namespace=pyrometer", "no"),
        ("condition", "patch nodes --subresource=status", "yes"),
        ("condition", "patch nodes", "no"),
        ("condition", "list pods", "no"),
    ):
        who = f"--as=system:serviceaccount:pyrometer:pyrometer-{account}"
        said = person.play(f"kubectl auth can-i {right} {who} 2>/dev/null || true").strip()
        assert (account, right, said) == (account, right, answer)
    person.play("helm uninstall pyrometer --namespace=pyrometer")
    claims = {"persistentvolumeclaim/pyrometer-alerting", "persistentvolumeclaim/pyrometer-cluster"}
    assert eventually(lambda: person.objects(PART) == claims, 60), person.objects(PART)


def test_what_is_uninstalled_is_gone_and_its_state_stays_until_the_second_line(person: Person, empty: set[str]) -> None:
    install(person)
    first, kept = (
        person.claim(),
        {"persistentvolumeclaim/pyrometer-alerting", "persistentvolumeclaim/pyrometer-cluster"},
    )
    helm, rest = block("Kubernetes").split("\n", 1)
    person.play(helm)
    assert eventually(lambda: person.objects(PART) == kept, 60), person.objects(PART)
    person.play("helm install pyrometer compose/helm/pyrometer --namespace=pyrometer --values=values.yaml")
    assert person.claim() == first
    person.play(helm + "\n" + rest)
    assert eventually(lambda: person.objects() == empty, 60), person.objects() ^ empty


def test_by_kustomize_the_same_comes_and_goes(person: Person, empty: set[str]) -> None:
    person.play(block("kustomize"))
    assert eventually(lambda: len(person.pods()) == 3, 60), person.pods()
    path = person.folder / "compose/kubernetes/kustomization.yaml"
    for comment in ("# - node-condition", "# - policy-rbac", "# components: [policy]"):
        path.write_text(path.read_text().replace(comment, comment.removeprefix("# ")))
    person.play(block("kustomize"))  # an upgrade is the same command
    assert eventually(lambda: "pyrometer-condition" in person.pods(), 60), person.pods()
    person.play("kubectl delete --kustomize compose/kubernetes --timeout=90s")
    assert eventually(lambda: person.objects() == empty, 60), person.objects() ^ empty
