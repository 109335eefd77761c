from __future__ import annotations

from pathlib import Path

import pytest

from pyrometer.follow.follower import LogFollower
from pyrometer.follow.formats import all_formats
from pyrometer.follow.recorder import Recorder
from pyrometer.follow.remarks import UNKNOWN_AFTER_SECONDS
from pyrometer.follow.step_reader import JobSize, StepReader
from pyrometer.follow.tail import Tail


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "train.log"


def follower(log: Path) -> LogFollower:
    def no_ring(*_: object) -> object:
        raise AssertionError("a ring without a step")

    recorder = Recorder({}, JobSize(), 0, no_ring, lambda _: None)  # type: ignore[arg-type]
    return LogFollower(Tail(log), StepReader(all_formats(), JobSize()), recorder, str(log.parent), lambda _: 0)


def test_a_log_that_nothing_understands_is_named_while_it_is_followed(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log.write_text("starting on 8 nodes\nSchritt 1 von 500: Verlust 2.31\n")
    reader = follower(log)
    reader.read(0.0)
    reader.read(UNKNOWN_AFTER_SECONDS - 1)
    assert capsys.readouterr().err == ""
    reader.read(UNKNOWN_AFTER_SECONDS + 0.5)
    reader.read(UNKNOWN_AFTER_SECONDS + 60)
    assert capsys.readouterr().err == (
        "pyrometer-follow: no training step in 2 lines so far: no format is similar; the line most like a step is "
        "'Schritt 1 von 500: Verlust 2.31'; describe its lines with --pattern, or choose a --format\n"
    )


def test_a_log_that_stays_empty_is_named(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log.touch()
    reader = follower(log)
    reader.read(0.0)
    reader.read(UNKNOWN_AFTER_SECONDS + 1)
    assert capsys.readouterr().err == "pyrometer-follow: the log is empty so far\n"
