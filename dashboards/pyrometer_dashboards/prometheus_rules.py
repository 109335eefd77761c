"""Write rule files as objects of the Prometheus operator: one PrometheusRule each, and a kustomization of them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

# A group of our rule files without an interval of its own, which would come before the rules.
_NO_INTERVAL = re.compile(r"(?m)^(  - name: .*\n(?:    (?!rules:|interval:).*\n)*)(?=    rules:)")
_HEAD = """\
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: pyrometer-{name}
  namespace: {namespace}
  labels: {labels}
spec:
"""


@dataclass(frozen=True)
class Wrapping:
    """Where the objects are to be, and what the operator's Prometheus selects them by."""

    namespace: str = "pyrometer"
    labels: Mapping[str, str] | None = None
    interval: str = "5s"
    """Of groups that have none: that of compose's Prometheus, where the operator's has 30 s."""


def wrapped(texts: Mapping[str, str], wrapping: Wrapping) -> dict[str, str]:
    """Return the objects' files by name, for rule files by name (``gpu.rules.yaml``)."""
    objects = {name.replace(".rules.yaml", ".yaml"): _wrap(name, text, wrapping) for name, text in texts.items()}
    listed = "".join(f"  - {name}\n" for name in objects)
    head = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n"
    return {**objects, "kustomization.yaml": head + listed}


def _wrap(name: str, text: str, wrapping: Wrapping) -> str:
    labels = {"app.kubernetes.io/part-of": "pyrometer", **(wrapping.labels or {})}
    head = _HEAD.format(
        name=name.removesuffix(".rules.yaml").replace("_", "-"),
        namespace=wrapping.namespace,
        labels=json.dumps(labels),
    )
    body = _NO_INTERVAL.sub(rf"\1    interval: {wrapping.interval}\n", text)
    return head + "".join(f"  {line}" if line.strip() else line for line in body.splitlines(keepends=True))
