"""Two services on a real PostgreSQL that asks for a password: real processes, ended in each way, and the commands."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from alerting_fakes import body, raw_alert, wait_until
from alerting_two import MODULE, Two

from pyrometer_simulator.postgres import Pair, missing
from pyrometer_simulator.slack import FakeSlack
from pyrometer_simulator.slack_channel import RateLimits

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

PASSWORD = "s3cr3t of the database"
TAKEOVER_SECONDS = 10.0  # as docs/howto/two-alerting-services.md promises


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Yield the flags for a server that lets nobody in without the password."""
    with Pair() as pair:
        pair.primary.ask(f"CREATE ROLE pyrometer LOGIN PASSWORD '{PASSWORD}'")
        pair.primary.ask("CREATE DATABASE pyrometer OWNER pyrometer")
        rules = pair.primary.folder / "pg_hba.conf"
        rules.write_text(f"host all pyrometer 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")
        pair.primary.ask("SELECT pg_reload_conf()")
        file = tmp_path_factory.mktemp("secrets") / "password"
        file.write_text(f"{PASSWORD}\n")
        file.chmod(0o600)
        url = f"postgresql://pyrometer@127.0.0.1:{pair.primary.port}/pyrometer"
        yield [f"--storage.url={url}", f"--storage.password-file={file}"]


@pytest.fixture(scope="module")
def channel() -> Iterator[FakeSlack]:
    limits = RateLimits(post_per_second=1000, post_burst=1000, tier3_per_minute=60000, tier3_burst=1000)
    with FakeSlack(channel_names=["gpu-alerts"], token="xoxb-test", limits=limits) as fake:
        yield fake


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory, channel: FakeSlack, storage: list[str]) -> Iterator[Two]:
    with Two(tmp_path_factory.mktemp("two"), channel, storage) as services:
        yield services
        logged = "".join(each.logged() for each in services.both)
        assert PASSWORD not in logged
        assert "Traceback" not in logged


def delivery(node: str, *, firing: bool = True) -> bytes:
    now = time.time()
    alert = raw_alert(node=node, cluster=node, fingerprint=node, starts_at=now - 60, ends_at=now, firing=firing)
    return bytes(body(alert, groupKey=node))


def told(slack: FakeSlack, node: str) -> list[str]:
    return [message["text"] for message in slack.messages("gpu-alerts") if node in str(message)]


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", MODULE, *arguments], capture_output=True, text=True, check=False, timeout=120,
        env={**os.environ, "COLUMNS": "200"},
    )  # fmt: skip


@pytest.mark.parametrize("ended", [signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP])
def test_the_other_takes_over_what_the_leader_was_told(two: Two, channel: FakeSlack, ended: signal.Signals) -> None:
    node = f"gpu-{ended.name.lower()}"
    leader, other = two.leader(), two.other()
    assert [each.ready() for each in two.both] == [True, True]
    two.deliver(other, delivery(node))  # whoever is asked takes it
    wait_until(lambda: told(channel, node), seconds=60)
    if ended is signal.SIGSTOP:
        assert leader._process is not None
        leader._process.send_signal(ended)
    else:
        leader.end(ended)
    assert two.seconds_until_led_by(other) < TAKEOVER_SECONDS
    two.deliver(other, delivery(node, firing=False))
    wait_until(lambda: "Resolved" in told(channel, node)[0], seconds=60)
    if ended is signal.SIGSTOP:
        leader._process.send_signal(signal.SIGCONT)
    else:
        leader.start()
    wait_until(lambda: leader.ready() and not leader.leads(), seconds=60)
    assert other.leads()
    time.sleep(1.0)
    assert len(told(channel, node)) == 1


def test_figures_of_incidents_are_the_leaders_alone(two: Two) -> None:
    def names(lines: list[str]) -> set[str]:
        return {line.split("{")[0].split()[0] for line in lines if line and line[0] != "#"}

    leader, other = names(two.leader().metrics()), names(two.other().metrics())
    assert {"pyrometer_alerting_leader", "pyrometer_alerting_store_writable"} <= leader & other
    assert {"pyrometer_alerting_outbox_depth", "pyrometer_alerting_inbox_depth"} <= leader - other
    assert "pyrometer_alerting_backup_last_success_timestamp_seconds" not in leader | other, "pg_dump makes copies"


def test_both_show_the_same_incidents_and_so_do_the_commands(two: Two, storage: list[str]) -> None:
    for cluster in ("gpu-shown", "gpu-beside"):  # a digest names clusters where there are several
        two.deliver(two.other(), delivery(cluster))
        for each in two.both:
            wait_until(lambda each=each, name=cluster: any(seen["cluster"] == name for seen in each.incidents()))
    listed = command("replay", "--list", *storage)
    assert (listed.returncode, listed.stdout, listed.stderr) == (0, "", "")
    digest = command("digest", *storage)
    assert (digest.returncode, digest.stderr) == (0, "")
    assert "gpu-shown" in digest.stdout
    explained = command("explain", *storage)
    assert (explained.returncode, explained.stderr.count("\n")) == (2, 1)
    assert "no incident '' of a run: known runs: none" in explained.stderr


@pytest.mark.parametrize("name", ["replay", "digest", "explain"])
def test_a_command_with_a_wrong_password_is_one_line_without_it(
    two: Two, storage: list[str], tmp_path: Path, name: str
) -> None:
    file = tmp_path / "wrong"
    file.write_text("wr0ng")
    file.chmod(0o600)
    done = command(name, storage[0], f"--storage.password-file={file}")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "password authentication failed" in done.stderr
    assert "wr0ng" not in done.stderr
    assert two.leader().ready()
