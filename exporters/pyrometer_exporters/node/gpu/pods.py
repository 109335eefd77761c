"""Names of the pods of this node, from the Kubernetes API, for jobs that a cgroup knows by the pod's uid only.

Source: ``GET /api/v1/pods?fieldSelector=spec.nodeName=<node>`` for metadata alone (some 2 kB a pod), with the token of
the service account. It is asked when a GPU has a process of a pod that isn't known yet, at most every 15 s: a node of a
cluster where nothing starts asks nothing.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from pyrometer_exporters.framework.scheduling import Worker
from pyrometer_kit.errors import UsageError

RETRY_SECONDS = 15.0
ANSWER_SECONDS = 5.0
# A node has at most some hundred pods.
MOST_BYTES = 16 << 20
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# Only names, labels and owners: of whole pods it would be ten times as much.
_METADATA = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
# Labels that name the job behind a pod whose owner is only one of its parts, the outermost first.
JOB_LABELS = (
    "training.kubeflow.org/job-name", "jobset.sigs.k8s.io/jobset-name", "leaderworkerset.sigs.k8s.io/name",
    "ray.io/cluster", "volcano.sh/job-name", "batch.kubernetes.io/job-name", "job-name",
)  # fmt: skip
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Pod:
    """A pod; each name is empty where it isn't known."""

    namespace: str = ""
    name: str = ""
    workload: str = ""
    """Its job, else the Deployment, StatefulSet or whatever controls it."""


UNKNOWN = Pod()


class PodSource(Protocol):
    """The pods of a node."""

    def pods(self) -> Mapping[str, Pod]:
        """Return them by uid.

        Raises:
            OSError: Nobody answered.
            ValueError: The answer is no list of pods.
        """
        ...


class Pods:
    """Looks up pods; what is not known yet is asked for aside, and known at a later scrape."""

    def __init__(self, source: PodSource, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._source, self._monotonic = source, monotonic
        self._known: Mapping[str, Pod] = {}
        self._asked: float | None = None
        self._worker = Worker("pods")
        self._trouble = ""

    def of(self, uid: str) -> Pod:
        """Return a pod, or one without names while it isn't known."""
        pod = self._known.get(uid)
        if pod is not None:
            return pod
        now = self._monotonic()
        if self._asked is None or now - self._asked >= RETRY_SECONDS:
            self._asked = now
            self._worker.start(self.refresh)
        return UNKNOWN

    def refresh(self) -> None:
        """Ask the source; an error is logged once."""
        try:
            self._known = self._source.pods()
            trouble = ""
        except (OSError, ValueError) as error:
            trouble = f"{type(error).__name__}: {error}"
        if trouble and trouble != self._trouble:
            _log.warning("names of pods are unknown: %s; is the service account allowed to list pods?", trouble)
        self._trouble = trouble


class KubernetesApi:
    """The API server, as a pod reaches it."""

    def __init__(self, node: str, address: tuple[str, int], account: Path = ACCOUNT) -> None:
        self._node, self._address, self._account = node, address, account

    def pods(self) -> Mapping[str, Pod]:
        """See PodSource."""
        import http.client  # noqa: PLC0415  4 MB that only nodes of Kubernetes need
        import ssl  # noqa: PLC0415

        token = (self._account / "token").read_text(encoding="ascii").strip()  # renewed every hour
        context = ssl.create_default_context(cafile=str(self._account / "ca.crt"))
        connection = http.client.HTTPSConnection(*self._address, timeout=ANSWER_SECONDS, context=context)
        try:
            selector = quote(f"spec.nodeName={self._node}", safe="")
            headers = {"Authorization": f"Bearer {token}", "Accept": _METADATA}
            connection.request("GET", f"/api/v1/pods?fieldSelector={selector}&resourceVersion=0", headers=headers)
            with connection.getresponse() as answer:
                status, text = answer.status, answer.read(MOST_BYTES)
        except http.client.HTTPException as error:
            raise ValueError(f"the answer is not HTTP: {type(error).__name__}") from None
        finally:
            connection.close()
        if status != 200:
            raise ValueError(f"HTTP status {status}")
        return pods_of(text)


def pods_of(text: bytes) -> dict[str, Pod]:
    """Return the pods of an answer by uid.

    Raises:
        ValueError: It is no list of pods.
    """
    try:
        items = json.loads(text)["items"]
        return {str(item["metadata"]["uid"]): _pod(item["metadata"]) for item in items or ()}
    except (AttributeError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"no list of pods: {type(error).__name__}") from None


def _pod(metadata: Mapping[str, Any]) -> Pod:
    labels = metadata.get("labels") or {}
    return Pod(
        str(metadata["namespace"]), str(metadata["name"]), _workload(labels, metadata.get("ownerReferences") or ())
    )


def _workload(labels: Mapping[str, Any], owners: Any) -> str:  # noqa: ANN401  JSON
    named = [str(labels[label]) for label in JOB_LABELS if labels.get(label)]
    if named:
        return named[0]
    for owner in owners:
        if owner.get("controller"):
            # A Deployment's ReplicaSet has its name and this hash.
            return str(owner["name"]).removesuffix(f"-{labels.get('pod-template-hash', '')}")
    return ""


def pods_from_environment(node: str, environment: Mapping[str, str] = os.environ) -> Pods:
    """Return the pods of a node by the API server that the environment of a pod names.

    Raises:
        UsageError: This is no pod.
    """
    host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port.isdecimal():
        raise UsageError(
            "--collector.gpu.kubernetes-node: not running in a pod: KUBERNETES_SERVICE_HOST and _PORT are not set"
        )
    return Pods(KubernetesApi(node, (host, int(port))))
