"""Names of the pods of this node, from the Kubernetes API, for jobs that a cgroup knows by the pod's uid only.

Source: ``GET /api/v1/pods?fieldSelector=spec.nodeName=<node>`` for metadata alone (some 2 kB a pod), with the token of
the service account. It is asked when a GPU has a process of a pod that isn't known yet, at most every 15 s: a node of a
cluster where nothing starts asks nothing.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import quote

from pyrometer_exporters.framework.api_server import ApiServer, from_environment
from pyrometer_exporters.framework.scheduling import Worker

RETRY_SECONDS = 15.0
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
    """The pods of a node by its API server."""

    def __init__(self, node: str, server: ApiServer) -> None:
        self._node, self._server = node, server

    def pods(self) -> Mapping[str, Pod]:
        """See PodSource."""
        selector = quote(f"spec.nodeName={self._node}", safe="")
        path = f"/api/v1/pods?fieldSelector={selector}&resourceVersion=0"
        return pods_of(self._server.ask("GET", path, {"Accept": _METADATA}))


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


def pods_from_environment(node: str) -> Pods:
    """Return the pods of a node by the API server that the environment of a pod names.

    Raises:
        UsageError: This is no pod.
    """
    return Pods(KubernetesApi(node, from_environment("--collector.gpu.kubernetes-node")))
