"""Write rule files as objects of an operator: one PrometheusRule or VMRule each, and a kustomization of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

PROMETHEUS = {"apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule"}
# VictoriaMetrics' operator also makes one of each PrometheusRule, where its converter is on, as by default.
VICTORIA = {"apiVersion": "operator.victoriametrics.com/v1beta1", "kind": "VMRule"}
_HEAD = """\
apiVersion: {apiVersion}
kind: {kind}
metadata:
  name: pyrometer-{name}
  namespace: {namespace}
  labels: {labels}
spec:
"""


@dataclass(frozen=True)
class Wrapping:
    """Where the objects are to be, what the operator selects them by, and of which kind they are."""

    namespace: str = "pyrometer"
    labels: Mapping[str, str] | None = None
    kind: Mapping[str, str] = field(default_factory=lambda: PROMETHEUS)


def wrapped(texts: Mapping[str, str], wrapping: Wrapping) -> dict[str, str]:
    """Return the objects' files by name, for rule files by name (``gpu.rules.yaml``)."""
    objects = {name.replace(".rules.yaml", ".yaml"): _wrap(name, text, wrapping) for name, text in texts.items()}
    listed = "".join(f"  - {name}\n" for name in objects)
    head = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n"
    return {**objects, "kustomization.yaml": head + listed}


def _wrap(name: str, text: str, wrapping: Wrapping) -> str:
    labels = {"app.kubernetes.io/part-of": "pyrometer", **(wrapping.labels or {})}
    head = _HEAD.format(
        **wrapping.kind,
        name=name.removesuffix(".rules.yaml").replace("_", "-"),
        namespace=wrapping.namespace,
        labels=json.dumps(labels),
    )
    return head + "".join(f"  {line}" if line.strip() else line for line in text.splitlines(keepends=True))
