"""The doctor's report about nodes in various states, over simulated GPUs."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pyrometer_exporters.commands.doctor import main as doctor
from pyrometer_exporters.commands.doctor.failures import DIVIDED, NO_NVLINK, NOTHING, Failures, why_absent
from pyrometer_exporters.framework.metrics import Family
from pyrometer_simulator.nvml import SimulatedGpus

if TYPE_CHECKING:
    from conftest import Bench


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
    assert why[1]["DCGM_FI_DEV_MEMORY_TEMP"] == (
        "not supported by this GPU model, or not in its present configuration (field 82)"
    )
    assert "nvmlDeviceGetEnforcedPowerLimit" in why[1]["DCGM_FI_DEV_ENFORCED_POWER_LIMIT"]
    assert why[0]["pyrometer_gpu_bank_remapping_pending"] == "needs driver 615 or newer"
    assert "DCGM_FI_DEV_MEMORY_TEMP" not in why[0]


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (2, "not known to this driver: a newer one may have it (field 230)"),
        (3, "not supported by this GPU model, or not in its present configuration (field 230)"),
        (4, "only root may read it (field 230)"),
    ],
)
def test_a_field_that_the_model_lacks_is_told_from_one_that_the_driver_lacks(bench: Bench, code: int, why: str) -> None:
    for gpu in bench.make(count=1):
        gpu.set(field_errors={"230": code})
    assert bench.absent()["pyrometer_gpu_recovery_action"] == why


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (
            lambda gpus: gpus[2].lose(),
            (
                "GPU 2 (0000:3a:00.0) can't be read: gpu_is_lost (nvmlDeviceGetHandleByPciBusId returned 15: the GPU "
                "has fallen off the bus)"
            ),
        ),
        (
            lambda gpus: gpus.fail_init(9),
            (
                "3 GPUs on the PCI bus, but the NVIDIA driver can't be used: driver_not_loaded (nvmlInit returned 9: "
                "the NVIDIA kernel module is not loaded)"
            ),
        ),
        (lambda gpus: gpus[0].hide(), "the driver lists 2 GPUs, 3 are expected"),
        (
            lambda gpus: gpus[1].set(errors={"nvmlDeviceGetCurrPcieLinkWidth": 3}),
            (
                "GPU 1: no DCGM_FI_DEV_PCIE_LINK_WIDTH, needed by GpuPcieDegraded: not supported by this GPU model, or "
                "not in its present configuration (nvmlDeviceGetCurrPcieLinkWidth)"
            ),
        ),
    ],
)
def test_what_is_broken_is_said_and_told_by_the_exit_status(
    bench: Bench, spoil: Callable[[SimulatedGpus], None], problem: str
) -> None:
    spoil(bench.make())
    status, report = bench.json("--collector.gpu.expected=3")
    assert status == 1
    assert problem in [*report["problems"], *(fault["what"] for fault in report["faults"])]


@pytest.mark.parametrize(
    ("driver", "spoil", "problem"),
    [
        ("550.54.15", lambda bench, gpus: gpus[1].lack("reasons", "counters"),
         "GPU 1: .*hw_thermal.*GpuThrottledThermal"),
        ("590.48.01", lambda bench, gpus: gpus[0].set(ecc="off"), "GPU 0: no DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"),
        ("590.48.01", lambda bench, gpus: (bench.folder / "kmsg").unlink(), "(?=.*NvswitchFatalError).*enoent"),
    ],
    ids=["no source of thermal throttling", "no ECC", "a log that can't be read"],
)  # fmt: skip
def test_what_a_rule_needs_and_does_not_get_is_a_problem(
    bench: Bench, driver: str, spoil: Callable[[Bench, SimulatedGpus], object], problem: str
) -> None:
    spoil(bench, bench.make(driver=driver))
    status, report = bench.json()
    assert status == 1
    assert [line for line in report["problems"] if re.match(problem, line)]


def test_versions_that_differ_are_both_named(bench: Bench) -> None:
    bench.make().upgrade_library("13.595.45.04")
    module = bench.folder / "proc/driver/nvidia/version"
    module.parent.mkdir(parents=True)
    module.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  590.48.01  Tue\n")
    status, report = bench.json()
    assert status == 1
    (fault,) = report["faults"]
    assert fault["what"].endswith("13.595.45.04 and 590.48.01")
    assert "reload the kernel module" in fault["next_step"]


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (
            lambda gpus: gpus.fail_init(4),
            "no_permission (nvmlInit returned 4: this user lacks permission, or can't open /dev/nvidia*",
        ),
        (lambda gpus: gpus.fail_init(999), "unknown_error (nvmlInit returned 999: "),
        (lambda gpus: gpus.fail_init(12), "no_driver (nvmlInit returned 12: no libnvidia-ml.so.1"),
        (lambda gpus: gpus.hang_init(), "deadline ("),
    ],
)
def test_a_driver_that_cannot_be_used_is_a_problem_also_where_the_bus_cannot_be_seen(
    bench: Bench, spoil: Callable[[SimulatedGpus], None], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyrometer_exporters.commands.doctor.examine.FIRST_SECONDS", 0.3)
    monkeypatch.setattr("pyrometer_exporters.commands.doctor.examine.SECOND_SECONDS", 0.3)
    spoil(bench.make())
    (bench.folder / "sys").rename(bench.folder / "elsewhere")
    status, report = bench.json()
    assert status == 1
    assert report["faults"][0]["what"].startswith(f"the NVIDIA driver can't be used: {said}")


def test_a_mismatch_of_which_one_version_is_unknown_is_one_problem(bench: Bench) -> None:
    bench.make().upgrade_library("13.595.45.04")
    status, report = bench.json()
    assert status == 1
    assert [fault["what"] for fault in report["faults"]] == [
        "NVML library and kernel module belong to different drivers, 13.595.45.04 and unknown"
    ]


@pytest.mark.parametrize("code", [9, 12])
def test_a_node_without_gpus_is_well_unless_it_should_have_some(bench: Bench, code: int) -> None:
    gpus = bench.make()
    gpus.fail_init(code)
    for gpu in gpus:
        (bench.folder / "sys/bus/pci/devices" / gpu.pci_bus_id[4:].lower() / "class").write_text("0x020000\n")
    status, report = bench.json()
    assert (status, report["problems"], report["faults"]) == (0, [], [])
    assert "this node has no GPUs" in report["notes"][0]
    first, *_ = bench.doctor()[1].splitlines()
    assert first.endswith("without a GPU the GPU alert rules have nothing to check")
    status, report = bench.json("--collector.gpu.expected=8")
    assert status == 1
    assert report["faults"][0]["what"].startswith("the NVIDIA driver can't be used: ")


def test_divided_gpus_lack_no_more_than_the_rules_know_of(bench: Bench) -> None:
    bench.make()[1].set(mig=[{"id": 7, "profile": "1g.10gb"}])
    status, report = bench.json()
    assert (status, report["problems"]) == (0, [])
    assert any(note.startswith("GPU 1: divided (MIG)") for note in report["notes"])
    why = {absent["metric"]: absent["why"] for absent in report["gpus"][1]["absent"]}
    assert why["DCGM_FI_DEV_GPU_UTIL"] == why["DCGM_FI_DEV_ENC_UTIL"] == DIVIDED


def test_boards_that_give_up_pages_need_no_remapped_rows(bench: Bench) -> None:
    bench.make()[0].set(
        retired={"sbe": 1, "dbe": 0, "pending": 0}, field_errors=dict.fromkeys(map(str, range(142, 146)), 3)
    )
    status, report = bench.json()
    assert (status, report["problems"]) == (0, [])


@pytest.mark.parametrize(("driver", "sampled"), [("570.86.15", True), ("580.70", True), ("580.65.06", False)])
def test_drivers_without_counters_of_heat_that_can_be_trusted_are_named(
    bench: Bench, driver: str, sampled: bool
) -> None:
    bench.make(driver=driver)
    status, report = bench.json()
    assert status == 0
    assert any(f"are sampled, because driver {driver}" in note for note in report["notes"]) is sampled


def test_what_needs_a_newer_driver_is_said_to(bench: Bench) -> None:
    bench.make(driver="535.183.06")
    why = bench.absent()
    first = {
        "pyrometer_gpu_pcie_received_bytes_total": 555,
        "pyrometer_gpu_fabric_status": 550,
        "pyrometer_gpu_repair_pending": 580,
        "pyrometer_gpu_unrepairable_memory": 590,
        "pyrometer_gpu_nvlink_errors_total": 560,
        "pyrometer_gpu_sm_cycles_total": 595,
    }
    assert {metric: why[metric] for metric in first} == {m: f"needs driver {d} or newer" for m, d in first.items()}


def test_a_metric_with_one_source_that_answered_has_nothing_to_tell(bench: Bench) -> None:
    bench.make()
    why = bench.absent()
    assert why["pyrometer_gpu_nvlink_link_errors_total"] == NOTHING  # Hopper's three have, NVLink 5's haven't
    assert "field 205" in why["pyrometer_gpu_nvlink_errors_total"]


def test_a_gpu_without_nvlink_lacks_all_of_it_for_that_reason(bench: Bench) -> None:
    bench.make(count=1)[0].set(nvlinks=0)
    why = bench.absent()
    assert {text for metric, text in why.items() if "nvlink" in metric.lower() and "driver 595" not in text} == {
        NO_NVLINK
    }
    assert why["DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL"] == NO_NVLINK


def test_columns_are_aligned_and_alike_gpus_share_a_line(bench: Bench) -> None:
    bench.make(count=8)
    _status, out = bench.doctor()
    lines = out.splitlines()
    table = lines[lines.index("GPUs") + 1 :][:9]
    starts = {tuple(match.start() for match in re.finditer(r"(?<=  )\S", line)) for line in table[1:]}
    assert len(starts) == 1
    assert re.search(r"^  0-7  pyrometer_gpu_bank_remapping_pending +needs driver 615 or newer$", out, re.MULTILINE)
    assert "the alert rules have everything they need" in lines[0]
    assert "7 by the driver, 4 sampled" in table[1]
    assert "  processes on GPUs: none, so attribution could not be checked" in lines


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
        done = subprocess.run(
            [*command, f"--path.sysfs={tmp_path}/sys", *paths], capture_output=True, text=True, timeout=30, check=False
        )
        assert done.returncode == 1, done.stderr
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
        ("A, R610 and newer, else field 4 (driver 600 and newer).", {}, "needs driver 600 or newer"),
        ("Anything.", {"field 1": "x"}, NOTHING),
        (
            "A, from nvmlDeviceGetFanSpeed.",
            {"nvmlDeviceGetFanSpeed": "function_not_found"},
            "not in this driver's library",
        ),
        ("A, from nvmlDeviceGetYet.", {"nvmlDeviceGetYet": "function_not_found"}, "not in the installed nvidia-ml-py"),
    ],
)
def test_reasons_come_from_the_source_that_the_help_names(text: str, failures: dict[str, str], why: str) -> None:
    assert why in why_absent(Family("x", "gauge", text), "590.48.01", Failures(failures))


def test_no_thread_of_the_doctors_keeps_the_process(bench: Bench) -> None:
    bench.make()
    bench.json()
    assert all(thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread())


@pytest.mark.usefixtures("bench")
def test_a_web_configuration_that_the_exporter_would_refuse_is_refused_here(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "web.yml"
    file.write_text("tls_server_config: {cert_file: absent.pem}\n", encoding="utf-8")
    assert doctor.main([f"--web.config.file={file}"]) == 2
    error = capsys.readouterr().err
    assert (error.count("\n"), str(file) in error) == (1, True)
