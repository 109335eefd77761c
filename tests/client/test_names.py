"""Accepts metrics and parts by names of the job's own up to a limit, and reports what is dropped once."""

from __future__ import annotations

import copy
import errno
import os
import pickle
import types
from pathlib import Path
from typing import Any

import pytest
from client_ring_reader import ReadRing

import pyrometer
from pyrometer import ring
from pyrometer.huggingface import callback as huggingface_callback
from pyrometer.lightning import callback as lightning_callback


def test_any_metric_is_recorded(run: pyrometer.Run, seen: ReadRing) -> None:
    with run.step():
        run.record(loss=2.0, lr=1e-4, los=3)
    with run.step():
        run.record(**{"train/accuracy": 0.5})
    with run.step():
        pass
    first, second, third = seen(run.path).records
    assert (first.loss, first.metrics) == (2.0, (("lr", 1e-4), ("los", 3.0)))
    assert (second.metrics, third.metrics) == ((("train/accuracy", 0.5),), ())


def test_a_job_without_metrics_of_its_own_takes_no_memory_for_them(run: pyrometer.Run) -> None:
    assert Path(run.path).stat().st_size == ring.FILE_BYTES
    with run.step():
        run.record(lr=1.0)
    assert Path(run.path).stat().st_size == ring.VALUES_OFFSET + ring.VALUES_BYTES


def test_a_full_folder_costs_one_try_and_one_line(
    rings: str, seen: ReadRing, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []

    def full(*place: int) -> None:
        tries.append(place)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    run = pyrometer.start("r", rings=rings)
    monkeypatch.setattr(os, "posix_fallocate", full)
    for _ in range(3):
        with run.step():
            run.record(loss=1.0, lr=0.1, accuracy=0.5)
    assert len(tries) == 1
    (line,) = capfd.readouterr().err.splitlines()
    assert "any metric of the job's own is not recorded" in line
    assert line.endswith("No space left on device")
    assert [r.loss for r in seen(run.path).records] == [1.0] * 3
    run.close()


def test_metrics_go_round_with_the_records(run: pyrometer.Run, seen: ReadRing) -> None:
    for number in range(ring.CAPACITY + 10):
        with run.step():
            run.record(number=number)
    records = seen(run.path).records
    assert [dict(r.metrics)["number"] for r in records] == [r.sequence for r in records]


def test_the_seventeenth_metric_is_dropped_and_reported_once(
    run: pyrometer.Run, seen: ReadRing, capfd: pytest.CaptureFixture[str]
) -> None:
    for _ in range(3):
        with run.step():
            run.record(**{f"m{n}": 1.0 for n in range(17)})
    assert len(seen(run.path).records[2].metrics) == 16
    assert capfd.readouterr().err == (
        "pyrometer: run r: metric 'm16' is not recorded: a run has at most 16 of its own\n"
    )


def test_parts_of_the_jobs_own_are_timed(run: pyrometer.Run, seen: ReadRing, capfd: pytest.CaptureFixture[str]) -> None:
    with run.step():
        for n in range(10):
            with run.part(f"part{n}"):
                if n == 0:
                    inside = seen(run.path).header
    header = seen(run.path).header
    assert inside.part == len(ring.PARTS) + 1
    assert all(total > 0 for total in header.named_part_totals)
    assert len(header.named_part_totals) == 8
    assert capfd.readouterr().err.count("a run has at most 8 of its own") == 2


def test_an_exception_in_a_part_of_the_jobs_own_names_it(run: pyrometer.Run, seen: ReadRing) -> None:
    with pytest.raises(ValueError, match="x"), run, run.step(), run.part("fwd"):
        raise ValueError("x")
    assert seen(run.path).last_part == "fwd"


def test_an_unknown_tag_is_reported_once(run: pyrometer.Run, capfd: pytest.CaptureFixture[str]) -> None:
    for _ in range(3):
        run.tag("foo")
    assert capfd.readouterr().err == (
        "pyrometer: run r: tag 'foo' is not recorded: tags are checkpoint, eval, warmup, ramp, restart, skipped\n"
    )


def test_values_without_names(run: pyrometer.Run, seen: ReadRing, capfd: pytest.CaptureFixture[str]) -> None:
    for values in ((3.0,), ({"loss": 4.0, "lr": 1.0},), (5.0, 6.0), ({1: 2},)):
        with run.step():
            run.record(*values)
    assert [r.loss for r in seen(run.path).records] == [3.0, 4.0, 5.0, None]
    assert capfd.readouterr().err.count("pass values by keyword") == 1


def test_values_given_twice_or_by_any_name(rings: str, seen: ReadRing, capfd: pytest.CaptureFixture[str]) -> None:
    run = pyrometer.start("r", rings=rings)
    with run.step():
        run.record(1.0, loss=2.0)
        run.record(self=1, given=2)
    run.tick()
    run.tick(3.0, self=1)
    assert [r.loss for r in seen(run.path).records] == [2.0, 3.0]
    assert capfd.readouterr().err.count("value 1.0 is not recorded: pass values by keyword") == 1
    run.close()


def test_watch_and_auto_with_wrong_arguments(rings: str, capfd: pytest.CaptureFixture[str]) -> None:
    target: Any = types.SimpleNamespace(step=lambda: 5)
    client: Any = pyrometer
    calls = (
        lambda: client.auto("a", run="b", rings=rings),
        lambda: client.auto("a", self=1, rings=rings),
        lambda: client.watch(target, "step", "r", "c", rings=rings),
        lambda: client.watch(target, "step", target=1, function=2, rings=rings),
        lambda: client.watch(target, rings=rings),
    )
    for call in calls:
        run = call()
        assert run.disabled is None
        run.close()
    assert target.step() == 5
    assert capfd.readouterr().err.splitlines() == [
        "pyrometer: unknown settings ignored: self",
        "pyrometer: settings must be passed by keyword; ignored: ('c',)",
        "pyrometer: unknown settings ignored: function",
        "pyrometer: nothing to report: name not given",
    ]


def test_settings_without_names(rings: str, capfd: pytest.CaptureFixture[str]) -> None:
    run: Any = pyrometer.start("a", 1e9, rings=rings)  # type: ignore[call-arg]
    assert run.disabled is None
    assert "settings must be passed by keyword; ignored: (1000000000.0,)" in capfd.readouterr().err
    assert pyrometer.auto("a", 1e9, rings=rings).disabled is None  # type: ignore[call-arg]
    assert pyrometer.start("a", run="b", rings=rings).disabled is None  # type: ignore[misc]


@pytest.mark.parametrize("callback", [huggingface_callback, lightning_callback])
def test_a_callback_can_be_sent_to_another_process(callback: Any) -> None:
    made = callback(run="r", sequence_length=4)
    for sent in (pickle.loads(pickle.dumps(made)), copy.deepcopy(made)):  # noqa: S301  of our own making
        assert type(sent).__name__ == "PyrometerCallback"
        assert sent.settings == {"run": "r", "sequence_length": 4}


def test_a_run_sent_to_another_process_records_nothing_there(run: pyrometer.Run) -> None:
    sent = pickle.loads(pickle.dumps(run))  # noqa: S301  of our own making
    assert sent.disabled == "belongs to another process"
    with sent.step():
        sent.record(loss=1.0, lr=1.0)
    assert run.disabled is None
