"""The event log over rotation, truncation, torn writes and restarts: each event once."""

from __future__ import annotations

import errno
import os
import random
from collections import Counter
from datetime import timezone
from pathlib import Path

import pytest

from pyrometer_exporters.cluster.ufm import event_counts, logfile
from pyrometer_exporters.cluster.ufm.families import LEFT_OUT, at_zero, event_samples
from pyrometer_exporters.cluster.ufm.reader import Reader
from pyrometer_kit.statefile import StateFile
from pyrometer_simulator.ufm import HostPort, SwitchPort, UfmLog

LEAF, SPINE = SwitchPort("leaf-12", 17), SwitchPort("spine-3", 33)
HOST = HostPort("gpu-174", "mlx5_5")


class Exporter:
    """A reader that can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.state: Path | None = folder / "state"
        self.state.mkdir()
        self.log = UfmLog(folder / "log/event.log", wall=lambda: 1_800_000_000.0, zone=timezone.utc)
        self.start()

    def start(self) -> None:
        self.reader = Reader(self.log.path, timezone.utc, StateFile(self.state, "ufm.json"))

    def turns(self, count: int = 3) -> None:
        for _ in range(count):
            self.reader.turn()

    def link_down(self) -> None:
        """Lose a link, and read of it."""
        self.log.link_down(LEAF, HOST)
        self.turns()

    def kill(self) -> None:
        self.reader.close()
        self.start()

    def numbers(self) -> dict[int, int]:
        return {number: count for number, count in self.reader.counts.numbers.items() if count}

    def lines(self) -> dict[str, int]:
        return dict(self.reader.lines)


@pytest.fixture
def exporter(tmp_path: Path) -> Exporter:
    return Exporter(tmp_path)


def test_what_was_there_before_is_learned_and_not_counted(exporter: Exporter) -> None:
    exporter.log.link_down(LEAF, HOST, "MT1")
    exporter.turns()
    assert exporter.numbers() == {}
    assert [link.switch for link in exporter.reader.counts.links.values()] == ["leaf-12"]
    exporter.log.link_down(LEAF, HOST, "MT1")
    exporter.turns()
    assert exporter.numbers() == {329: 1}


def test_an_event_of_many_lines_is_one_event(exporter: Exporter) -> None:
    exporter.turns(1)
    exporter.log.report(5)
    exporter.link_down()
    assert exporter.numbers() == {517: 1, 329: 1}
    assert exporter.lines() == {"event": 2, "continuation": 5}


def test_the_newest_event_is_counted_without_one_after_it(exporter: Exporter) -> None:
    exporter.turns(1)
    exporter.log.link_down(LEAF, HOST)
    exporter.turns(2)
    assert exporter.numbers() == {329: 1}


def test_lines_that_cannot_be_understood_are_counted_and_cost_nothing_else(exporter: Exporter) -> None:
    exporter.turns(1)
    exporter.log.write("2026-01-20 07:46:24.442 [a new format]\nwhat is this\n")
    exporter.log.link_down(LEAF, HOST)
    exporter.log.write("2026-01-20 07:46:24.442 [another]\n\n  indented\n")
    exporter.turns()
    assert exporter.numbers() == {329: 1}
    assert exporter.lines() == {"event": 1, "unparsed": 3, "continuation": 2}


def test_a_line_that_is_written_in_pieces_is_one_line(exporter: Exporter) -> None:
    exporter.turns(1)
    line = exporter.log.line(329, "WARNING", "Link [x]", f"Link went down: {LEAF} - {HOST}")
    for start in range(0, len(line), 7):
        exporter.log.write(line[start : start + 7])
        exporter.turns(1)
    exporter.turns()
    assert exporter.numbers() == {329: 1}
    assert exporter.lines() == {"event": 1}


def test_a_line_without_end_is_cut_off(exporter: Exporter) -> None:
    exporter.turns(1)
    exporter.log.write("x" * 3 * logfile.MAX_LINE)
    exporter.turns()
    exporter.log.write("still the same line\n")
    exporter.link_down()
    assert exporter.numbers() == {329: 1}


@pytest.mark.parametrize("how", ["rotate", "copy_and_truncate"])
def test_rotation_and_truncation_lose_nothing_and_repeat_nothing(exporter: Exporter, how: str) -> None:
    exporter.turns(1)
    for count in range(1, 6):
        exporter.link_down()
        getattr(exporter.log, how)()
        exporter.log.flap(LEAF, HOST)
        exporter.turns()
        assert exporter.numbers() == {329: 2 * count, 328: count}


def test_what_is_written_to_the_old_file_after_it_was_renamed_counts(exporter: Exporter) -> None:
    exporter.turns(1)
    with exporter.log.path.open("a") as old:
        exporter.log.rotate()
        exporter.turns()
        old.write(exporter.log.line(329, "WARNING", "Link [x]", f"Link went down: {LEAF} - {HOST}"))
    exporter.turns()
    exporter.link_down()
    assert exporter.numbers() == {329: 2}


def test_a_file_that_was_truncated_and_has_grown_beyond_is_told_by_its_beginning(exporter: Exporter) -> None:
    exporter.turns(1)
    exporter.link_down()
    os.truncate(exporter.log.path, 0)
    for _ in range(5):
        exporter.log.link_up(LEAF, HOST)
    exporter.turns()
    assert exporter.numbers() == {329: 1, 328: 5}


def test_a_log_that_disappears_is_said_and_gone_on_with(exporter: Exporter) -> None:
    exporter.turns(1)
    exporter.link_down()
    exporter.log.path.unlink()
    exporter.turns()  # between the two steps of a rotation nothing is wrong yet
    exporter.kill()
    with pytest.raises(FileNotFoundError):
        exporter.turns()
    exporter.log.path.touch()
    exporter.link_down()
    assert exporter.numbers() == {329: 2}
    assert exporter.reader.gaps == 1


@pytest.mark.parametrize("rotations", [1, 2, 3])
def test_rotations_during_a_restart_lose_nothing(exporter: Exporter, rotations: int) -> None:
    exporter.turns(1)
    exporter.link_down()
    for index in range(rotations):
        exporter.log.link_down(LEAF, HOST)
        exporter.log.rotate()
        old = exporter.log.path.with_name("event.log.1")
        os.utime(old, ns=(1_000_000_000 * (index + 1),) * 2)
    exporter.log.link_down(LEAF, HOST)
    exporter.kill()
    exporter.turns(rotations + 3)
    assert exporter.numbers() == {329: rotations + 2}
    assert exporter.reader.gaps == 0


def test_a_file_that_is_gone_after_a_restart_is_a_gap(exporter: Exporter) -> None:
    exporter.turns(1)
    exporter.link_down()
    exporter.log.path.rename(exporter.log.path.with_name("event.log.1.gz"))
    exporter.log.link_down(LEAF, HOST)
    exporter.kill()
    exporter.turns()
    assert exporter.numbers() == {329: 2}
    assert exporter.reader.gaps == 1
    exporter.kill()
    exporter.turns()
    assert exporter.reader.gaps == 1


def test_without_a_state_folder_a_restart_counts_from_0_and_repeats_nothing(exporter: Exporter) -> None:
    exporter.state = None
    exporter.kill()
    exporter.turns(1)
    exporter.link_down()
    exporter.kill()
    exporter.turns()
    assert exporter.numbers() == {}


def test_a_damaged_state_is_set_aside(exporter: Exporter) -> None:
    assert exporter.state is not None
    exporter.turns(1)
    exporter.link_down()
    for text in ("", "{}", '{"version": 1, "place": 3}', '{"version": 9}', "[]", "\x00"):
        (exporter.state / "ufm.json").write_text(text)
        exporter.kill()
        exporter.turns()
        assert exporter.numbers() == {}


def test_a_state_that_cannot_be_saved_is_said_and_costs_no_counts(exporter: Exporter) -> None:
    assert exporter.state is not None
    (exporter.state / "ufm.json.new").mkdir()
    exporter.turns(1)
    exporter.link_down()
    assert exporter.numbers() == {329: 1}
    assert exporter.reader.state_error is not None


def test_a_backlog_is_read_in_turns(exporter: Exporter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logfile, "TURN_BYTES", 1000)
    monkeypatch.setattr(logfile, "_CHUNK", 300)
    exporter.turns(1)
    for _ in range(50):
        exporter.log.link_down(LEAF, HOST)
    exporter.turns(1)
    assert exporter.reader.unread > 0
    assert 0 < exporter.numbers()[329] < 50
    exporter.turns(50)
    assert exporter.numbers() == {329: 50}
    assert exporter.reader.unread == 0


class History:
    """Random things that happen to the log and to the exporter, and what was really written."""

    def __init__(self, exporter: Exporter, seed: int) -> None:
        self.exporter = exporter
        self.random = random.Random(seed)  # noqa: S311  a test's history
        self.written: Counter[int] = Counter()
        self.held = ""
        self.age = 0
        self.way = self.random.choice(["rotate", "truncate"])  # nobody does now this and now that

    def step(self) -> None:
        weights = {"event": 8, "report": 2, "torn": 3, "turn": 6, "kill": 2, self.way: 2}
        name = self.random.choices(list(weights), list(weights.values()))[0]
        if name not in ("turn", "kill"):
            self.finish()
        getattr(self, name)()

    def finish(self) -> None:
        """Return the rest of a line that was begun."""
        if self.held:
            self.exporter.log.write(self.held)
            self.written[329] += 1
            self.held = ""

    def event(self) -> None:
        number = self.random.choice([328, 329, 4711])
        self.exporter.log.event(number, "INFO", "Link [x]", f"Link went down: {LEAF} - {HOST}")
        self.written[number] += 1

    def report(self) -> None:
        self.exporter.log.report(self.random.randrange(4))
        self.written[517] += 1

    def torn(self) -> None:
        line = self.exporter.log.line(329, "WARNING", "Link [x]", f"Link went down: {LEAF} - {SPINE}")
        cut = self.random.randrange(1, len(line))
        self.exporter.log.write(line[:cut])
        self.held = line[cut:]

    def turn(self) -> None:
        self.exporter.turns(self.random.randrange(1, 3))

    def kill(self) -> None:
        self.exporter.kill()

    def rotate(self) -> None:
        self.exporter.log.rotate()
        self._grow_old()

    def truncate(self) -> None:
        self.exporter.turns(12)  # what nobody had read before the truncation is lost to everyone
        self.exporter.log.copy_and_truncate()
        self._grow_old()

    def _grow_old(self) -> None:
        """Files that are written within a millisecond may not have times of their own."""
        self.age += 1
        os.utime(self.exporter.log.path.with_name("event.log.1"), ns=(self.age * 1_000_000_000,) * 2)


@pytest.mark.parametrize("seed", range(60))
def test_in_any_history_each_event_is_counted_once(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes, torn writes, rotations, truncations and kills: the counts are what was written."""
    monkeypatch.setattr(logfile, "_CHUNK", 100 if seed % 2 else 1 << 18)
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)  # a kill, not a power cut
    exporter = Exporter(tmp_path)
    exporter.turns(1)
    history = History(exporter, seed)
    for _ in range(80):
        history.step()
    history.finish()
    exporter.turns(15)
    assert exporter.numbers() == dict(history.written)
    assert exporter.lines().get("unparsed", 0) == 0


def test_a_folder_in_the_logs_place_is_reported_and_the_log_that_returns_is_read_on(exporter: Exporter) -> None:
    exporter.turns(1)
    exporter.link_down()
    kept = exporter.log.path.with_name("kept.gz")
    exporter.log.path.rename(kept)
    exporter.log.path.mkdir()
    for _ in range(3):
        with pytest.raises(IsADirectoryError):
            exporter.reader.turn()
    exporter.log.path.rmdir()
    kept.rename(exporter.log.path)
    exporter.link_down()
    assert exporter.numbers() == {329: 2}
    assert exporter.reader.gaps == 0


def test_a_folder_from_the_start_is_reported_until_there_is_a_log(exporter: Exporter) -> None:
    exporter.log.path.parent.mkdir(exist_ok=True)
    exporter.log.path.unlink(missing_ok=True)
    exporter.log.path.mkdir()
    for _ in range(3):
        with pytest.raises(IsADirectoryError):
            exporter.reader.turn()
    exporter.log.path.rmdir()
    exporter.link_down()
    exporter.link_down()
    assert exporter.numbers() == {329: 1}  # the first one was there before the exporter


@pytest.mark.parametrize("call", ["pread", "fstat"])
def test_a_descriptor_that_went_stale_is_opened_anew_and_nothing_counts_twice(
    exporter: Exporter, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    exporter.turns(1)
    exporter.link_down()
    assert exporter.reader._log._open is not None
    stale = exporter.reader._log._open.descriptor
    real = getattr(os, call)

    def answers(descriptor: int, *arguments: int) -> object:
        if descriptor == stale:
            raise OSError(errno.ESTALE, "Stale file handle")
        return real(descriptor, *arguments)

    monkeypatch.setattr(logfile.os, call, answers)
    exporter.log.link_down(LEAF, HOST)
    other = os.open("/dev/null", os.O_RDONLY)  # takes the lowest number, so that the stale one isn't given out again
    with pytest.raises(OSError, match="Stale"):
        exporter.reader.turn()
    stale = -1
    os.close(other)
    exporter.turns()
    assert exporter.numbers() == {329: 2}
    assert exporter.reader.gaps == 0


def test_a_port_beyond_the_limit_is_counted_as_left_out_and_never_0(
    exporter: Exporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_counts, "MAX_PLACES", 2)
    exporter.turns(1)
    for number in range(4):
        exporter.log.link_down(SwitchPort("leaf-12", number + 1), HostPort(f"gpu-{number}", "mlx5_0"))
    exporter.turns()
    counts = exporter.reader.counts
    assert counts.left_out == {"place": 2}
    assert len(counts.places) == 2
    assert list(at_zero(counts)) == []
    exporter.kill()
    assert exporter.reader.counts.left_out == {"place": 2}
    served = {s.labels: s.value for s in event_samples(counts, {}, 0.0) if s.family is LEFT_OUT}
    assert served == {("number",): 0, ("place",): 2, ("cable",): 0, ("link",): 0}
