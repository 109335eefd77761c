"""No line of a log, and no pattern, may keep the follower busy: it shares its node with the training."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from pyrometer.follow import pattern as pattern_module
from pyrometer.follow.formats import all_formats
from pyrometer.follow.log_line import LoggedStep, clean
from pyrometer.follow.pattern import CutOff, cut_off, describe, format_of
from pyrometer.follow.step_reader import JobSize, StepReader
from pyrometer.follow.tail import MAX_LINE_BYTES, READ_BYTES, Tail

# A regular expression may try these again from each place of a line.
FRAGMENTS = (
    "[",
    " ",
    "1",
    "1,",
    "1.",
    ">> ",
    "|",
    "[rank0]:",
    "step 1 loss: 1 ",
    "iteration 1/",
    "{'loss': 1, ",
    "\x1b[1m",
)
CATASTROPHE = r"step (?P<step>\d+)(?: (?:\w+)+)+$"
HOSTILE = "step 1 " + "a" * 40 + "!"


@pytest.mark.parametrize("name", sorted(all_formats()))
def test_the_longest_line_takes_less_than_a_second_in_any_format(name: str) -> None:
    parser = all_formats()[name].parser()
    for fragment in FRAGMENTS:
        line = (fragment * MAX_LINE_BYTES)[:MAX_LINE_BYTES]
        began = time.process_time()
        parser.feed(clean(line).text)
        assert time.process_time() - began < 1.0, fragment


def test_the_longest_line_takes_less_than_a_second_before_a_format_is_known() -> None:
    for fragment in FRAGMENTS:
        line = (fragment * MAX_LINE_BYTES)[:MAX_LINE_BYTES]
        reader = StepReader({}, JobSize())
        began = time.process_time()
        list(reader.read([line], 1.0))
        assert time.process_time() - began < 1.0, fragment


def test_a_line_that_is_too_long_is_dropped_though_it_came_at_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"first\n" + b"x" * (MAX_LINE_BYTES + 1) + b"\n" + b"y" * MAX_LINE_BYTES + b"\nlast\n")
    assert log.stat().st_size < READ_BYTES
    tail = Tail(log)
    assert [line[:5] for line in tail.lines()] == ["first", "yyyyy", "last"]
    assert tail.dropped_bytes == MAX_LINE_BYTES + 1


def test_a_pattern_that_takes_too_long_is_cut_off_rests_and_is_reported_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pattern_module, "MATCH_SECONDS", 0.05)
    parser = format_of(describe([CATASTROPHE, r"loss (?P<loss>\S+)"])).parser()
    assert parser.feed("step 1 is fine") is None
    began = time.process_time()
    assert parser.feed(HOSTILE) is None
    assert time.process_time() - began < 1.0, "it would take years"
    began = time.process_time()
    for _ in range(1000):
        parser.feed(HOSTILE)
    assert time.process_time() - began < 0.5, "the pattern rests"
    assert parser.feed("loss 2.5") == LoggedStep(1, loss=2.5), "the others go on"
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "took more than 0.05 s on a line" in said


def test_a_pattern_that_has_rested_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pattern_module, "MATCH_SECONDS", 0.05)
    now = [1000.0]
    monkeypatch.setattr(pattern_module.time, "monotonic", lambda: now[0])
    parser = format_of(describe([CATASTROPHE])).parser()
    parser.feed(HOSTILE)  # no second passed by this clock, so there is none to rest
    assert parser.feed("step 3 was fine") == LoggedStep(3)


def _go_on_for_ever() -> None:
    while True:
        pass


def test_what_is_quick_is_not_cut_off_and_what_is_another_threads_cannot_be() -> None:
    with cut_off(10.0):
        pass
    with pytest.raises(CutOff), cut_off(0.01):
        _go_on_for_ever()
    done = threading.Event()

    def beside() -> None:
        with cut_off(0.001):
            until = time.thread_time() + 0.02
            while time.thread_time() < until:
                pass
        done.set()

    thread = threading.Thread(target=beside)
    thread.start()
    thread.join(10)
    assert done.is_set()
