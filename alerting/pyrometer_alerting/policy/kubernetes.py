"""Kubernetes through its API: cordon, taint, and annotations (the action's mark, its reason), all in one patch.

Three calls (list, get and patch of nodes) over our own client. The official client would
bring 30 MB of generated models and several packages for them, which somebody must keep free of known faults; what it is
good at (watches, leader election, every kind of resource) is not needed here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from pyrometer_alerting.model import text
from pyrometer_alerting.policy.rules import KubernetesSettings
from pyrometer_alerting.policy.schedulers import Claim, NodeState, RefusedError, SchedulerError, refuse_change
from pyrometer_kit.errors import HttpError
from pyrometer_kit.http_client import HttpClient

TAINT = "pyrometer.io/unfit"
_CORDON = "node.kubernetes.io/unschedulable"
MARK = "pyrometer.io/policy-action"
REASON = "pyrometer.io/policy-reason"
CLAIM = "pyrometer.io/policy-unfit"
BACK = "pyrometer.io/policy-back"
STOP = "pyrometer.io/policy-stop"
_PAGE = 500  # the API's own clients ask for so many at once; a node is some 20 kB: images and conditions
_MOST_NODES = 100_000  # Kubernetes is made for 5,000
_MERGE = "application/merge-patch+json"
# The request itself or our role is at fault: no other status is final.
_NO = (400, 403, 404, 405, 413, 415, 422)


class Kubernetes:
    """The scheduler of a cluster with Kubernetes."""

    name = "Kubernetes"

    def __init__(self, settings: KubernetesSettings) -> None:
        self._settings = settings
        # No proxy between a service account and its own API server.
        self._client = HttpClient(settings.url, settings.seconds, ca_file=str(settings.ca_file), use_proxies=False)

    def nodes(self) -> Mapping[str, NodeState]:
        """List the nodes.

        Raises:
            SchedulerError: there was no usable answer.
        """
        nodes: dict[str, NodeState] = {}
        more = ""
        while True:
            query = urlencode({"limit": _PAGE, "labelSelector": self._settings.selector, "continue": more})
            answer = self._ask("GET", f"/api/v1/nodes?{query}")
            try:
                states = [_node(item, self._settings.pool) for item in answer["items"]]
                more = answer["metadata"].get("continue") or ""
            except (KeyError, TypeError, AttributeError):
                raise SchedulerError("Kubernetes' answer could not be read") from None
            if more and not {state.name for state in states} - nodes.keys():
                raise SchedulerError("Kubernetes' list of nodes has no end: a page repeats what was there")
            nodes |= {state.name: state for state in states}
            if not more:
                return nodes
            if len(nodes) > _MOST_NODES:
                raise SchedulerError(f"Kubernetes lists more than {_MOST_NODES} nodes")

    def drain(self, node: str, reason: str, mark: str, claim: Claim) -> None:
        """Cordon and taint one node; its pods stay.

        Raises:
            RefusedError: Kubernetes said no, or somebody has cordoned it meanwhile.
            SchedulerError: it is not known whether it was done.
        """
        path, state, item = self._look(node)
        refuse_change(state, None)
        why = f"{text.plain(reason, 1000)} [{mark}]"
        notes = {MARK: mark, REASON: why, CLAIM: claim.of_reason(why)}
        self._patch(path, item, notes, [{"key": TAINT, "effect": "NoSchedule"}])

    def resume(self, node: str, mark: str, why: str, returned_at: float = 0.0) -> None:
        """Remove the taint and the cordon.

        Raises:
            RefusedError: Kubernetes said no, or it has another reason by now.
            SchedulerError: it is not known whether it was done.
        """
        path, state, item = self._look(node)
        refuse_change(state, why)
        back = f"{returned_at:.0f}" if returned_at else None
        self._patch(path, item, {MARK: mark or None, REASON: None, CLAIM: None, BACK: back}, [])

    def stop(self, node: str, *, on: bool) -> None:
        """Annotate a node: all drains are stopped; or take that back.

        Raises:
            RefusedError: Kubernetes said no.
            SchedulerError: it is not known whether it was done.
        """
        path, _state, _item = self._look(node)
        self._ask("PATCH", path, {"metadata": {"annotations": {STOP: "true" if on else None}}})

    def _look(self, node: str) -> tuple[str, NodeState, dict[str, Any]]:
        """Return the path of a node, its state right now, and what was answered about it."""
        path = f"/api/v1/nodes/{quote(node, safe='')}"
        item = self._ask("GET", path)
        try:
            state = _node(item, "")
            str(item["metadata"]["resourceVersion"])
        except (KeyError, TypeError, AttributeError):
            raise RefusedError("Kubernetes' answer could not be read") from None
        return path, state, item

    def _patch(
        self, path: str, item: Mapping[str, Any], notes: Mapping[str, str | None], ours: list[dict[str, str]]
    ) -> None:
        """Set our annotations, our taints beside those of others, and the cordon; without taints of ours end it."""
        # The list is replaced as a whole, whatever the kind of the patch. With the node's version, so that a change by
        # somebody else in between is a conflict. The cordon's own taint follows the cordon.
        others = [
            taint for taint in (item.get("spec") or {}).get("taints") or () if taint.get("key") not in (TAINT, _CORDON)
        ]
        spec = {"unschedulable": bool(ours) or None, "taints": [*others, *ours]}
        metadata = {"annotations": notes, "resourceVersion": item["metadata"]["resourceVersion"]}
        self._ask("PATCH", path, {"metadata": metadata, "spec": spec})

    def _ask(self, method: str, path: str, document: object = None) -> dict[str, Any]:
        settings = self._settings
        try:
            token = settings.token_file.read_text("ascii").strip()  # it is renewed every hour
        except (OSError, ValueError):
            raise RefusedError(f"the token in {settings.token_file} can't be read") from None
        headers = {"Authorization": f"Bearer {token}", "Accept": "application/json", "Content-Type": _MERGE}
        body = None if document is None else json.dumps(document).encode()
        try:
            with self._client.ask(method, path, body, headers) as answer:
                return _read(answer.status, answer.read())
        except HttpError as error:
            raise SchedulerError(f"Kubernetes did not answer ({error.reason})") from None


def _read(status: int, content: bytes) -> dict[str, Any]:
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        document = None
    if 200 <= status < 300 and isinstance(document, dict):
        return document
    message = document.get("message", "") if isinstance(document, dict) else ""
    why = f"Kubernetes: {status} {text.plain(str(message), 200)}".strip()
    # 409: somebody changed the node meanwhile, nothing was done; the next look decides again.
    raise RefusedError(why) if status in _NO else SchedulerError(why)


def _node(item: Mapping[str, Any], pool: str) -> NodeState:
    metadata, spec = item["metadata"], item.get("spec") or {}
    annotations, labels = metadata.get("annotations") or {}, metadata.get("labels") or {}
    conditions = (item.get("status") or {}).get("conditions") or []
    is_ready = any(condition.get("type") == "Ready" and condition.get("status") == "True" for condition in conditions)
    keys = [str(taint.get("key")) for taint in spec.get("taints") or ()]
    cordoned = bool(spec.get("unschedulable"))
    return NodeState(
        name=str(metadata["name"]),
        in_service=is_ready and not cordoned and TAINT not in keys,
        held=cordoned or TAINT in keys,
        pools=(f"{pool}={labels.get(pool, '')}" if pool else "all nodes",),
        # Without our taint it is somebody else's cordon, whatever the annotation says.
        why=str(annotations.get(REASON, "")) if TAINT in keys else "cordoned" if cordoned else "",
        marks=str(annotations.get(MARK, "")),
        claim=Claim.read(str(annotations.get(CLAIM, ""))),
        returned_at=float(back) if (back := str(annotations.get(BACK, ""))).isdecimal() else 0.0,
        stops=STOP in annotations,
    )
