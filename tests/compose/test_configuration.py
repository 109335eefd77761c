"""The configuration of Prometheus and Alertmanager, laid out as the demo and compose lay it out."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from pyrometer_simulator.stack import Stack
from pyrometer_simulator.stack.cache import cache_folder

ROOT = Path(__file__).resolve().parents[2]
PROMETHEUS = ROOT / "compose/prometheus/prometheus.yaml"
VMAGENT = ROOT / "compose/victoria/scrape.yaml"
ALERTMANAGER = ROOT / "compose/alertmanager/alertmanager.yaml"


@pytest.fixture
def laid_out(tmp_path: Path) -> Path:
    """A folder with the configuration by symbolic link, the rules and one target of each kind."""
    (tmp_path / "prometheus.yaml").symlink_to(PROMETHEUS)
    (tmp_path / "alertmanager.yaml").symlink_to(ALERTMANAGER)
    (tmp_path / "rules").symlink_to(ROOT / "alert_rules")
    (tmp_path / "scrape").symlink_to(ROOT / "compose/prometheus/scrape")
    (tmp_path / "targets").mkdir()
    for name in ("nodes-r07", "hosts", "cluster", "alerting", "prometheus", "alertmanager", "grafana", "ufm"):
        target = [{"targets": ["127.0.0.1:1"], "labels": {"cluster": "c1"}}]
        (tmp_path / "targets" / f"{name}.yaml").write_text(yaml.safe_dump(target), encoding="utf-8")
    return tmp_path


def _output(*command: str | Path) -> str:
    answer = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return answer.stdout + answer.stderr


def _load(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return loaded


def test_prometheus_accepts_its_configuration_and_finds_rules_and_targets(stack: Stack, laid_out: Path) -> None:
    output = _output(stack.promtool, "check", "config", laid_out / "prometheus.yaml")
    assert f"{len(list((ROOT / 'alert_rules').glob('*.rules.yaml')))} rule files found" in output
    assert "WARNING" not in output


def test_alertmanager_accepts_its_configuration(stack: Stack, laid_out: Path) -> None:
    assert "SUCCESS" in _output(*stack.amtool_command, "check-config", laid_out / "alertmanager.yaml")


@pytest.mark.parametrize(
    "labels",
    [
        ["alertname=Watchdog"],
        ["alertname=TrainMfuDropped", "run=a", "severity=critical"],
        # A node that is drained is listed; what is still told of one that is draining comes through as well.
        ["alertname=NodeInMaintenance", "node=gpu-001", "severity=info"],
        ["alertname=TrainStalled", "run=a", "node=gpu-001", "severity=critical"],
    ],
)
def test_every_alert_reaches_the_alerting_service(stack: Stack, laid_out: Path, labels: list[str]) -> None:
    file = f"--config.file={laid_out / 'alertmanager.yaml'}"
    route = [*stack.amtool_command, "config", "routes", "test", file, "--verify.receivers=pyrometer"]
    _output(*route, *labels)


def test_nodes_and_batches_are_scraped_from_the_same_targets() -> None:
    jobs = {job["job_name"]: job for job in _load(PROMETHEUS)["scrape_configs"]}
    assert jobs["batches"]["file_sd_configs"] == jobs["node"]["file_sd_configs"]
    assert jobs["batches"]["metrics_path"] == "/batches"
    assert jobs["batches"]["params"] == {"consumer": ["prom-a"]}
    # With it, failed scrapes lose batches: tests/e2e/test_consumers.py.
    assert "track_timestamps_staleness" not in jobs["batches"]


def test_no_alert_is_held_back_or_cut_off() -> None:
    config = _load(ALERTMANAGER)
    assert "inhibit_rules" not in config
    (receiver,) = config["receivers"]
    (webhook,) = receiver["webhook_configs"]
    assert (webhook["send_resolved"], webhook["max_alerts"]) == (True, 0)


def test_a_fault_is_in_slack_within_ten_seconds_on_average() -> None:
    """Half a scrape, half an evaluation and the group's wait, in seconds; the rest is the service's."""
    timing = _load(PROMETHEUS)["global"]
    seconds = [int(timing[key].rstrip("s")) for key in ("scrape_interval", "evaluation_interval")]
    assert sum(seconds) / 2 + int(_load(ALERTMANAGER)["route"]["group_wait"].rstrip("s")) <= 10


def test_watchdog_says_whose_heart_has_stopped() -> None:
    assert _load(PROMETHEUS)["global"]["external_labels"] == {"cluster": "${PYROMETER_CLUSTER}"}


def test_every_target_of_the_cluster_has_limits() -> None:
    for job in _load(PROMETHEUS)["scrape_configs"][:4]:
        assert {"sample_limit", "label_limit", "label_value_length_limit", "body_size_limit"} <= set(job), job[
            "job_name"
        ]


def in_vmagents_words(job: dict[str, Any]) -> dict[str, Any]:
    """A job of Prometheus' as vmagent is to have it; what differs and why is in the head of victoria/scrape.yaml."""
    names = {"body_size_limit": "max_scrape_size", "label_value_length_limit": ""}
    found = {names.get(key, key): value for key, value in job.items() if names.get(key, key)}
    if "params" in found:
        found["params"] = {"consumer": ["victoria"], "again": ["30"]}
    files = found["file_sd_configs"][0]["files"]
    found["file_sd_configs"] = [{"files": [name.removeprefix("../") for name in files]}]
    return found


def test_vmagent_scrapes_what_prometheus_scrapes() -> None:
    theirs, ours = _load(VMAGENT), _load(PROMETHEUS)
    expected = [in_vmagents_words(job) for job in ours["scrape_configs"]]
    assert [job for job in theirs["scrape_configs"] if job["job_name"] != "victoria"] == expected
    assert theirs["scrape_config_files"] == ours["scrape_config_files"]
    assert theirs["global"]["scrape_interval"] == ours["global"]["scrape_interval"]
    assert theirs["global"]["scrape_timeout"] == ours["global"]["scrape_timeout"]


def test_vmagent_has_the_scrapes_that_not_every_cluster_has() -> None:
    theirs, ours = (sorted((path.parent / "scrape").glob("*.yaml")) for path in (VMAGENT, PROMETHEUS))
    assert [path.name for path in theirs] == [path.name for path in ours] != []
    for their, our in zip(theirs, ours, strict=True):
        expected = [in_vmagents_words(job) for job in _load(our)["scrape_configs"]]
        assert yaml.safe_load(their.read_text(encoding="utf-8")) == expected, their


def test_vmagent_accepts_its_configuration_and_finds_all_of_it(tmp_path: Path) -> None:
    vmagent = cache_folder() / "victoria-metrics/usr/bin/vmagent"
    if not vmagent.exists():
        pytest.skip(f"no vmagent at {vmagent}: `make test-compose` fetches it")
    folder = tmp_path / "victoria"
    shutil.copytree(VMAGENT.parent, folder)
    check = [vmagent, "-dryRun", f"-promscrape.config={folder / 'scrape.yaml'}", "-remoteWrite.url=http://127.0.0.1:1"]
    _output(*check)
    (folder / "scrape/ufm.yaml").write_text("- job_name: node\n")
    with pytest.raises(AssertionError, match="node"):
        _output(*check)  # a name twice: it did read the file


@pytest.mark.parametrize("folder", ["targets", "demo/targets"])
def test_targets_are_in_the_form_of_file_sd(folder: str) -> None:
    files = sorted((ROOT / "compose" / folder).glob("*.yaml"))
    assert files
    for path in files:
        for group in yaml.safe_load(path.read_text(encoding="utf-8")):
            assert set(group) <= {"targets", "labels"}
            assert all(target.rpartition(":")[2].isdecimal() for target in group["targets"]), path
