"""Write the kustomize base from the Helm chart, and fetch the programs and schemas that check both.

    python tools/chart.py render compose/kubernetes     make kubernetes
    python tools/chart.py boards dashboards/json        make reference: the list of boards
    python tools/chart.py package dist                  make packages
    python tools/chart.py programs                      make chart-programs: those, nfpm, and schemas
    python tools/chart.py cluster                       make cluster-programs: a Kubernetes for tests, and kubectl

The chart is the truth. Each rendered file names the digest of the chart that it was rendered from, so that one that is
stale is found where there is no Helm as well. Programs are built from the Go module proxy, schemas of Kubernetes come
from the package kubernetes-validate on PyPI, and those of the Prometheus operator from its own module.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from pyrometer_simulator.stack.cache import cache_folder

ROOT = Path(__file__).resolve().parents[1]
CHART = ROOT / "compose/helm/pyrometer"
# Boards and rules are those of the tree: dashboards/json/kustomization.yaml, `pyrometer-dashboards rules`.
DEFAULTS = ("node-daemonset", "node-service", "cluster-exporter", "alerting", "monitors", "networkpolicy")
# Rendered on demand only, each with the value that asks for it.
ON_DEMAND = {
    "node-condition": "nodeCondition.enabled=true",
    "policy-rbac": "alerting.policy.clusters.cluster.kubernetes.pool=",
}
RENDERED = (*DEFAULTS, *ON_DEMAND)
KUBERNETES = "1.31.0"
PROGRAMS = {
    "helm": "helm.sh/helm/v3/cmd/helm@v3.22.0",
    "kubeconform": "github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0",
    "nfpm": "github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.43.0",  # tools/packages.py
    "kustomize": "sigs.k8s.io/kustomize/kustomize/v5@v5.7.1",  # newer ones need Go 1.27
}
OPERATOR = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
VALIDATE = "kubernetes-validate==1.37.0"
SERVER = "k8s.io/kubernetes"
SERVER_VERSION = "1.34.1"
SERVER_PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kubectl")


def folder() -> Path:
    """Return the folder of the cache with the programs and schemas."""
    return cache_folder().parent / "kubernetes"


def program(name: str) -> Path | None:
    """Return one of our programs, from our cache or PATH; None where there is none."""
    built = folder() / "bin" / name
    found = str(built) if built.exists() else shutil.which(name)
    return Path(found) if found else None


def schemas() -> tuple[Path, ...]:
    """Return kubeconform's patterns of paths to schemas, as far as they are in the cache."""
    places = {
        "kubernetes": "{{.ResourceKind}}{{.KindSuffix}}.json",
        "operator": "{{.ResourceKind}}-{{.ResourceAPIVersion}}.json",
    }
    return tuple(folder() / name / pattern for name, pattern in places.items() if (folder() / name).is_dir())


def helm(*arguments: str) -> str:
    """Return Helm's output.

    Raises:
        SystemExit: There is no Helm, or it failed, with its own words.
    """
    found = program("helm")
    if found is None:
        raise SystemExit("chart: no helm: `make chart-programs` builds it, or install Helm 3.14 or newer")
    answer = subprocess.run([found, *arguments], capture_output=True, text=True, check=False)
    if answer.returncode:
        said = [line for line in answer.stderr.splitlines() if "found symbolic link" not in line]
        raise SystemExit("\n".join(["chart: helm failed", *said]))
    return answer.stdout


def template(*arguments: str) -> str:
    """Return the objects of the chart as the release pyrometer in the namespace pyrometer."""
    return helm(
        "template", "pyrometer", str(CHART), "--namespace=pyrometer", f"--kube-version={KUBERNETES}", *arguments
    )


def digest() -> str:
    """Return the digest of what the rendered files depend on."""
    found = hashlib.sha256()
    for name in ("Chart.yaml", "values.yaml", *sorted(path.name for path in (CHART / "templates").iterdir())):
        path = CHART / name if (CHART / name).exists() else CHART / "templates" / name
        found.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()[:16]


def rendered() -> dict[str, str]:
    """Return the files of the kustomize base by name."""
    texts = [template("--set=rules.enabled=false,boards.enabled=false")]
    texts += [template(f"--set={on}", f"--show-only=templates/{name}.yaml") for name, on in ON_DEMAND.items()]
    parts: dict[str, list[str]] = {name: [] for name in RENDERED}
    for document in re.split(r"(?m)^---\n", "\n---\n".join(texts)):
        source = re.match(r"# Source: pyrometer/templates/([\w-]+)\.yaml\n", document)
        if source:
            parts[source[1]].append(document[source.end() :].rstrip() + "\n")
    head = f"# Rendered from compose/helm/pyrometer, digest {digest()}: change that, then run `make kubernetes`.\n"
    return {f"{name}.yaml": head + "---\n".join(documents) for name, documents in parts.items()}


def fetch() -> None:
    """Build the programs and put the schemas in order, into the cache."""
    if shutil.which("go") is None:
        raise SystemExit("chart: no go: install Go 1.24 or newer, or put helm, kubeconform, kustomize and nfpm on PATH")
    for name, module in PROGRAMS.items():
        if not (folder() / "bin" / name).exists():
            _install(module)
    if not (folder() / "kubernetes").is_dir():
        _kubernetes_schemas(folder() / "kubernetes")
    if not (folder() / "operator").is_dir():
        _operator_schemas(folder() / "operator")


def fetch_cluster() -> None:
    """Build kube-apiserver, its controllers and kubectl, and fetch the operator's definitions, into the cache."""
    if shutil.which("go") is None:
        raise SystemExit(f"chart: no go: install Go 1.24 or newer, or put {', '.join(SERVER_PROGRAMS)} on PATH")
    wanted = [name for name in SERVER_PROGRAMS if not (folder() / "bin" / name).exists()]
    if wanted:
        with tempfile.TemporaryDirectory() as scratch:
            _server_module(Path(scratch))
            variable = "k8s.io/component-base/version.git"
            major, minor, _ = SERVER_VERSION.split(".")
            said = {"Version": f"v{SERVER_VERSION}", "Major": major, "Minor": minor}
            flags = " ".join(["-s", "-w", *(f"-X {variable}{name}={value}" for name, value in said.items())])
            _install("-p=2", f"-ldflags={flags}", *(f"{SERVER}/cmd/{name}" for name in wanted), cwd=Path(scratch))
    if not (folder() / "definitions").is_dir():
        shutil.copytree(_definitions(), folder() / "definitions")


def _server_module(into: Path) -> None:
    """Write a module that needs Kubernetes: its own names its parts by folders that only its repository has."""
    version = f"v{SERVER_VERSION}"
    own = Path(json.loads(_go("mod", "download", "-json", f"{SERVER}@{version}"))["GoMod"]).read_text(encoding="utf-8")
    parts = re.findall(r"^\t(k8s\.io/\S+) => \./staging", own, re.MULTILINE)
    replaced = [f"replace {part} => {part} v0.{SERVER_VERSION.partition('.')[2]}" for part in parts]
    language = re.search(r"^go \S+$", own, re.MULTILINE)
    lines = ["module cluster", language[0] if language else "", f"require {SERVER} {version}", *replaced]
    (into / "go.mod").write_text("\n".join([*lines, ""]), encoding="utf-8")
    imports = "".join(f'import _ "{SERVER}/cmd/{name}"\n' for name in SERVER_PROGRAMS)
    (into / "programs.go").write_text(f"//go:build programs\n\npackage programs\n\n{imports}", encoding="utf-8")
    subprocess.run(["go", "mod", "tidy"], cwd=into, check=True)


def _install(*what: str, cwd: Path | None = None) -> None:
    sys.stdout.write(f">> building {what[-1]} (minutes)\n")
    sys.stdout.flush()
    environment = {**os.environ, "GOBIN": str(folder() / "bin"), "CGO_ENABLED": "0"}
    subprocess.run(["go", "install", *what], env=environment, cwd=cwd, check=True)


def _go(*arguments: str) -> str:
    return subprocess.run(["go", *arguments], capture_output=True, text=True, check=True).stdout


def _kubernetes_schemas(into: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps"]
        subprocess.run([*pip, f"--target={scratch}", VALIDATE], check=True)
        source = Path(scratch) / f"kubernetes_validate/kubernetes-json-schema/v{KUBERNETES}-local-strict"
        into.mkdir(parents=True)
        for path in source.glob("*.json"):
            # They name themselves and their definitions by places on a server, where they would be looked for.
            text = re.sub(r'"\$id": "[^"]*",?', "", path.read_text(encoding="utf-8"))
            text = re.sub(r",\s*}", "}", text.replace('"/api/_definitions.json', '"_definitions.json'))
            (into / path.name).write_text(text, encoding="utf-8")


class _Definitions(yaml.SafeLoader):
    """Takes a lone = for the text that it is in the operator's schemas."""


_Definitions.add_constructor("tag:yaml.org,2002:value", lambda _loader, node: str(node.value))


def _operator_schemas(into: Path) -> None:
    into.mkdir(parents=True)
    for path in sorted(_definitions().glob("monitoring.coreos.com_*.yaml")):
        definition = yaml.load(path.read_text(encoding="utf-8"), _Definitions)  # noqa: S506  a SafeLoader
        kind = definition["spec"]["names"]["kind"].lower()
        for version in definition["spec"]["versions"]:
            schema = strict(version["schema"]["openAPIV3Schema"])
            (into / f"{kind}-{version['name']}.json").write_text(json.dumps(schema), encoding="utf-8")


def _definitions() -> Path:
    """Return the folder of the operator's CustomResourceDefinitions."""
    return Path(json.loads(_go("mod", "download", "-json", OPERATOR))["Dir"]) / "example/prometheus-operator-crd"


def strict(schema: Any) -> Any:  # noqa: ANN401  JSON
    """Return a schema that refuses properties that it does not name."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: strict(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and schema["properties"]:
        found.setdefault("additionalProperties", schema.get("x-kubernetes-preserve-unknown-fields", False))
    return found


def boards_kustomization(folder: Path) -> str:
    """Return the kustomization of the boards in a folder."""
    head = (folder / "kustomization.yaml").read_text(encoding="utf-8").partition("configMapGenerator:\n")[0]
    each = [
        f"  - name: pyrometer-board-{path.stem}\n    files: [{path.name}]\n" for path in sorted(folder.glob("*.json"))
    ]
    return f"{head}configMapGenerator:\n{''.join(each)}"


def written(into: Path) -> Iterator[str]:
    """Write the files of the kustomize base; yield their names."""
    for name, text in rendered().items():
        (into / name).write_text(text, encoding="utf-8")
        yield name


def main(arguments: Sequence[str]) -> int:
    """Run one of the commands; return the exit status."""
    if list(arguments) == ["programs"]:
        fetch()
    elif list(arguments) == ["cluster"]:
        fetch_cluster()
    elif len(arguments) == 2 and arguments[0] == "package":
        helm("package", str(CHART), f"--destination={arguments[1]}")
    elif len(arguments) == 2 and arguments[0] == "boards":
        text = boards_kustomization(Path(arguments[1]))
        (Path(arguments[1]) / "kustomization.yaml").write_text(text, encoding="utf-8")
    elif len(arguments) == 2 and arguments[0] == "render":
        sys.stdout.write(f">> {arguments[1]}: {', '.join(written(Path(arguments[1])))}\n")
    else:
        sys.stderr.write("usage: python tools/chart.py programs | cluster | (render|package|boards) FOLDER\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
