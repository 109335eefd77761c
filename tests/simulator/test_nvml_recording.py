"""A driver recorded and played back: the collector can't tell one from the other."""

from __future__ import annotations

import argparse
import ctypes
import time
from pathlib import Path

import pytest

from pyrometer_exporters.framework.collector import Context
from pyrometer_exporters.framework.metrics import Columns, Sample
from pyrometer_exporters.node.gpu.collector import add_flags, build
from pyrometer_simulator.nvml import SimulatedGpus, installed, recording
from pyrometer_simulator.nvml.recording import Recorder, under_pynvml

# Measured by our own sampler, or a time: different in each run.
_OF_THE_RUN = ("pyrometer_gpu_clock_event", "pyrometer_gpu_xid_last")


class StillClock:
    """Starts at 1000 s; each scrape is 15 s later."""

    def __init__(self) -> None:
        self.now = 1000.0

    def wall(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


def scraped(folder: Path, clock: StillClock) -> dict[tuple[str, tuple[str, ...]], float]:
    """The third scrape of a new collector."""
    parser = argparse.ArgumentParser()
    add_flags(parser)
    context = Context(parser.parse_args([]), clock, folder, folder, folder, None, folder / "kmsg")
    collector = build(context)
    for _ in range(3):
        clock.now += 15
        found = list(collector.collect(time.monotonic() + 4))
    collector.close()
    samples = [item for item in found if isinstance(item, Sample)]
    samples += [sample for item in found if isinstance(item, Columns) for sample in item.samples()]
    return {(s.family.name, s.labels): s.value for s in samples if not s.family.name.startswith(_OF_THE_RUN)}


@pytest.mark.parametrize("driver", ["535.183.01", "595.45.04"])
def test_what_is_played_is_what_was_recorded(tmp_path: Path, driver: str) -> None:
    gpus = SimulatedGpus(tmp_path / "gpus", count=2, driver=driver, monotonic=lambda: 1000.0)
    gpus[0].load(utilisation=87, temperature=71)
    gpus[1].lack("power_limit")
    clock = StillClock()
    with installed(gpus.path, clock.monotonic) as library:
        recorder = Recorder(library)
        with under_pynvml(recorder):
            recorded = scraped(tmp_path, clock)
    recorder.save(tmp_path / "recording.json")
    with under_pynvml(recording.load(tmp_path / "recording.json")):
        played = scraped(tmp_path, StillClock())
    assert len(recorded) > 100
    assert played == recorded
    assert any(name == "DCGM_FI_PROF_SM_ACTIVE" and value > 0 for (name, _labels), value in played.items())


def test_record_here_and_play_there_give_the_same_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyrometer_exporters.commands.doctor.examine.PAUSE_SECONDS", 0.15)
    monkeypatch.setattr("pyrometer_kit.logs.set_up", lambda *_: None)  # it is for a whole process
    gpus = SimulatedGpus(tmp_path / "gpus", count=2)
    gpus[0].load()
    file = str(tmp_path / "recording.json")
    paths = [f"--path.{name}={tmp_path}/{name}" for name in ("sysfs", "procfs", "rings", "kmsg", "state")]
    with installed(gpus.path) as library:
        monkeypatch.setattr(ctypes, "CDLL", lambda _name: library)
        status = recording.main(["record", file, "--", *paths])
    recorded = capsys.readouterr().out
    assert recording.main(["play", file, "--", *paths]) == status
    assert _but_how_long_it_took(capsys.readouterr().out) == _but_how_long_it_took(recorded)
    assert "H100" in recorded


def _but_how_long_it_took(report: str) -> str:
    return report.partition("\nCollectors\n")[0]


@pytest.mark.parametrize("content", [None, "", "{", "[]", '{"version": 1}', "\xff"])
def test_what_is_no_recording_is_one_line_and_2(
    content: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "recording.json"
    if content is not None:
        file.write_bytes(content.encode("latin-1"))
    with pytest.raises(SystemExit) as end:
        recording.main(["play", str(file)])
    assert end.value.code == 2
    error = capsys.readouterr().err
    assert ("No such file" if content is None else "has no tape of a driver") in error.splitlines()[-1]


def test_a_machine_without_a_driver_is_one_line_and_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> None:
        msg = f"{name}: cannot open shared object file"
        raise OSError(msg)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    with pytest.raises(SystemExit) as end:
        recording.main(["record", str(tmp_path / "recording.json")])
    assert end.value.code == 2
    assert "no NVIDIA driver on this machine" in capsys.readouterr().err
