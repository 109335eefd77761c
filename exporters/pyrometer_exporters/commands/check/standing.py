"""Repeat the checks, and report each answer to the cluster: as a condition of the Kubernetes node, and in a file.

The condition ``PyrometerUnfit`` is True for a node that is unfit for a job, False for one that is fit, Unknown where
nobody could look. It drains nobody: people, kube-state-metrics and whatever a site lets act on it read it.
"""

from __future__ import annotations

import calendar
import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from pyrometer_exporters.commands.check.report import FIT, NOT_KNOWN
from pyrometer_exporters.framework.api_server import ApiServer
from pyrometer_kit.errors import UsageError

CONDITION: Final = "PyrometerUnfit"
HEARTBEAT_SECONDS: Final = 300.0
"""As often as the kubelet says that nothing has changed (``nodeStatusReportFrequency``): etcd gets the whole node."""
STOPPED: Final = f"{NOT_KNOWN}pyrometer-check has stopped"
_REASONS: Final = {"False": "ChecksPassed", "True": "CheckFailed", "Unknown": "NotChecked"}
_MOST_CHARACTERS: Final = 1000
_MERGE: Final = "application/strategic-merge-patch+json"  # a condition by its type: those of others stay

Outlet = Callable[[str], None]


def keep_looking(look: Callable[[], str], every: float, outlets: Mapping[str, Outlet]) -> None:
    """Look until SIGTERM or Ctrl-C, and pass each answer to the outlets, at the end that nobody looks any more.

    Args:
        look: returns the answer, a line.
        every: seconds between two looks.
        outlets: each by the words for standard error when it raises OSError or ValueError.
    """
    stop, said = threading.Event(), dict[str, str]()

    def print_once(file: Any, key: str, line: str) -> None:  # noqa: ANN401  a text file
        if line != said.get(key, ""):
            file.write(f"{line}\n" if line else "")
            file.flush()
        said[key] = line

    def say(answer: str) -> None:
        print_once(sys.stdout, "", answer)
        for trouble, write in outlets.items():
            try:
                write(answer)
                print_once(sys.stderr, trouble, "")
            except (OSError, ValueError) as error:
                print_once(sys.stderr, trouble, f"pyrometer-check: {trouble}: {error}")

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    while not stop.is_set():
        say(_answer(look))
        stop.wait(every)
    say(STOPPED)


def _answer(look: Callable[[], str]) -> str:
    try:
        return look()
    except UsageError as error:  # of the configuration, which may be mended meanwhile
        return f"{NOT_KNOWN}{error}"


def answer_file(path: Path) -> Outlet:
    """Return an outlet that replaces the file's text with the answer; the file's age says when the last look was."""

    def write(answer: str) -> None:
        new = path.with_name(f"{path.name}.new")
        new.write_text(f"{answer}\n", encoding="utf-8")
        new.replace(path)

    return write


def node_condition(node: str, server: ApiServer, wall: Callable[[], float] = time.time) -> Outlet:
    """Return an outlet that writes the answer into the node's condition; ``wall`` returns seconds since the epoch."""
    path = f"/api/v1/nodes/{quote(node, safe='')}/status"

    def write(answer: str) -> None:
        before, now, status = _condition(server.ask("GET", f"{path}?resourceVersion=0")), wall(), status_of(answer)
        message = answer if len(answer) <= _MOST_CHARACTERS else f"{answer[:_MOST_CHARACTERS]}..."
        said = {"status": status, "reason": _REASONS[status], "message": message}
        if said.items() <= before.items() and abs(now - _seconds(before["lastHeartbeatTime"])) < HEARTBEAT_SECONDS:
            return
        since = before["lastTransitionTime"] if before.get("status") == status else _text(now)
        condition = {"type": CONDITION, **said, "lastHeartbeatTime": _text(now), "lastTransitionTime": since}
        body = json.dumps({"status": {"conditions": [condition]}}).encode()
        server.ask("PATCH", path, {"Content-Type": _MERGE}, body)

    return write


def status_of(answer: str) -> str:
    """Return the condition's status for an answer: only a named failure is True.

    >>> status_of("unknown: gpu_driver")
    'Unknown'
    """
    if answer == FIT:
        return "False"
    return "Unknown" if answer.startswith(NOT_KNOWN) else "True"


def _condition(text: bytes) -> dict[str, str]:
    """Return our condition of a node; empty where it has none that is whole.

    Raises:
        ValueError: It is no node.
    """
    try:
        conditions = json.loads(text)["status"].get("conditions") or []
        ours: dict[str, str] = next((condition for condition in conditions if condition["type"] == CONDITION), {})
    except (AttributeError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"the answer is no node: {type(error).__name__}") from None
    return ours if ours.get("lastHeartbeatTime") and ours.get("lastTransitionTime") else {}


def _text(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def _seconds(text: str) -> float:
    return float(calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ")))
