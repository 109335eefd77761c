"""The compose files at work: images built without PyPI, the demo's scenario in containers, and what may befall them.

Upstream images are stand-ins from Debian's packages; where no engine runs and none can be started, all of it is skipped
with the reason. `make test-compose` runs it: about ten minutes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import pyrometer
from pyrometer_dashboards.filling import filled, windows
from pyrometer_dashboards.gates import finding
from pyrometer_dashboards.main import rendered
from pyrometer_simulator.demo.observe import Prometheus, get_json, incidents
from pyrometer_simulator.demo.processes import answers
from pyrometer_simulator.demo.programs import CHANNEL, CLUSTER, NODES, RUN
from pyrometer_simulator.engine.compose import ComposeError
from pyrometer_simulator.engine.daemon import EngineError
from pyrometer_simulator.engine.site import OUR_IMAGES, Site, site
from pyrometer_simulator.stack import StackError

pytestmark = [pytest.mark.e2e, pytest.mark.compose, pytest.mark.timeout(1800)]

ROOT = Path(__file__).resolve().parents[2]
SCENARIO_SECONDS = 480.0
# Ours have python3, the stand-ins busybox: both have a shell.
TOUCH = ("sh", "-c", "touch /proof")
# Alertmanager's --data.maintenance-interval in compose.yaml, and a bit.
SNAPSHOT_SECONDS = 35.0
STATEFUL = {"PROMETHEUS": "prometheus", "ALERTMANAGER": "alertmanager", "ALERTING": "alerting", "VICTORIA": "victoria"}


@pytest.fixture(scope="module")
def running() -> Iterator[Site]:
    folder = Path(tempfile.mkdtemp(prefix="pym-"))
    with contextlib.ExitStack() as opened:
        opened.callback(shutil.rmtree, folder, ignore_errors=True)
        try:
            found = opened.enter_context(site(ROOT, folder))
        except (EngineError, StackError) as error:
            pytest.skip(f"no containers on this machine: {error}")
        yield found


@pytest.fixture(scope="module")
def played(running: Site) -> dict[str, Any]:
    """The director's exit status and log, once it has played the scenario."""
    status = running.docker.run("wait", running.container("director"), seconds=SCENARIO_SECONDS).strip()
    log = running.compose.run("logs", "--no-log-prefix", "director")
    sys.stdout.write(log)  # shown by pytest where a test fails
    return {"status": int(status), "log": log, "at": time.time()}


def documented(place: str) -> str:
    """The commands that docs/deployment.md has after these words: the first block there."""
    text = (ROOT / "docs/deployment.md").read_text(encoding="utf-8")
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


def all_scraped(running: Site) -> bool:
    """Every program that was started is scraped; Grafana was not."""
    found = {name: health for name, health in targets(running).items() if not name.startswith("grafana")}
    return len(found) > 2 * len(NODES) and set(found.values()) == {"up"}


def test_grafana() -> None:
    pytest.skip("Debian has no Grafana: checked by `docker compose config` and its provisioning files by schema only")


def test_the_scenario_reaches_slack_and_names_the_culprits(played: dict[str, Any]) -> None:
    assert played["status"] == 0, played["log"]
    assert "WRONG" not in played["log"]


def test_every_program_is_well_and_scraped(running: Site, played: dict[str, Any]) -> None:
    assert eventually(lambda: all_scraped(running)), targets(running)
    assert eventually(lambda: not healthy(running, lasting(running)), 150), healthy(running, lasting(running))


def test_a_newcomers_first_commands_change_nothing_that_runs(running: Site, played: dict[str, Any]) -> None:
    before = {name: running.container(name) for name in running.services}
    said = running.person.play(documented("## The monitoring host"))
    assert {name: running.container(name) for name in running.services} == before
    assert "prometheus" in said
    password = running.folder / "compose/secrets/grafana-admin-password"
    assert password.stat().st_mode & 0o777 == 0o440
    assert len(password.read_text()) > 30


def test_a_newcomers_first_alert_is_in_the_channel(running: Site, played: dict[str, Any]) -> None:
    running.person.play(documented("**A first alert**"))
    assert eventually(lambda: told(running, ["FirstAlert"]), 60) == ["FirstAlert"]


def test_targets_are_made_from_what_sinfo_prints(running: Site, played: dict[str, Any]) -> None:
    tools = running.folder / "tools"
    tools.mkdir()
    (tools / "sinfo").write_text("#!/bin/sh\necho 'PARTITION AVAIL TIMELIMIT NODES STATE NODELIST'\n"
                                 "echo 'gpu* up infinite 3 idle gpu-[001-003]'\n")  # fmt: skip
    (tools / "sinfo").chmod(0o755)
    running.person.play(f"PATH={tools}:$PATH\n" + documented("**Targets**"))
    made = yaml.safe_load((running.folder / "compose/targets/nodes.yaml").read_text())
    found = {target: group["labels"] for group in made for target in group["targets"]}
    assert found == {f"{name}:9935": {"cluster": "h100", "node": name} for name in NODES[:3]}


def test_every_program_is_an_ordinary_user_without_capabilities(running: Site) -> None:
    for name in lasting(running):
        status = Path(f"/proc/{running.inspect(name)['State']['Pid']}/status").read_text()
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        assert fields["Uid"].split()[0] != "0", name
        assert int(fields["CapEff"], 16) == int(fields["CapBnd"], 16) == 0, name
        assert fields["NoNewPrivs"] == "1", name


def test_every_root_is_read_only(running: Site) -> None:
    for name in lasting(running):
        with pytest.raises(ComposeError, match="Read-only file system"):
            running.inside(name, *TOUCH)


def test_the_exporters_image_is_small_and_has_no_pandas(running: Site) -> None:
    image = OUR_IMAGES["PYROMETER_EXPORTERS_IMAGE"]
    assert int(running.docker.run("image", "inspect", "--format", "{{.Size}}", image)) < 200e6
    run = ("run", "--rm", "--network=none", image, "python3", "-c")
    for module in ("pandas", "matplotlib", "requests"):
        with pytest.raises(EngineError, match="ModuleNotFoundError"):
            running.docker.run(*run, f"import {module}")


def test_victoriametrics_keeps_every_batch_that_prometheus_keeps(running: Site, played: dict[str, Any]) -> None:
    selector = f'pyrometer_train_batch_step{{run="{RUN}"}}[10m]'
    at = played["at"] - 20.0
    kept = {name: Prometheus(running.url(name)).samples(selector, at) for name in ("PROMETHEUS", "VICTORIA")}
    # It shows where it ended a series for a moment; Prometheus has such marks too, and hides them.
    kept["VICTORIA"] = [sample for sample in kept["VICTORIA"] if not math.isnan(sample[1])]
    steps = [int(step) for _, step in kept["VICTORIA"]]
    assert len(steps) > 500
    assert steps == list(range(steps[0], steps[-1] + 1))
    assert kept["VICTORIA"] == kept["PROMETHEUS"]


def test_vmalert_fires_what_prometheus_fires(running: Site, played: dict[str, Any]) -> None:
    def fired(name: str) -> set[frozenset[tuple[str, str]]]:
        found = Prometheus(running.url(name)).values('count_over_time(ALERTS{alertstate="firing"}[15m])', played["at"])
        # Prometheus adds its external label to alerts only, vmalert to the series ALERTS too.
        return {frozenset((k, v) for k, v in json.loads(labels).items() if k != "cluster") for labels in found}

    assert {dict(labels)["alertname"] for labels in fired("PROMETHEUS")} >= {
        "GpuThrottledThermal", "NicLinkFlapping", "TrainMfuDropped", "Watchdog",
    }  # fmt: skip
    assert fired("VICTORIA") == fired("PROMETHEUS")


def test_vmalert_evaluates_every_rule_of_every_file(running: Site, played: dict[str, Any]) -> None:
    files = [yaml.safe_load(path.read_text()) for path in (ROOT / "alert_rules").glob("*.rules.yaml")]
    written = sorted(
        rule.get("alert") or rule["record"] for file in files for group in file["groups"] for rule in group["rules"]
    )
    assert sorted(rule["name"] for rule in rules(running)) == written
    assert [(rule["name"], rule["lastError"]) for rule in rules(running) if rule["lastError"]] == []


def rules(running: Site) -> list[dict[str, Any]]:
    """All rules as vmalert has them."""
    answer = running.inside("vmalert", "wget", "-q", "-O", "-", "http://127.0.0.1:8880/api/v1/rules")
    return [rule for group in json.loads(answer)["data"]["groups"] for rule in group["rules"]]


@pytest.fixture
def cluster(running: Site, played: dict[str, Any]) -> str:
    """Where the cluster version is asked."""
    if not running.has_cluster:
        pytest.skip("Debian has only VictoriaMetrics' single version: needs vmstorage, vminsert and vmselect on PATH")
    return f"{running.url('VMSELECT')}/select/0/prometheus"


def test_the_cluster_version_keeps_every_batch_also_without_one_of_its_two(
    running: Site, played: dict[str, Any], cluster: str
) -> None:
    selector, at = f'pyrometer_train_batch_step{{run="{RUN}"}}[10m]', played["at"] - 20.0
    expected = Prometheus(running.url("PROMETHEUS")).samples(selector, at)
    assert len(expected) > 500

    def kept() -> list[tuple[float, float]]:
        return [sample for sample in Prometheus(cluster).samples(selector, at) if not math.isnan(sample[1])]

    assert kept() == expected
    for name in ("vmstorage-0", "vmstorage-1"):
        running.docker.run("kill", running.container(name))
        assert eventually(lambda: kept() == expected, 30), name
        running.person.play(f"docker compose up --detach {name}")
        assert eventually(lambda name=name: not healthy(running, [name]), 90)  # type: ignore[misc]


def test_vmalert_works_on_the_cluster_version_with_the_documented_addresses(
    running: Site, played: dict[str, Any], cluster: str
) -> None:
    text = (ROOT / "compose/.env.example").read_text(encoding="utf-8")
    addresses = re.findall(r"^#   (VICTORIA_\w+=\S+)$", text, re.MULTILINE)
    assert len(addresses) == 3
    before = time.time()
    running.person.play(f"{' '.join(addresses)} docker compose up --detach vmalert")
    fires = 'timestamp(ALERTS{alertname="Watchdog",alertstate="firing"})'
    assert eventually(lambda: max(Prometheus(cluster).values(fires).values(), default=0.0) > before)
    assert [rule["lastError"] for rule in rules(running) if rule["lastError"]] == []
    running.person.play("docker compose up --detach vmalert")


def test_boards_show_of_victoriametrics_what_they_show_of_prometheus(running: Site, played: dict[str, Any]) -> None:
    """Every query of every board: what one shows all the time with certain labels, the other shows with them as well.

    Not all series all the time: both scrape at moments of their own, and among equals a topk takes any. Not the map of
    GPUs, which takes longer than the scenario there: docs/deployment.md.
    """
    times = [played["at"] - seconds for seconds in range(30, 150, 20)]
    different, shown = [], 0
    for board, expr, instant in queries():
        seen = [
            [shapes(running.url(name), expr, at, instant=instant) for at in times]
            for name in ("PROMETHEUS", "VICTORIA")
        ]
        for ours, theirs in (seen, seen[::-1]):
            missing = set.intersection(*ours) - set.union(*theirs)
            different += [(board, expr, missing)] if missing else []
        shown += bool(set.intersection(*seen[0]))
    assert not different
    assert shown > 100


def queries() -> Iterator[tuple[str, str, bool]]:
    values = {
        **windows(600), "__rate_interval": "20s", "cluster": CLUSTER, "node": NODES[2], "gpu": ".+", "run": RUN,
        "points": "600", "mfu": "pyrometer_train_batch_mfu_ratio", "what": "temperature", "arrange": "number",
    }  # fmt: skip
    for name, text in rendered().items():
        for panel in finding.panels(json.loads(text)):
            for target in finding.targets(panel):
                if "gpu:pyrometer_map:" in target["expr"]:
                    continue
                yield name, filled(target["expr"], values), bool(target.get("instant"))


def shapes(url: str, expr: str, at: float, *, instant: bool) -> set[str]:
    """The names of the labels that series of an answer have; what went wrong where there is none."""
    asked = {"time": at} if instant else {"start": at - 300, "end": at, "step": 5}
    path = f"query{'' if instant else '_range'}?{urllib.parse.urlencode({'query': expr, **asked})}"
    try:
        with urllib.request.urlopen(f"{url}/api/v1/{path}", timeout=20) as answer:
            found = json.load(answer)["data"]["result"]
    except urllib.error.HTTPError as error:
        return {f"refused: {error.read().decode()[:300]}"}
    return {" ".join(sorted(one["metric"])) for one in found}


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
    request = urllib.request.Request(url, data=body, headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=20) as answer:
        assert answer.status == 200


def refused(running: Site) -> float:
    """Deliveries that were answered with 503, by the service's own count."""
    with urllib.request.urlopen(f"{running.url('ALERTING')}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    wanted = 'pyrometer_alerting_webhook_requests_total{code="503"} '
    return sum(float(line.removeprefix(wanted)) for line in lines if line.startswith(wanted))


def told(running: Site, names: list[str]) -> list[str]:
    """The alerts of the incidents that the channel shows, once for each; those joined into another stand there."""
    messages = get_json(f"{running.url('SLACK')}/channels/{CHANNEL}.json")["messages"]
    shown = {message["metadata"]["event_payload"]["incident_id"] for message in messages}
    found = [incident for incident in incidents(running.url("ALERTING")) if incident["joined_into"] is None]
    alerts = [
        alert["labels"]["alertname"] for incident in found if incident["id"] in shown for alert in incident["alerts"]
    ]
    return [name for name in alerts if name in names]


@pytest.fixture(scope="module")
def backup(running: Site) -> Iterator[Path]:
    """The folder of the documentation's example."""
    folder = Path(tempfile.mkdtemp(prefix="pym-backup-"))
    yield folder
    shutil.rmtree(folder)


def known(running: Site, at: float) -> dict[str, Any]:
    """What this site knows: of the past, of its incidents and silences."""
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
    commands = {
        place: documented(place).replace("/backup/2026-01-31", str(backup))
        for place in ("`state.sh` copies", "**Back**, or")
    }
    running.person.play(commands["`state.sh` copies"])
    archives = sorted(path.name for path in backup.iterdir())
    assert {
        f"{name}.tgz" for name in ("settings", "prometheus", "alertmanager", "alerting", "cluster", "victoria")
    } <= set(archives)
    assert {path.stat().st_mode & 0o077 for path in backup.iterdir()} == {0}
    assert eventually(lambda: not healthy(running, lasting(running)), 150), healthy(running, lasting(running))
    destroy(running)
    running.person.play(commands["**Back**, or"])
    assert eventually(lambda: all_scraped(running), 150), targets(running)
    assert eventually(lambda: not forgotten(running, at, before), 60), forgotten(running, at, before)


def destroy(running: Site) -> None:
    running.compose.run("down", "--volumes", "--timeout", "20")
    for path in running.outbox.iterdir():  # the volume is a mount of it
        path.unlink()
    shutil.rmtree(running.folder / "compose/secrets")
    (running.folder / "compose/.env").unlink()


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
    running.person.play(documented("rules are read anew by"))
    for name in ("PROMETHEUS", "VICTORIA"):
        assert eventually(lambda name=name: Prometheus(running.url(name)).value("test:changed") == 1, 60), name  # type: ignore[misc]


def test_an_upgrade_restarts_what_changed_and_goes_back(running: Site, played: dict[str, Any]) -> None:
    """Of the alerting service alone, so that a restart of anything else would show."""
    at = played["at"] - 20.0
    running.person.play("docker compose up --detach")
    old, new = OUR_IMAGES["PYROMETER_ALERTING_IMAGE"], "pyrometer-test-alerting:0.2.0"
    before, others = known(running, at), [name for name in lasting(running) if name != "alerting"]
    started = {name: running.inspect(name)["State"]["StartedAt"] for name in others}
    context = running.folder / "next"
    context.mkdir()
    (context / "Dockerfile").write_text(f"FROM {old}\nLABEL version=0.2.0\n")
    running.docker.run("build", "--quiet", "--tag", new, str(context))
    for image in (new, old):
        running.person.play(f"PYROMETER_ALERTING_IMAGE={image} docker compose up --detach")
        assert running.inspect("alerting")["Config"]["Image"] == image
        assert eventually(lambda: answers(f"{running.url('ALERTING')}/-/healthy"))
        assert not forgotten(running, at, before)
    assert {name: running.inspect(name)["State"]["StartedAt"] for name in others} == started


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
        with urllib.request.urlopen(f"{running.node_url}/metrics", timeout=5) as answer:
            text: str = answer.read().decode()
    except OSError:
        return ""
    return text if 'run="compose-test"' in text else ""
