"""compose/state.sh with an engine that is a script: what it asks for, in what order, and what it does when that fails.

With a real engine it is played by test_containers.py.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "compose/state.sh"
# Two volumes, one program each; what is archived is a word; each call is noted.
DOCKER = """#!/bin/sh
echo "$@" >>"$CALLS"
case "$*" in
"compose config") echo "name: site" ;;
"compose config --images cluster") echo "exporters:1" ;;
"compose exec"*snapshot) [ -z "${SNAPSHOT:-}" ] || echo '{"status":"success","data":{"name":"'"$SNAPSHOT"'"}}' ;;
"volume ls --quiet"*volume=alerting) echo site_alerting ;;
"volume ls --quiet"*volume=prometheus) echo site_prometheus ;;
"volume ls --filter"*) printf 'alerting\\nprometheus\\n' ;;
"ps --quiet"*) echo "container-of-${4##*=}" ;;
"run "*--interactive*) cat >"$RESTORED"; exit "${RUN_STATUS:-0}" ;;
"run "*) echo packed; exit "${RUN_STATUS:-0}" ;;
esac
"""


class Host:
    """A checkout's compose folder, with the script and a docker command."""

    def __init__(self, folder: Path) -> None:
        self.backup = folder / "backup"
        self.compose = folder / "compose"
        (self.compose / "site").mkdir(parents=True)
        (self.compose / ".env").write_text("SLACK_CHANNEL=C1\n")
        shutil.copy(SCRIPT, self.compose)
        tools = folder / "tools"
        tools.mkdir()
        (tools / "docker").write_text(DOCKER)
        (tools / "docker").chmod(0o755)
        self._calls, self.restored = folder / "calls", folder / "restored"
        self._env = {"PATH": f"{tools}:{os.environ['PATH']}", "CALLS": str(self._calls), "RESTORED": str(self.restored)}

    def run(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        """The script, from another folder, as cron would."""
        self._calls.write_text("")
        command = [self.compose / "state.sh", *arguments]
        return subprocess.run(
            command,
            cwd=self.backup.parent,
            env=self._env | env,
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )

    def calls(self, *words: str) -> list[str]:
        """The calls that begin with one of these, in order."""
        return [line for line in self._calls.read_text().splitlines() if line.startswith(words)]


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


@pytest.mark.parametrize("arguments", [(), ("save",), ("restore",), ("copy", "backup"), ("--help",)])
def test_without_knowing_what_to_do_it_says_how_it_is_used(host: Host, arguments: tuple[str, ...]) -> None:
    done = host.run(*arguments)
    assert done.returncode == 2
    assert "./state.sh save /backup" in done.stderr
    assert host.calls("") == []


def test_everything_is_saved_for_nobody_else_to_read(host: Host) -> None:
    done = host.run("save", "backup")
    assert (done.returncode, done.stdout) == (0, "settings: saved\nalerting: saved\nprometheus: saved\n"), done.stderr
    assert {path.name: path.stat().st_mode & 0o777 for path in host.backup.iterdir()} == {
        f"{name}.tgz": 0o600 for name in ("settings", "alerting", "prometheus")
    }
    listing = subprocess.run(["tar", "-tzf", host.backup / "settings.tgz"], capture_output=True, text=True, check=True)
    assert listing.stdout.splitlines() == [".env", "site/"]


def test_a_program_is_stopped_only_while_its_own_volume_is_copied(host: Host) -> None:
    host.run("save", "backup")
    assert [call.split(" ")[:2] for call in host.calls("stop", "run", "start")] == [
        ["stop", "container-of-site_alerting"], ["run", "--rm"], ["start", "container-of-site_alerting"],
        ["stop", "container-of-site_prometheus"], ["run", "--rm"], ["start", "container-of-site_prometheus"],
    ]  # fmt: skip


def test_prometheus_goes_on_where_it_gives_a_snapshot_and_the_snapshot_goes(host: Host) -> None:
    assert host.run("save", "backup", "prometheus", SNAPSHOT="2026-1").returncode == 0
    assert host.calls("stop", "start") == []
    assert "-C /volume/snapshots/2026-1 " in host.calls("run")[0]
    assert host.calls("compose exec")[-1].endswith("rm -r /prometheus/snapshots/2026-1")


def test_a_copy_that_fails_leaves_no_archive_and_no_program_stopped(host: Host) -> None:
    assert host.run("save", "backup", "alerting", RUN_STATUS="1").returncode != 0
    assert not (host.backup / "alerting.tgz").exists()
    assert host.calls("start") == ["start container-of-site_alerting"]


def test_what_was_saved_is_put_back(host: Host) -> None:
    host.backup.mkdir()
    for name in ("settings", "alerting"):
        subprocess.run(["tar", "-czf", host.backup / f"{name}.tgz", "-C", host.compose, "site"], check=True)
    done = host.run("restore", "backup")
    assert (done.returncode, done.stdout) == (0, "alerting: restored\n"), done.stderr
    assert host.restored.read_bytes() == (host.backup / "alerting.tgz").read_bytes()
    assert [call.split(" ")[0] for call in host.calls("stop", "run", "start")] == ["stop", "run", "start"]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("grafana",), "the project site has no volume grafana"),
        (("alerting", "prometheus"), "prometheus.tgz can't be restored"),
    ],
)
def test_nothing_is_replaced_where_not_everything_can_be(host: Host, names: tuple[str, ...], said: str) -> None:
    host.backup.mkdir()
    subprocess.run(["tar", "-czf", host.backup / "alerting.tgz", "-C", host.compose, "site"], check=True)
    (host.backup / "prometheus.tgz").write_bytes(b"half of")
    done = host.run("restore", "backup", *names)
    assert done.returncode == 1
    assert said in done.stderr
    assert host.calls("stop", "run") == []


def test_a_folder_that_is_not_there(host: Host) -> None:
    done = host.run("restore", "nothing")
    assert done.returncode == 1
    assert done.stderr.splitlines() == [f"{host.compose}/state.sh: no folder nothing"]
