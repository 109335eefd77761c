"""The programs of the Kubernetes tests, as far as it can be tried without building them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tools import chart

OWN_MODULE = """module k8s.io/kubernetes

go 1.24.0

require k8s.io/api v0.0.0

replace (
\tk8s.io/api => ./staging/src/k8s.io/api
\tk8s.io/kubectl => ./staging/src/k8s.io/kubectl
)
"""
# go, as far as the tool calls it; `install` leaves what it was given.
GO = """#!/bin/sh
case "$1 $2" in
"mod download") echo '{answer}' ;;
"mod tidy") ;;
*) printf '%s\\n' "$@" >"{folder}/installed"; cp go.mod "{folder}/module" ;;
esac
"""


def test_the_server_is_built_of_the_parts_of_its_own_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own").write_text(OWN_MODULE)
    definitions = tmp_path / "example/prometheus-operator-crd"
    definitions.mkdir(parents=True)
    (definitions / "a.yaml").write_text("kind: CustomResourceDefinition\n")
    answer = json.dumps({"GoMod": str(tmp_path / "own"), "Dir": str(tmp_path)})
    (tmp_path / "go").write_text(GO.format(answer=answer, folder=tmp_path))
    (tmp_path / "go").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert chart.main(["cluster"]) == 0
    module = (tmp_path / "module").read_text().splitlines()
    assert {line for line in module if line.startswith(("go ", "require ", "replace "))} == {
        "go 1.24.0",
        "require k8s.io/kubernetes v1.34.1",
        "replace k8s.io/api => k8s.io/api v0.34.1",
        "replace k8s.io/kubectl => k8s.io/kubectl v0.34.1",
    }
    installed = (tmp_path / "installed").read_text().splitlines()
    assert [line for line in installed if line.startswith("k8s.io/")] == [
        f"k8s.io/kubernetes/cmd/{name}" for name in ("kube-apiserver", "kube-controller-manager", "kubectl")
    ]
    assert (chart.folder() / "definitions/a.yaml").exists()


def test_without_go_one_line_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match=r"no go: install Go .*, or put kube-apiserver, .*kubectl on PATH"):
        chart.main(["cluster"])
