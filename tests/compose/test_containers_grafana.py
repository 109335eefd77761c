"""Grafana as compose.yaml starts it: the administrator's login, boards, data sources that answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import requests
from tests.compose.containers import eventually

from pyrometer_simulator.engine.site import Site

pytestmark = [pytest.mark.e2e, pytest.mark.compose, pytest.mark.timeout(1800)]

BOARDS = Path(__file__).resolve().parents[2] / "dashboards/json"


@pytest.fixture
def url(running: Site) -> str:
    if not running.has_grafana:
        pytest.skip("no Grafana: GRAFANA_HOME is the folder of a release")
    found = running.url("GRAFANA")
    assert eventually(lambda: status(f"{found}/api/health", "") == 200, 150), "Grafana did not start"
    return found


def status(address: str, password: str) -> int:
    """Return the status of an answer; 0 where there is none."""
    try:
        return requests.get(address, auth=("admin", password) if password else None, timeout=20).status_code
    except requests.RequestException:
        return 0


def test_the_password_of_the_secret_opens_it_and_no_other(running: Site, url: str) -> None:
    assert status(f"{url}/api/user", running.grafana_password) == 200
    assert status(f"{url}/api/user", "admin") == 401


def test_it_has_every_board_and_its_data_sources_answer(running: Site, url: str) -> None:
    login = ("admin", running.grafana_password)
    names = {json.loads(path.read_text())["uid"] for path in BOARDS.glob("*.json")}
    found = requests.get(f"{url}/api/search?type=dash-db", auth=login, timeout=20).json()
    assert {each["uid"] for each in found} >= names
    sources = requests.get(f"{url}/api/datasources", auth=login, timeout=20).json()
    asked = [each["uid"] for each in sources if each["type"] == "prometheus"]
    assert asked
    for uid in asked:
        health = requests.get(f"{url}/api/datasources/uid/{uid}/health", auth=login, timeout=20).json()
        assert health["status"] == "OK", health


def test_nobody_sees_a_board_without_a_login(url: str) -> None:
    assert status(f"{url}/api/search", "") == 401
