"""Grafana's provisioning files, by a schema of our own: every key that may stand there, with its type.

There is no package of Grafana to start here. Keys and types are those of Grafana 12's documentation (Provision Grafana)
and of the data source's own settings; the files were tried on a running 12.2.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
PROVISIONING = ROOT / "compose/grafana/provisioning"
BOARDS = ROOT / "dashboards/json"

PROMETHEUS_SETTINGS = {
    "httpMethod": str, "timeInterval": str, "queryTimeout": str, "prometheusType": str, "prometheusVersion": str,
    "cacheLevel": str, "incrementalQuerying": bool, "incrementalQueryOverlapWindow": str, "manageAlerts": bool,
    "allowAsRecordingRulesTarget": bool, "disableRecordingRules": bool, "seriesLimit": int,
}  # fmt: skip
ALERTMANAGER_SETTINGS = {"implementation": str, "handleGrafanaManagedAlerts": bool}
DATASOURCE = {
    "name": str, "uid": str, "type": str, "access": str, "url": str, "isDefault": bool, "editable": bool,
    "jsonData": dict, "orgId": int, "version": int,
}  # fmt: skip
PROVIDER = {
    "name": str, "folder": str, "folderUid": str, "type": str, "disableDeletion": bool, "allowUiUpdates": bool,
    "updateIntervalSeconds": int, "options": dict, "orgId": int,
}  # fmt: skip
OPTIONS = {"path": str, "foldersFromFilesStructure": bool}


def load(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return loaded


def wrong(found: dict[str, Any], schema: dict[str, type]) -> list[str]:
    """Keys that are unknown or of another type."""
    return [key for key, value in found.items() if type(value) is not schema.get(key)]


def service() -> dict[str, Any]:
    found: dict[str, Any] = load(ROOT / "compose/compose.yaml")["services"]["grafana"]
    return found


def test_data_sources_are_as_grafana_reads_them() -> None:
    file = load(PROVISIONING / "datasources/pyrometer.yaml")
    assert wrong(file, {"apiVersion": int, "prune": bool, "datasources": list, "deleteDatasources": list}) == []
    assert file["apiVersion"] == 1
    for source in file["datasources"]:
        assert wrong(source, DATASOURCE) == []
        settings = {"prometheus": PROMETHEUS_SETTINGS, "alertmanager": ALERTMANAGER_SETTINGS}[source["type"]]
        assert wrong(source["jsonData"], settings) == []
        assert source["access"] == "proxy"  # from the server: the browser need not reach Prometheus
        assert source["editable"] is False
    assert [source["name"] for source in file["datasources"] if source.get("isDefault")] == ["Prometheus"]


def test_data_sources_find_their_addresses_in_the_environment() -> None:
    urls = {source["url"] for source in load(PROVISIONING / "datasources/pyrometer.yaml")["datasources"]}
    assert urls == {f"${name}" for name in service()["environment"] if name.startswith("PYROMETER_")}


def test_a_loki_is_a_data_source_only_where_it_has_an_address() -> None:
    """Both files are mounted over the same empty one of the image."""
    mounted = [each for each in service()["volumes"] if "loki" in each]
    assert mounted == [
        "./grafana/loki${LOKI_URL:+-of-an-address}.yaml:/etc/grafana/provisioning/datasources/loki.yaml:ro"
    ]
    assert "datasources" not in load(PROVISIONING / "datasources/loki.yaml")
    without, having = (load(ROOT / f"compose/grafana/loki{end}.yaml") for end in ("", "-of-an-address"))
    assert without == {"apiVersion": 1, "deleteDatasources": [{"name": "Pyrometer Loki", "orgId": 1}]}
    (source,) = having["datasources"]
    assert wrong(source, DATASOURCE) == []
    assert (source["type"], source["url"]) == ("loki", "$LOKI_URL")
    assert source["name"] == "Pyrometer Loki", "Grafana deletes and replaces by name, also what users made"
    assert service()["environment"]["LOKI_URL"] == "${LOKI_URL:-}"


def test_the_least_step_is_the_scrape_interval() -> None:
    """Else $__rate_interval is too short and panels are empty, or too long and short events vanish."""
    (source, _) = load(PROVISIONING / "datasources/pyrometer.yaml")["datasources"]
    scraped = load(ROOT / "compose/prometheus/prometheus.yaml")["global"]["scrape_interval"]
    assert source["jsonData"]["timeInterval"] == scraped


def test_boards_are_provisioned_from_where_they_are_mounted() -> None:
    file = load(PROVISIONING / "dashboards/pyrometer.yaml")
    assert wrong(file, {"apiVersion": int, "providers": list}) == []
    (provider,) = file["providers"]
    assert wrong(provider, PROVIDER) == []
    assert wrong(provider["options"], OPTIONS) == []
    assert f"../dashboards/json:{provider['options']['path']}:ro" in service()["volumes"]
    assert (provider["allowUiUpdates"], provider["disableDeletion"]) == (False, True)


def test_the_home_board_is_one_of_ours() -> None:
    home = service()["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    found = re.fullmatch(r"/etc/grafana/boards/\$\{GRAFANA_HOME_BOARD:-(.+)\}", home)
    assert found is not None
    assert (BOARDS / found[1]).is_file()


def test_no_two_boards_have_one_uid() -> None:
    """Grafana says nothing about it: they overwrite each other at every look."""
    uids = [json.loads(path.read_text(encoding="utf-8"))["uid"] for path in BOARDS.glob("*.json")]
    assert len(uids) == len(set(uids))


def test_grafana_is_locked_down() -> None:
    environment = service()["environment"]
    assert environment["GF_AUTH_ANONYMOUS_ENABLED"] == "${GRAFANA_ANONYMOUS:-false}"
    assert environment["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
    # Expanded by the program itself and not by the image's entrypoint, which an image of one's own may not have.
    assert environment["GF_SECURITY_ADMIN_PASSWORD"] == "$$__file{/run/secrets/grafana_admin_password}"
    assert environment["GF_USERS_ALLOW_SIGN_UP"] == "false"
    assert {environment[f"GF_ANALYTICS_{name}"] for name in ("REPORTING_ENABLED", "CHECK_FOR_UPDATES")} == {"false"}
