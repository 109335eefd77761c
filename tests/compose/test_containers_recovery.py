"""Accidents of the containers: kills, a full disk, a host that is lost; new rules, a new version."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.compose.containers import all_scraped, documented, eventually, healthy, lasting, take_down, targets, told

from pyrometer_kit.http_client import get, get_json
from pyrometer_simulator.demo.observe import Prometheus, incidents
from pyrometer_simulator.demo.processes import answers
from pyrometer_simulator.demo.topology import CLUSTER, NODES, RUN
from pyrometer_simulator.engine.site import OUR_IMAGES, Site
from pyrometer_simulator.http_call import call

pytestmark = [pytest.mark.e2e, pytest.mark.compose, pytest.mark.timeout(1800)]

# Alertmanager's --data.maintenance-interval in compose.yaml, and a bit.
SNAPSHOT_SECONDS = 35.0
STATEFUL = {"PROMETHEUS": "prometheus", "ALERTMANAGER": "alertmanager", "ALERTING": "alerting", "VICTORIA": "victoria"}


@pytest.mark.parametrize("name", STATEFUL)
def test_a_killed_program_goes_on_where_it_was(running: Site, played: dict[str, Any], name: str) -> None:
    def state() -> int:
        history = Prometheus(running.url(name)).value(f'count_over_time(up{{job="node",node="{NODES[0]}"}}[20m])')
        counts = {
            "PROMETHEUS": lambda: history or 0,
            "VICTORIA": lambda: history or 0,
            "ALERTMANAGER": lambda: len(get_json(f"{running.url(name)}/api/v2/silences")),
            "ALERTING": lambda: len(incidents(running.url(name))),
        }
        return int(counts[name]())

    if name == "ALERTMANAGER":
        silence(running)
        time.sleep(SNAPSHOT_SECONDS)
    before = eventually(state, 30)
    running.docker.run("kill", running.container(STATEFUL[name]))
    assert not answers(f"{running.url(name)}/-/healthy")
    running.compose.run("up", "--detach", "--no-build", STATEFUL[name])
    assert eventually(lambda: answers(f"{running.url(name)}/-/healthy"))
    # VictoriaMetrics writes what it has every 5 s, and says so: a kill costs that much at most.
    lost = 2 if name == "VICTORIA" else 0
    assert eventually(lambda: state() >= before - lost, 30), (before, state())
    assert before >= 1


def test_a_crash_is_followed_by_a_start(running: Site, played: dict[str, Any]) -> None:
    """Not `docker kill`, which the engine takes for a wish."""
    for name in ("alerting", "gpu-006", "prometheus", "vmagent-0"):
        before = running.inspect(name)
        os.kill(before["State"]["Pid"], signal.SIGKILL)
        after = eventually(lambda name=name, before=before: restarted(running, name, before["RestartCount"]))  # type: ignore[misc]
        assert after, name
    assert eventually(lambda: all_scraped(running)), targets(running)


def restarted(running: Site, name: str, count: int) -> bool:
    found = running.inspect(name)
    return bool(found["RestartCount"] > count and found["State"]["Running"])


def test_flaps_counted_before_a_crash_are_counted_after_it(running: Site, played: dict[str, Any]) -> None:
    flaps = 'pyrometer_nic_link_down_events_total{node="gpu-006",device="mlx5_3"}'
    os.kill(running.inspect("gpu-006")["State"]["Pid"], signal.SIGKILL)
    time.sleep(10)
    assert eventually(lambda: Prometheus(running.url("PROMETHEUS")).value(flaps)) == 3


def test_everything_killed_at_once_starts_again_in_any_order(running: Site, played: dict[str, Any]) -> None:
    names = lasting(running)
    running.docker.run("kill", *map(running.container, names))
    for name in sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest()):
        running.docker.run("start", running.container(name))
    started = time.time()
    assert eventually(lambda: all_scraped(running), 120), targets(running)
    # From the rules through Alertmanager to the service, and it says whose heart it is.
    assert eventually(lambda: watchdog(running) > started, 150)
    filters = "filter=alertname%3DWatchdog&filter=cluster%3D" + CLUSTER
    assert get_json(f"{running.url('ALERTMANAGER')}/api/v2/alerts?{filters}")


def watchdog(running: Site) -> float:
    """When the service last heard of it."""
    query = "pyrometer_alerting_watchdog_last_seen_timestamp_seconds"
    return Prometheus(running.url("PROMETHEUS")).value(query) or 0.0


def test_a_full_disk_is_answered_with_503_and_nothing_is_lost(running: Site, played: dict[str, Any]) -> None:
    filler = running.outbox / "filler"
    refusals = refused(running)
    fill(filler)
    names = [f"FullDisk{number}" for number in range(12)]
    try:
        for name in names:
            fire(running, name)
        assert eventually(lambda: refused(running) > refusals, 60), "Alertmanager was never told 503"
    finally:
        filler.unlink()
    assert eventually(lambda: sorted(told(running, names)) == sorted(names), 240), told(running, names)


def fill(path: Path) -> None:
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def fire(running: Site, name: str) -> None:
    """An alert with much to say, so that its text needs room on the disk."""
    labels = {"alertname": name, "cluster": "elsewhere", "severity": "warning", "component": "stack"}
    notes = {"summary": f"{name} of the test", "description": name * 60_000, "runbook": "docs/alerts.md"}
    body = json.dumps([{"labels": labels, "annotations": notes}]).encode()
    send(f"{running.url('ALERTMANAGER')}/api/v2/alerts", body)


def silence(running: Site) -> None:
    body = {
        "matchers": [{"name": "alertname", "value": "Nothing", "isRegex": False}],
        "comment": "kept", "createdBy": "test",
        "startsAt": "2020-01-01T00:00:00Z", "endsAt": "2099-01-01T00:00:00Z",
    }  # fmt: skip
    send(f"{running.url('ALERTMANAGER')}/api/v2/silences", json.dumps(body).encode())


def send(url: str, body: bytes) -> None:
    assert call(url, body, Content_Type="application/json").status == 200


def refused(running: Site) -> float:
    """Deliveries that were answered with 503, by the service's own count."""
    lines = get(f"{running.url('ALERTING')}/metrics").decode().splitlines()
    wanted = 'pyrometer_alerting_webhook_requests_total{code="503"} '
    return sum(float(line.removeprefix(wanted)) for line in lines if line.startswith(wanted))


@pytest.fixture(scope="module")
def backup(running: Site) -> Iterator[Path]:
    """The folder of the documentation's example."""
    folder = Path(tempfile.mkdtemp(prefix="pym-backup-"))
    yield folder
    shutil.rmtree(folder)


def known(running: Site, at: float) -> dict[str, Any]:
    """This site's past, incidents and silences."""
    steps = f'pyrometer_train_batch_step{{run="{RUN}"}}[10m]'
    points = {name: Prometheus(running.url(name)).samples(steps, at) for name in ("PROMETHEUS", "VICTORIA")}
    silences = get_json(f"{running.url('ALERTMANAGER')}/api/v2/silences")
    return {
        **{name: [sample for sample in found if not math.isnan(sample[1])] for name, found in points.items()},
        "incidents": [incident["id"] for incident in incidents(running.url("ALERTING"))],
        "silences": [found["id"] for found in silences],
    }


def forgotten(running: Site, at: float, before: dict[str, Any]) -> dict[str, int]:
    """How many things it does not know any more, by their kind; none is no entry."""
    now = known(running, at)
    return {
        kind: len(lost) for kind, old in before.items() if (lost := [each for each in old if each not in now[kind]])
    }


def test_a_backup_brings_an_empty_host_back(running: Site, played: dict[str, Any], backup: Path) -> None:
    """By the commands of docs/deployment.md, and with the volumes destroyed in between."""
    at = played["at"] - 20.0
    silence(running)
    before = known(running, at)
    assert all(before.values()), before
    save, restore = (documented(subject).replace("/backup/2026-01-31", str(backup)) for subject in ("save", "restore"))
    running.person.play(save)
    archives = sorted(path.name for path in backup.iterdir())
    assert {
        f"{name}.tgz" for name in ("settings", "prometheus", "alertmanager", "alerting", "cluster", "victoria")
    } <= set(archives)
    assert {path.stat().st_mode & 0o077 for path in backup.iterdir()} == {0}
    assert eventually(lambda: not healthy(running, lasting(running)), 150), healthy(running, lasting(running))
    destroy(running)
    running.person.play(restore)
    assert eventually(lambda: all_scraped(running), 150), targets(running)
    assert eventually(lambda: not forgotten(running, at, before), 60), forgotten(running, at, before)


def destroy(running: Site) -> None:
    take_down(running)
    for path in running.outbox.iterdir():  # the volume is a mount of it
        if path.is_dir():  # the service's own copies of its database
            shutil.rmtree(path)
        else:
            path.unlink()
    shutil.rmtree(running.folder / "compose/secrets")
    (running.folder / "compose/.env").unlink(missing_ok=True)  # written by a newcomer's first commands


def test_prometheus_is_saved_while_it_runs(running: Site, played: dict[str, Any], backup: Path) -> None:
    at = played["at"] - 20.0
    before = known(running, at)["PROMETHEUS"]
    running.person.play("PROMETHEUS_FLAGS=--web.enable-admin-api docker compose up --detach prometheus")
    assert eventually(lambda: known(running, at)["PROMETHEUS"] == before)
    started = running.inspect("prometheus")["State"]["StartedAt"]
    (backup / "prometheus.tgz").unlink()
    running.person.play(f"./state.sh save {backup} prometheus")
    assert running.inspect("prometheus")["State"]["StartedAt"] == started
    running.inside(
        "prometheus", "sh", "-c", 'rm -rf /prometheus/0* /prometheus/wal && test -z "$(ls /prometheus/snapshots)"'
    )
    running.person.play(f"./state.sh restore {backup} prometheus")
    assert running.inspect("prometheus")["State"]["StartedAt"] != started
    assert eventually(lambda: known(running, at)["PROMETHEUS"] == before)


def test_rules_that_changed_are_read_anew(running: Site, played: dict[str, Any]) -> None:
    rule = {"record": "test:changed", "expr": "vector(1)"}
    groups = {"groups": [{"name": "changed", "interval": "1s", "rules": [rule]}]}
    (running.folder / "alert_rules/changed.rules.yaml").write_text(yaml.safe_dump(groups))
    running.person.play(documented("read rules"))
    for name in ("PROMETHEUS", "VICTORIA"):
        assert eventually(lambda name=name: Prometheus(running.url(name)).value("test:changed") == 1, 60), name  # type: ignore[misc]


def test_an_upgrade_restarts_what_changed_and_goes_back(running: Site, played: dict[str, Any]) -> None:
    """Only the alerting service is restarted, so that a restart of anything else would show."""
    at = played["at"] - 20.0
    running.person.play("docker compose up --detach")
    old, new = OUR_IMAGES["PYROMETER_ALERTING_IMAGE"], "pyrometer-test-alerting:next"
    before, others = known(running, at), [name for name in lasting(running) if name != "alerting"]
    started = {name: running.inspect(name)["State"]["StartedAt"] for name in others}
    context = running.folder / "next"
    context.mkdir()
    (context / "Dockerfile").write_text(f"FROM {old}\nLABEL version=next\n")
    running.docker.run("build", "--quiet", "--tag", new, str(context))
    for image in (new, old):
        running.person.play(f"PYROMETER_ALERTING_IMAGE={image} docker compose up --detach")
        assert running.inspect("alerting")["Config"]["Image"] == image
        assert eventually(lambda: answers(f"{running.url('ALERTING')}/-/healthy"))
        assert not forgotten(running, at, before)
    assert {name: running.inspect(name)["State"]["StartedAt"] for name in others} == started
