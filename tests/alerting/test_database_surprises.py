"""A database under two services that is another one: a copy that was put back, or another fleet's by mistake."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from alerting_fakes import body, raw_alert, wait_until
from alerting_two import Process, Two

from pyrometer_simulator.postgres import Pair, binaries, missing
from pyrometer_simulator.slack import FakeSlack
from pyrometer_simulator.slack_channel import RateLimits

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

OURS, THEIRS = "gpu-alerts", "other-fleet"


@pytest.fixture
def pair() -> Iterator[Pair]:
    with Pair() as pair:
        yield pair


@pytest.fixture
def slack() -> Iterator[FakeSlack]:
    limits = RateLimits(post_per_second=1000, post_burst=1000, tier3_per_minute=60000, tier3_burst=1000)
    with FakeSlack(channel_names=[OURS, THEIRS], token="xoxb-test", limits=limits) as fake:
        yield fake


def delivery(node: str) -> bytes:
    now = time.time()
    return bytes(body(raw_alert(node=node, cluster=node, fingerprint=node, starts_at=now - 60), groupKey=node))


def told(slack: FakeSlack, words: str) -> list[str]:
    return [message["text"] for message in slack.messages(OURS) if words in str(message)]


def put_back(pair: Pair, copy: Path) -> None:
    """Put a copy in the place of the database, while the services run."""
    pair.primary.ask("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'alerting'")
    pair.primary.ask("DROP DATABASE alerting WITH (FORCE)")
    pair.primary.ask("CREATE DATABASE alerting")
    with copy.open() as script:
        subprocess.run([*_at(pair, "psql"), "-qX"], stdin=script, check=True, timeout=60, capture_output=True)


def wait_for_beats(pair: Pair, number: int = 3) -> None:
    """Wait until the leader has written so often, once a second: both replicas know the database to be newer."""
    for _ in range(number):
        before = pair.primary.ask("SELECT at FROM beat", "alerting")
        wait_until(lambda before=before: pair.primary.ask("SELECT at FROM beat", "alerting") != before, seconds=60)


def _at(pair: Pair, program: str) -> list[str]:
    folder = binaries()
    assert folder is not None
    return [str(folder / program), "-h", "127.0.0.1", "-p", str(pair.primary.port), "-U", "postgres", "-d", "alerting"]


def test_a_copy_that_was_put_back_is_told_to_the_channel(pair: Pair, slack: FakeSlack, tmp_path: Path) -> None:
    copy = tmp_path / "copy.sql"
    with Two(tmp_path, slack, [f"--storage.url={pair.url}"]) as two:
        two.deliver(two.leader(), delivery("gpu-before"))
        wait_until(lambda: told(slack, "gpu-before"), seconds=60)
        subprocess.run([*_at(pair, "pg_dump"), "-f", str(copy)], check=True, timeout=60, capture_output=True)
        two.deliver(two.leader(), delivery("gpu-after"))
        wait_until(lambda: told(slack, "gpu-after"), seconds=60)
        wait_for_beats(pair)
        put_back(pair, copy)
        wait_until(lambda: told(slack, "lost some of what it knew"), seconds=120)
        wait_until(lambda: all(each.ready() for each in two.both), seconds=60)
        (said,) = told(slack, "lost some of what it knew")
        assert "the database is older than it was" in str(slack.messages(OURS))
        assert len(told(slack, "gpu-before")) == 1, "what the copy has is not posted again"
        assert "Traceback" not in "".join(each.logged() for each in two.both)
        assert said


def test_two_fleets_on_one_database_are_said(pair: Pair, slack: FakeSlack, tmp_path: Path) -> None:
    storage = f"--storage.url={pair.url}"
    ours = Process(tmp_path, "ours", slack, [storage])
    theirs = Process(tmp_path, "theirs", slack, [storage, f"--slack.channel=#{THEIRS}"])
    try:
        ours.start()
        wait_until(ours.leads, seconds=60)
        theirs.start()
        wait_until(lambda: "two fleets need a database each" in theirs.logged(), seconds=90)
        (line,) = [each for each in theirs.logged().splitlines() if "two fleets" in each]
        assert f"sends to #{OURS} at" in line
        assert f"this one to #{THEIRS} at" in line
        assert "two fleets" not in ours.logged()
        ours.end()
        wait_until(theirs.leads, seconds=60)
        ours.start()
        wait_until(lambda: "two fleets" in ours.logged(), seconds=90)
    finally:
        ours.end()
        theirs.end()


def test_no_list_of_processes_or_sessions_has_the_password(pair: Pair, slack: FakeSlack, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("s3cr3t-of-the-database\n")
    file.chmod(0o600)
    one = Process(tmp_path, "one", slack, [f"--storage.url={pair.url}", f"--storage.password-file={file}"])
    try:
        one.start()
        wait_until(one.leads, seconds=60)
        assert one._process is not None
        process = Path(f"/proc/{one._process.pid}")
        seen = b"".join((process / name).read_bytes() for name in ("cmdline", "environ", "comm"))
        for page in ("/metrics", "/", "/api/v1/incidents", "/-/ready", "/api/v1/audit"):
            seen += one.ask("GET", page)[1]
        seen += pair.primary.ask("SELECT * FROM pg_stat_activity").encode() + one.logged().encode()
        assert b"storage.password-file" in seen
        assert b"s3cr3t" not in seen
    finally:
        one.end()
