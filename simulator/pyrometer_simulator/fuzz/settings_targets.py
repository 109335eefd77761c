"""Targets of what people and jobs set: the database's address, addresses of trackers' runs, patterns of a log."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

from pyrometer_simulator.fuzz.target import Check, Target

_SECRETS = ("password", "sslpassword")


def storage_url(_folder: Path, _at_end: ExitStack) -> Check:
    """Build the check of `--storage.url`: libpq finds no secret in what is let through, and no message repeats it."""
    from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415

    from pyrometer_alerting.app.shared import check_address  # noqa: PLC0415
    from pyrometer_alerting.incidents.storage.postgresql import Server  # noqa: PLC0415
    from pyrometer_kit.errors import UsageError  # noqa: PLC0415

    def check(data: bytes) -> None:
        url = data.decode("utf-8", "replace")
        try:
            check_address(url)
            server = Server(url, "s3cr3t")
        except (UsageError, ValueError) as error:
            assert "\n" not in str(error)
            assert len(url) < 40 or url not in str(error)
            return
        assert not any(conninfo_to_dict(url).get(name) for name in _SECRETS), "a list of processes shows it"
        assert "s3cr3t" not in server.name

    return check


def tracker_links(_folder: Path, _at_end: ExitStack) -> Check:
    """Build the check of addresses that a job gives for its run: what is served is a link, and holds no key."""
    from pyrometer import _links, ring  # noqa: PLC0415

    def check(data: bytes) -> None:
        text = data.decode("utf-8", "surrogateescape")
        found = _links.clean(text)
        if found:
            assert found.startswith(("http://", "https://"))
            assert not set("?\"'<>\\ \n") & set(found), "it ends a link elsewhere, or may hold a key"
            assert "@" not in found.split("/")[2].partition("#")[0]
            assert _links.clean(found) == found
        name, _, url = text.partition(" ")
        taken, dropped = _links.packed({name: url, "wandb": text})
        assert len(taken.encode()) <= ring.LINKS_BYTES
        assert all(len(line.split(" ")) == 2 for line in taken.splitlines())
        assert all(len(each) <= ring.LINK_NAME_BYTES for each in dropped)

    return check


def log_pattern(folder: Path, _at_end: ExitStack) -> Check:
    """Build the check of a file of patterns and a log's line: one line about what is wrong, and an end in time."""
    from pyrometer.follow import pattern  # noqa: PLC0415
    from pyrometer.follow.pattern import format_of, read_description  # noqa: PLC0415

    pattern.__dict__["report"] = lambda _: None
    pattern.MATCH_SECONDS = 0.2
    file = folder / "patterns.yaml"

    def check(data: bytes) -> None:
        text, _, log = data.partition(b"\n--\n")
        file.write_bytes(text)
        try:
            description = read_description(file)
        except ValueError as error:
            assert "\n" not in str(error)
            return
        parser = format_of(description).parser()
        for line in log.decode("utf-8", "replace").splitlines():
            began = time.process_time()
            parser.feed(line)
            assert time.process_time() - began < 0.2 * len(description.lines) + 1.0

    return check


_PATTERNS = (
    b"lines:\n  - 'step (?P<step>\\d+) .*loss (?P<loss>\\S+)'\n--\nstep 1 of 9 loss 2.5\nstep 2 of 9 loss 1e3\n",
    b"name: ours\nunits: {seconds: ms}\nmean: loss\nlines:\n  - '(?P<step>[\\d,]+)/'\n  - 't: (?P<seconds>.*)'\n--\n1,000/\nt: 5\n",
    b"lines:\n  - '(?P<step>\\d+)(?: (?:\\w+)+)+$'\n--\n1 aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!\n",
)
TARGETS = (
    Target("storage_url", "the address of the database, as people type it", storage_url,
           (b"postgresql://pyrometer@db-1,db-2:5433/alerting?sslmode=verify-full", b"postgres://me:s@db/a",
            b"postgresql://me@[::1]/a?host=/run", b"postgresql:///a?user=me&p%61ssword=s"),
           (b"postgresql://", b"postgres://", b"password=", b"sslpassword=", b"%70", b"%40", b"[::1]", b"hostaddr=", b"@", b"?")),
    Target("tracker_links", "addresses of a run's page in W&B or MLflow, which the job gives", tracker_links,
           (b"https://wandb.ai/team/project/runs/abc?apiKey=x", b"http://user:pw@mlflow:5000/#/experiments/1/runs/2",
            b"comet https://comet.example/a"),
           (b"https://", b"http://", b"@", b"?apiKey=", b"#/", b"%00", b"\xe2\x80\xae", b"<", b"'", b"wandb ")),
    Target("log_pattern", "patterns that a user gives for a log, and its lines", log_pattern, _PATTERNS,
           (b"(?P<step>", b"(?P<loss>", b"(?P<seconds>", b"lines:\n  - ", b"units: ", b"mean: ", b"\n--\n", b"+)+", b".*",
            b"name: ", b"convention: megatron")),
)  # fmt: skip
