from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyrometer.follow.tail import MAX_LINE_BYTES, READ_BYTES, Tail


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "train.log"


def _open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def append(path: Path, text: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


def test_a_torn_last_line_waits_for_its_end(log: Path) -> None:
    tail = Tail(log)
    append(log, "one\ntw")
    assert tail.lines() == ["one"]
    append(log, "o\n")
    assert tail.lines() == ["two"]


def test_a_file_that_comes_later_is_read_from_its_beginning(log: Path) -> None:
    tail = Tail(log, from_end=True)
    assert tail.lines() == []
    append(log, "one\n")
    assert tail.lines() == ["one"]


def test_from_the_end_only_what_comes_now_counts(log: Path) -> None:
    append(log, "old\n")
    tail = Tail(log, from_end=True)
    assert tail.lines() == []
    append(log, "new\n")
    assert tail.lines() == ["new"]


def test_what_was_rotated_away_is_read_to_its_end_first(log: Path) -> None:
    tail = Tail(log)
    append(log, "one\n")
    assert tail.lines() == ["one"]
    append(log, "two\n")
    log.rename(log.with_suffix(".1"))
    assert tail.lines() == ["two"]
    assert tail.lines() == []
    append(log, "three\n")
    assert tail.lines() == ["three"]


def test_a_file_truncated_in_place_is_begun_anew(log: Path) -> None:
    tail = Tail(log)
    append(log, "one\ntwo\nthr")
    assert tail.lines() == ["one", "two"]
    log.write_text("new\n")
    assert tail.lines() == ["new"]


def test_the_states_of_a_progress_bar_are_lines(log: Path) -> None:
    append(log, " 1/60\r 2/60\r{'loss': 1}\n")
    assert Tail(log).lines() == [" 1/60", " 2/60", "{'loss': 1}"]


def test_a_line_without_end_is_dropped_and_counted(log: Path) -> None:
    tail = Tail(log)
    append(log, "x" * (MAX_LINE_BYTES + 1))
    assert tail.lines() == []
    append(log, "\nnext\n")
    assert tail.lines() == ["next"]
    assert tail.dropped_bytes == MAX_LINE_BYTES + 1


def test_bytes_that_are_no_text_are_still_a_line(log: Path) -> None:
    log.write_bytes(b"\xff\xfe loss\n")
    assert Tail(log).lines() == ["\ufffd\ufffd loss"]


def test_a_large_file_takes_several_readings_and_says_so(log: Path) -> None:
    append(log, "x\n" * READ_BYTES)
    tail = Tail(log)
    found = [len(tail.lines()) for _ in range(2)]
    assert found == [READ_BYTES // 2] * 2
    assert tail.has_more
    assert tail.lines() == []
    assert not tail.has_more


def test_the_age_is_that_of_the_last_write(log: Path) -> None:
    tail = Tail(log)
    assert tail.age(1000.0) == 0.0
    append(log, "one\n")
    os.utime(log, (900.0, 900.0))
    tail.lines()
    assert tail.age(1000.0) == 100.0
    assert tail.age(800.0) == 0.0  # the file server's clock is ahead


def test_closing_lets_the_file_go(log: Path) -> None:
    append(log, "one\n")
    before = _open_files()
    tail = Tail(log)
    tail.lines()
    tail.close()
    tail.close()
    assert _open_files() == before


@settings(max_examples=50)
@given(st.lists(st.tuples(st.sampled_from(["write", "rotate", "read"]), st.text("ab\n", max_size=9)), max_size=30))
def test_over_writes_and_rotations_every_whole_line_comes_once(
    tmp_path_factory: pytest.TempPathFactory, moves: list[tuple[str, str]]
) -> None:
    log = tmp_path_factory.mktemp("tail") / "train.log"
    tail, written, read, number = Tail(log), [""], list[str](), 0
    append(log, "")
    for move, text in moves:
        if move == "write":
            append(log, text)
            written[-1] += text
        elif move == "rotate":
            # A rotation that nobody reads before the next can't be followed by any reader of a path.
            read += tail.lines() + tail.lines()
            number += 1
            log.rename(log.with_suffix(f".{number}"))
            append(log, "")
            written.append("")
            read += tail.lines()
        else:
            read += tail.lines()
    append(log, "\n")
    written[-1] += "\n"
    read += tail.lines() + tail.lines()
    tail.close()
    assert read == [line for file in written for line in file.split("\n")[:-1] if line]
