"""Kustomize builds what the chart renders, from the base as it is and with its comments taken out.

Where Helm or kustomize is missing, all is skipped: `make chart-programs` builds them.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.compose.test_helm import BASE, POLICY, ROOT, TWO, loaded, named, need, rendered

from pyrometer_alerting.policy.rules import load as load_policy
from pyrometer_dashboards.prometheus_rules import Wrapping, wrapped


@pytest.mark.parametrize("two", [False, True], ids=["one alerting service", "two"])
def test_kustomize_builds_the_same_objects(tmp_path: Path, two: bool) -> None:
    """With the rules written and the kernel's log asked for, as the comments in kustomization.yaml say."""
    built = _built(tmp_path, "  # - {path", *(["# components: [two-alerting-services]"] if two else ()))
    wanted = named(rendered("--set=node.kernelLog=true", *(TWO if two else ())))
    assert set(built) - set(wanted) == {("Namespace", "pyrometer")}
    assert set(wanted) - set(built) == set()
    for key, found in wanted.items():
        if key[0] == "ConfigMap":
            assert built[key]["data"] == found["data"]
        elif key[0] != "PrometheusRule":  # whose labels differ; compared above
            assert in_order(built[key]) == in_order(found), key


def in_order(found: Any) -> Any:
    """Sort lists of what has a name, as a patch puts its own first."""
    if isinstance(found, dict):
        return {key: in_order(value) for key, value in found.items()}
    if isinstance(found, list):
        ordered = [in_order(each) for each in found]
        return (
            sorted(ordered, key=lambda each: str(each["name"]))
            if ordered and isinstance(ordered[0], dict) and "name" in ordered[0]
            else ordered
        )
    return found


def test_kustomize_builds_the_condition_and_the_policy(tmp_path: Path) -> None:
    built = _built(tmp_path, "  # - node-condition", "  # - policy-rbac", "  # - {path", "# components: [policy]")
    wanted = named(rendered(POLICY, "--set=nodeCondition.enabled=true,node.kernelLog=true"))
    (file,) = [each for (kind, name), each in built.items() if (kind, name[:17]) == ("ConfigMap", "pyrometer-policy-")]
    (tmp_path / "policy.yaml").write_text(file["data"]["policy.yaml"])
    assert not load_policy(tmp_path / "policy.yaml").is_on
    assert wanted.keys() - built.keys() == {("ConfigMap", "pyrometer-alerting")}
    for key, found in wanted.items():
        if key[1] in ("pyrometer-condition", "pyrometer-policy") or key[0] == "NetworkPolicy":
            assert in_order(built[key]) == in_order(found), key
    pods = [each["Deployment", "pyrometer-alerting"]["spec"]["template"]["spec"] for each in (built, wanted)]
    for name in ("serviceAccountName", "automountServiceAccountToken"):
        assert pods[0][name] == pods[1][name]
    mount = next(each for each in pods[0]["containers"][0]["volumeMounts"] if each["name"] == "policy")
    assert f"--policy.file={mount['mountPath']}/policy.yaml" in pods[0]["containers"][0]["args"]
    assert {"name": "policy", "configMap": {"name": file["metadata"]["name"]}} in pods[0]["volumes"]


def _built(tmp_path: Path, *wanted: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Build the tree's files, with the rules and these lines of its comments taken out."""
    kustomize, tree = need("kustomize"), _copied(tmp_path, *wanted)
    answer = subprocess.run([kustomize, "build", tree], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    return named(list(loaded(answer.stdout)))


def _copied(tmp_path: Path, *wanted: str) -> Path:
    """Copy the tree's files that kustomize reads, with the rules and these lines of its comments taken out."""
    tree = tmp_path / "compose/kubernetes"
    boards = tmp_path / "dashboards/json"
    for part in (".", "two-alerting-services", "policy"):
        shutil.copytree(BASE / part, tree / part, dirs_exist_ok=True)
    shutil.copytree(ROOT / "dashboards/json", boards)
    texts = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "alert_rules").glob("*.rules.yaml")}
    (tree / "rules").mkdir()
    for name, text in wrapped(texts, Wrapping()).items():
        (tree / "rules" / name).write_text(text, encoding="utf-8")
    path = tree / "kustomization.yaml"
    text = path.read_text(encoding="utf-8")
    for comment in ("  # - rules", *wanted):
        assert f"\n{comment}" in text
        text = text.replace(f"\n{comment}", f"\n{comment.replace('# ', '', 1)}")
    path.write_text(text, encoding="utf-8")
    return tree
