"""The commands of docs/howto/uninstall.md for containers. The last file of the folder: it takes the site away."""

from __future__ import annotations

from typing import Any

import pytest
from tests.compose.containers import left, project, take_down, titled

from pyrometer_simulator.engine.site import Site

pytestmark = [pytest.mark.e2e, pytest.mark.compose, pytest.mark.timeout(1800)]

PAGE = "howto/uninstall.md"


def test_a_gpu_nodes_containers_are_gone_with_their_state(running: Site, played: dict[str, Any]) -> None:
    running.node.run("up", "--detach", "--no-build", "node")
    name = f"{project(running, 'prometheus')}-node"
    assert set(left(running, name)) == {"containers", "volumes"}
    running.node.play(titled("GPU node, containers", PAGE))
    assert left(running, name) == {}


def test_the_monitoring_host_is_gone_and_its_data_stays_until_it_is_asked_for(
    running: Site, played: dict[str, Any]
) -> None:
    """Follow the commands without COMPOSE_PROFILES: the profile `scale` may have been named on the command line only.

    Uses a project of its own, because Docker may refuse to remove the other's network (see `take_down`).
    """
    name = f"{project(running, 'prometheus')}-again"
    named = f"export COMPOSE_PROJECT_NAME={name}\n"
    take_down(running)
    running.person.play(f"{named}docker compose up --detach")
    keep, remove, *more = titled("monitoring host", PAGE).splitlines()
    running.person.play(f"{named}export COMPOSE_PROFILES=\n{keep}")
    assert set(left(running, name)) == {"volumes"}
    running.person.play(f"{named}export COMPOSE_PROFILES=\n{remove}")
    assert left(running, name) == {}
    assert more == []
