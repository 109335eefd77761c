"""A node over simulated GPUs, and the doctor over it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pyrometer_exporters.commands.doctor import main as doctor
from pyrometer_simulator.nvml import SimulatedGpus, installed


class Bench:
    """A node's files, and the doctor over them."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capsys = capsys

    def make(self, count: int = 3, **settings: Any) -> SimulatedGpus:
        gpus = SimulatedGpus(self.folder / "gpus", count=count, **settings)
        gpus.write_pci_tree(self.folder / "sys")
        (self.folder / "proc/1").mkdir(parents=True)
        (self.folder / "proc/1/cgroup").write_text("0::/init.scope\n")
        (self.folder / "kmsg").touch()
        return gpus

    def doctor(self, *flags: str) -> tuple[int, str]:
        folder = self.folder
        names = ("sysfs=sys", "procfs=proc", "rings=rings", "state=state", "kmsg=kmsg")
        paths = [f"--path.{name}={folder}/{where}" for name, where in (text.split("=") for text in names)]
        with installed(folder / "gpus"):
            status = doctor.main([*paths, *flags])
        return status, self._capsys.readouterr().out

    def absent(self, gpu: int = 0) -> dict[str, str]:
        """Return why each metric that a GPU lacks is absent."""
        return {entry["metric"]: entry["why"] for entry in self.json()[1]["gpus"][gpu]["absent"]}

    def json(self, *flags: str) -> tuple[int, Any]:
        status, out = self.doctor("--json", *flags)
        return status, json.loads(out)


@pytest.fixture
def bench(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr("pyrometer_exporters.commands.doctor.examine.PAUSE_SECONDS", 0.15)
    monkeypatch.setattr("pyrometer_kit.logs.set_up", lambda *_: None)  # it is for a whole process
    return Bench(tmp_path, capsys)
