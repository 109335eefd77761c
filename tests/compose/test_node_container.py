"""compose.node.yaml at work: a GPU node in a container."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.compose.containers import eventually

import pyrometer
from pyrometer_kit.http_client import get
from pyrometer_simulator.engine.site import Site

pytestmark = [pytest.mark.e2e, pytest.mark.compose, pytest.mark.timeout(1800)]


def test_a_gpu_node_in_a_container_reads_its_host(running: Site) -> None:
    """The kernel's log with CAP_SYSLOG as an ordinary user, the host's links, the rings of its jobs."""
    running.node.run("up", "--detach", "--no-build", "node")
    rings = Path("/dev/shm/pyrometer")
    made = not rings.exists()
    run = pyrometer.start(run="compose-test", rank=0, world_size=1, attempt=0, rings=str(rings))
    try:
        for _ in range(3):
            with run.step():
                pass
        found = eventually(lambda: own_node(running), 60)
    finally:
        run.close()
        if made:
            shutil.rmtree(rings, ignore_errors=True)
    assert 'pyrometer_collector_success{collector="kernel"} 1' in found, found[-2000:]
    assert 'pyrometer_collector_success{collector="nic"} 1' in found
    assert 'run="compose-test"' in found


def own_node(running: Site) -> str:
    try:
        text = get(f"{running.node_url}/metrics").decode()
    except OSError:
        return ""
    return text if 'run="compose-test"' in text else ""
