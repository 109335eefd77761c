"""Each fault of the hardware is named with its next step; a sick node is never called well."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from pyrometer_simulator.nvml import SimulatedGpu

if TYPE_CHECKING:
    from conftest import Bench


@pytest.mark.parametrize(
    ("spoil", "what", "step", "alert"),
    [
        (lambda gpu: gpu.lose(), "can't be read: gpu_is_lost", "drain the node and reboot it", "GpuLost"),
        (lambda gpu: gpu.require_reset(), "can't be read: reset_required", "--gpu-reset -i 0000:2a:00.0", "GpuLost"),
        (lambda gpu: gpu.hide(), "is on the PCI bus, but the driver doesn't list it", "dmesg | grep", "GpuLost"),
        (
            lambda gpu: gpu.set(remapped={"pending": 1}),
            "memory rows are waiting for a reset",
            "--gpu-reset -i 0000:2a:00.0",
            "GpuEccUncorrected",
        ),
        (lambda gpu: gpu.set(remapped={"failure": 1}), "could not be remapped", "replace the GPU", "GpuRowRemapFailed"),
        (lambda gpu: gpu.set(recovery_action=2), "requests recovery (2)", "reboot it", "GpuRecoveryNeeded"),
    ],
)
def test_a_sick_node_is_never_called_well_and_each_fault_has_a_next_step(
    bench: Bench, spoil: Callable[[SimulatedGpu], None], what: str, step: str, alert: str
) -> None:
    gpus = bench.make()
    spoil(gpus[1])
    status, report = bench.json()
    assert status == 1
    faults = [fault for fault in report["faults"] if what in fault["what"]]
    assert [(step in fault["next_step"], fault["alert"]) for fault in faults] == [(True, alert)]
    status, text = bench.doctor()
    assert "no fault found" not in text
    assert f"({alert})" in text


def test_a_missing_gpu_is_named_by_its_address(bench: Bench) -> None:
    gpus = bench.make()
    gpus[1].hide()
    _status, report = bench.json()
    address = gpus[1].pci_bus_id.lower()[4:]
    assert [fault["what"] for fault in report["faults"]] == [
        f"the GPU at {address} is on the PCI bus, but the driver doesn't list it"
    ]


VERSION = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  590.48.01  Tue Mar  5 22:23:56 UTC 2024\n"


def test_a_loaded_module_without_the_library_may_be_a_container_without_the_runtime(bench: Bench) -> None:
    bench.make().fail_init(12)
    module = bench.folder / "proc/driver/nvidia"
    module.mkdir(parents=True)
    (module / "version").write_text(VERSION)
    status, report = bench.json()
    assert status == 1
    (fault,) = report["faults"]
    assert "module 590.48.01 is loaded, but libnvidia-ml.so.1 is missing, as in a container" in fault["what"]
    assert "docker run --gpus=all" in fault["next_step"]


def test_it_may_be_one_also_where_the_bus_shows_no_gpu(bench: Bench) -> None:
    bench.make(count=0).fail_init(12)
    module = bench.folder / "proc/driver/nvidia"
    module.mkdir(parents=True)
    (module / "version").write_text(VERSION)
    status, report = bench.json()
    assert status == 1
    assert "as in a container without the NVIDIA runtime" in report["faults"][0]["what"]
