"""What the doctor says about nodes in various states, over simulated GPUs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyrometer_exporters.doctor import main as doctor
from pyrometer_exporters.doctor.why import NOTHING, why_absent
from pyrometer_exporters.framework.metrics import Family
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

    def json(self, *flags: str) -> tuple[int, Any]:
        status, out = self.doctor("--json", *flags)
        return status, json.loads(out)


@pytest.fixture
def bench(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr("pyrometer_exporters.doctor.examine.PAUSE_SECONDS", 0.15)
    monkeypatch.setattr("pyrometer_exporters.framework.logs.set_up", lambda *_: None)  # it is for a whole process
    return Bench(tmp_path, capsys)


def test_a_healthy_node_has_all_that_the_rules_need(bench: Bench) -> None:
    bench.make()
    status, report = bench.json("--collector.gpu.expected=3")
    assert (status, report["problems"]) == (0, [])
    assert report["driver"]["driver"] == "590.48.01"
    assert report["present"] == {"pci": 3, "nvml": 3, "expected": 3}
    assert [(gpu["gpu"], gpu["down"], gpu["model"]) for gpu in report["gpus"]] == [
        (str(number), None, "NVIDIA H100 80GB HBM3") for number in range(3)
    ]
    assert report["gpus"][0]["clock_events"]["hw_thermal"] == "counter"
    assert report["gpus"][0]["clock_events"]["hw_slowdown"] == "sampled"


def test_absent_metrics_have_a_reason(bench: Bench) -> None:
    gpus = bench.make()
    gpus[1].lack("power_limit", "memory_temperature")
    status, report = bench.json()
    why = [{absent["metric"]: absent["why"] for absent in gpu["absent"]} for gpu in report["gpus"]]
    assert status == 0
    assert why[1]["DCGM_FI_DEV_MEMORY_TEMP"] == "not supported by this GPU or driver (field 82)"
    assert "nvmlDeviceGetEnforcedPowerLimit" in why[1]["DCGM_FI_DEV_ENFORCED_POWER_LIMIT"]
    assert why[0]["pyrometer_gpu_bank_remapping_pending"] == "needs driver 615 or newer"
    assert "DCGM_FI_DEV_MEMORY_TEMP" not in why[0]


def test_a_gpu_without_any_source_of_thermal_throttling_is_a_problem(bench: Bench) -> None:
    bench.make(driver="550.54.15")[1].lack("reasons", "counters")
    status, report = bench.json()
    assert status == 1
    (thermal,) = [line for line in report["problems"] if "hw_thermal" in line]
    assert thermal.startswith("GPU 1: ")
    assert "GpuThrottledThermal" in thermal


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (lambda gpus: gpus[2].lose(), "GPU 2 can't be read: gpu_is_lost"),
        (lambda gpus: gpus.fail_init(9), "3 GPUs on the PCI bus and no answer from the driver"),
        (lambda gpus: gpus[0].hide(), "the driver presents 2 GPUs, 3 are expected"),
        (
            lambda gpus: gpus[1].set(errors={"nvmlDeviceGetCurrPcieLinkWidth": 3}),
            "GPU 1: no DCGM_FI_DEV_PCIE_LINK_WIDTH, which GpuPcieDegraded needs",
        ),
    ],
)
def test_what_is_broken_is_said_and_told_by_the_exit_status(
    bench: Bench, spoil: Callable[[SimulatedGpus], None], problem: str
) -> None:
    spoil(bench.make())
    status, report = bench.json("--collector.gpu.expected=3")
    assert status == 1
    assert problem in report["problems"]


def test_a_log_that_cannot_be_read_is_a_problem(bench: Bench) -> None:
    bench.make()
    (bench.folder / "kmsg").unlink()
    status, report = bench.json()
    assert status == 1
    assert [line for line in report["problems"] if "NvswitchFatalError" in line and "enoent" in line]


def test_versions_that_differ_are_both_named(bench: Bench) -> None:
    bench.make().upgrade_library("13.595.45.04")
    module = bench.folder / "proc/driver/nvidia/version"
    module.parent.mkdir(parents=True)
    module.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  590.48.01  Tue\n")
    status, report = bench.json()
    assert status == 1
    assert any("13.595.45.04 and 590.48.01" in line for line in report["problems"])


def test_columns_are_aligned_and_alike_gpus_share_a_line(bench: Bench) -> None:
    bench.make(count=8)
    _status, out = bench.doctor()
    lines = out.splitlines()
    table = lines[lines.index("GPUs") + 1 :][:9]
    starts = {tuple(match.start() for match in re.finditer(r"(?<=  )\S", line)) for line in table[1:]}
    assert len(starts) == 1
    assert re.search(r"^  0-7  pyrometer_gpu_bank_remapping_pending +needs driver 615 or newer$", out, re.MULTILINE)
    assert "the alert rules have all they need" in lines[0]


def test_gpus_that_were_asked_for_are_left_alone(bench: Bench) -> None:
    gpus = bench.make()
    (bench.folder / "state").mkdir()
    (bench.folder / "state/gpu-release").touch()
    status, report = bench.json()
    assert (status, report["gpus"]) == (0, [])
    assert "gpu-release" in report["notes"][0]
    assert [gpu.opened for gpu in gpus] == [0, 0, 0]


def test_a_running_exporters_state_is_left_alone(bench: Bench) -> None:
    bench.make()
    bench.json()
    assert not (bench.folder / "state").exists()


def test_cgroups_that_cannot_be_read_are_said(bench: Bench) -> None:
    bench.make()
    (bench.folder / "proc/1/cgroup").unlink()
    status, report = bench.json()
    assert status == 0
    assert report["attribution"]["cgroups"] == "enoent"
    assert any("no job_info" in note for note in report["notes"])


@pytest.mark.parametrize("flag", ["--nonsense", "--collector.gpu.expected=many", "--path.sysfs"])
def test_flags_that_cannot_be_used_are_one_line_and_2(
    bench: Bench, flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.make()
    with pytest.raises(SystemExit) as end:
        bench.doctor(flag)
    assert end.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_flags_that_exclude_each_other_are_one_line_and_2(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.make()
    folder = bench.folder
    flags = ["--collector.gpu.device-include=0", "--collector.gpu.device-exclude=1"]
    assert doctor.main([f"--path.kmsg={folder}/kmsg", *flags]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_it_ends_by_itself_when_a_gpu_hangs_and_when_the_driver_does(tmp_path: Path) -> None:
    for spoil in (lambda gpus: gpus[1].hang(), lambda gpus: gpus.hang_init()):
        gpus = SimulatedGpus(tmp_path / "gpus", count=3)
        gpus.write_pci_tree(tmp_path / "sys")
        spoil(gpus)
        paths = [f"--path.{name}={tmp_path}/{name}" for name in ("procfs", "rings", "kmsg", "state")]
        command = [sys.executable, "-m", "pyrometer_simulator.doctor", "--gpus", str(gpus.path), "--"]
        start = time.monotonic()
        done = subprocess.run(
            [*command, f"--path.sysfs={tmp_path}/sys", *paths], capture_output=True, text=True, timeout=30, check=False
        )
        assert done.returncode == 1, done.stderr
        assert time.monotonic() - start < 15
        assert "Problems" in done.stdout


@pytest.mark.parametrize(
    ("text", "failures", "why"),
    [
        ("A, from nvmlDeviceGetB_v2.", {"nvmlDeviceGetB": "no_permission"}, "only root may read it (nvmlDeviceGetB)"),
        ("A, NVML fields 7-9 and 12.", {"field 12": "x"}, "x (field 12)"),
        ("A, from NVML fields 7-9.", {"field 70": "x"}, NOTHING),
        ("A, GPM metric 5.", {"nvmlGpmQueryDeviceSupport": "function_not_found"}, "nvmlGpmQueryDeviceSupport"),
        ("A; R595 and newer.", {}, "needs driver 595 or newer"),
        ("A, from NVML field 3, R595 and newer, else field 4.", {"field 4": "x"}, "x (field 4)"),
        ("Anything.", {"field 1": "x"}, NOTHING),
    ],
)
def test_reasons_come_from_the_source_that_the_help_names(text: str, failures: dict[str, str], why: str) -> None:
    assert why in why_absent(Family("x", "gauge", text), "590.48.01", failures)


def test_no_thread_of_the_doctors_keeps_the_process(bench: Bench) -> None:
    bench.make()
    bench.json()
    assert all(thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread())
