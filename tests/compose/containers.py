"""Queries of the container tests to the running site."""

from __future__ import annotations

import re
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyrometer_kit.http_client import get_json
from pyrometer_simulator.demo.observe import incidents
from pyrometer_simulator.demo.topology import CHANNEL, NODES
from pyrometer_simulator.engine.compose import ComposeError
from pyrometer_simulator.engine.site import Site

ROOT = Path(__file__).resolve().parents[2]
# The words in docs/deployment.md before each block of commands that a test follows.
PLACES = {
    "start": "## The monitoring host",
    "first alert": "**A first alert**",
    "targets": "**Targets**",
    "save": "`state.sh` copies",
    "restore": "**To restore**, here",
    "read rules": "reload rules with",
    "upgrade": "## Upgrades",
}


def titled(title: str, page: str, kind: str = "sh") -> str:
    """Return the block with a title, of commands by default, on a page of docs/."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    found = re.findall(rf'^( *)```{kind} title="{re.escape(title)}"\n(.*?)^\1```$', text, re.MULTILINE | re.DOTALL)
    assert len(found) == 1, title
    return textwrap.dedent(found[0][1])


def documented(subject: str) -> str:
    """Return the first block of commands after a subject's place in docs/deployment.md."""
    text, place = (ROOT / "docs/deployment.md").read_text(encoding="utf-8"), PLACES[subject]
    assert text.count(place) == 1, place
    return text.partition(place)[2].split("```\n")[1]


def eventually(holds: Callable[[], object], seconds: float = 90.0) -> Any:
    """The first true answer within so many seconds, else the last one."""
    deadline = time.monotonic() + seconds
    while not (found := holds()) and time.monotonic() < deadline:
        time.sleep(1.0)
    return found


def targets(running: Site) -> dict[str, str]:
    """Health by job and instance, as Prometheus sees it; empty where it does not answer."""
    try:
        found = get_json(f"{running.url('PROMETHEUS')}/api/v1/targets?state=active")["data"]["activeTargets"]
    except (OSError, ValueError):
        return {}
    return {f"{target['labels']['job']} {target['labels']['instance']}": target["health"] for target in found}


def healthy(running: Site, services: list[str]) -> list[str]:
    """The services that are not (yet) running and, where they have a health check, well."""
    states = {name: running.inspect(name)["State"] for name in services}
    return [
        name for name, state in states.items() if state.get("Health", state)["Status"] not in ("healthy", "running")
    ]


def lasting(running: Site) -> list[str]:
    return [name for name in running.services if name not in ("director", "victoria-volume")]


def left(running: Site, project: str) -> dict[str, list[str]]:
    """Return what the engine has of a project, by kind; nothing is no entry."""
    label = f"label=com.docker.compose.project={project}"
    found = {
        "containers": running.docker.run("ps", "--all", "--quiet", "--filter", label).split(),
        "volumes": running.docker.run("volume", "ls", "--quiet", "--filter", label).split(),
        "networks": running.docker.run("network", "ls", "--quiet", "--filter", label).split(),
    }
    return {kind: names for kind, names in found.items() if names}


def project(running: Site, service: str) -> str:
    found: str = running.inspect(service)["Config"]["Labels"]["com.docker.compose.project"]
    return found


def take_down(running: Site) -> None:
    """Remove containers and volumes; accept a network that stays, as Docker 20.10 may count endpoints that are gone."""
    name = project(running, "prometheus")
    for _ in range(3):  # what is removed beside the network may be left out when that fails
        try:
            running.compose.run("down", "--volumes", "--timeout", "20")
        except ComposeError as error:
            if "has active endpoints" not in str(error):
                raise
        if set(left(running, name)) <= {"networks"}:
            return
    raise AssertionError(left(running, name))


def all_scraped(running: Site) -> bool:
    """Every program that was started is scraped."""
    absent = () if running.has_grafana else ("grafana",)
    found = {name: health for name, health in targets(running).items() if not name.startswith(absent)}
    return len(found) > 2 * len(NODES) and set(found.values()) == {"up"}


def told(running: Site, names: list[str]) -> list[str]:
    """The alerts of the incidents that the channel shows, once for each; those joined into another stand there."""
    messages = get_json(f"{running.url('SLACK')}/channels/{CHANNEL}.json")["messages"]
    shown = {message["metadata"]["event_payload"]["incident_id"] for message in messages}
    found = [incident for incident in incidents(running.url("ALERTING")) if incident["joined_into"] is None]
    alerts = [
        alert["labels"]["alertname"] for incident in found if incident["id"] in shown for alert in incident["alerts"]
    ]
    return [name for name in alerts if name in names]
