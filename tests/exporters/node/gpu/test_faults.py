"""NVML's answers when a GPU is sick, one test for each way that is known from the field.

The faults are those of bug reports about DCGM, dcgm-exporter, gpud and nvidia-smi: what the driver returned, and what
the exporters there made of it. In every one of them the healthy GPUs must go on, and the sick one must say why.
"""

from __future__ import annotations

import time
from typing import Any

import pytest
from tests.waiting import until

DOWN_FAMILIES = {"pyrometer_gpu_up", "pyrometer_gpu_info"}


def _only_1_is_down(node: Any, scrape: Any, reason: str) -> None:
    assert scrape.downs == {"1": reason}
    assert scrape.value("pyrometer_gpu_up", gpu="1") == 0
    for neighbour in ("0", "2"):
        assert scrape.value("pyrometer_gpu_up", gpu=neighbour) == 1
        assert scrape.value("DCGM_FI_DEV_SM_CLOCK", gpu=neighbour) == 345
        assert scrape.value("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", gpu=neighbour) == 0


def test_gpu_fell_off_the_bus(make_node: Any) -> None:
    """Xid 79: GPU_IS_LOST from every call on its handle; the others' handles stay good."""
    node = make_node(scraped=True)
    node.gpus[1].lose()
    scrape = node.scrape()
    _only_1_is_down(node, scrape, "gpu_is_lost")
    assert scrape.names_of("1") >= DOWN_FAMILIES
    assert scrape.values("DCGM_FI_DEV_GPU_TEMP", gpu="1") == {}
    assert node.library.calls["nvmlInitWithFlags"] == 1


def test_gpu_fell_off_the_bus_and_is_no_longer_listed_after_the_driver_was_loaded_again(make_node: Any) -> None:
    node = make_node(scraped=True)
    node.gpus[1].lose()
    node.gpus[1].hide()
    node.gpus.reload_driver()
    until(lambda: node.scrape().value("pyrometer_gpus_present", source="nvml") == 2)
    scrape = node.scrape()
    assert scrape.value("pyrometer_gpus_present", source="pci") == 3
    assert scrape.value("pyrometer_gpu_up", gpu="1") == 0
    assert scrape.value("pyrometer_gpu_up", gpu="2") == 1


def test_reset_needed_while_all_values_read_as_ever(make_node: Any) -> None:
    """Only the recovery action shows it: a poller of Xids missed it (sichek 121)."""
    node = make_node()
    healthy = node.scrape()
    node.gpus[1].set(recovery_action=1)
    scrape = node.scrape()
    assert scrape.downs == {}
    assert scrape.value("pyrometer_gpu_recovery_action", gpu="1") == 1
    assert scrape.value("pyrometer_gpu_recovery_action", gpu="0") == 0
    assert scrape.names_of("1") >= healthy.names_of("1")  # profiling needs a second look, and adds some


def test_driver_cannot_talk_to_the_gsp_and_calls_block(make_node: Any) -> None:
    """Xids 119, 120: a call waits for its firmware for minutes, or for ever."""
    node = make_node(scraped=True)
    node.gpus[1].hang()
    start = time.monotonic()
    _only_1_is_down(node, node.scrape(0.4), "deadline")
    assert time.monotonic() - start < 5
    node.gpus[1].recover()
    until(lambda: node.scrape().downs == {})


def test_ecc_storm_under_load_makes_calls_slow_until_the_gpu_rests(make_node: Any) -> None:
    """DCGM 313: calls of more than 45 s while the errors rain, and all well again when idle."""
    node = make_node(scraped=True)
    node.gpus[1].slow(0.2)
    _only_1_is_down(node, node.scrape(0.4), "deadline")
    node.gpus[1].recover()
    node.gpus[1].set(ecc_errors={"volatile/device_memory/corrected": 100_000})
    until(lambda: node.scrape().value("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", gpu="1") == 100_000)


def test_neighbours_of_a_sick_gpu_lose_nothing(make_node: Any) -> None:
    """NVSentinel 1748: 80 to 98 % of the samples of *other* GPUs were lost."""
    node = make_node()
    healthy = node.scrape()
    node.gpus[1].hang()
    for _ in range(5):
        scrape = node.scrape(0.3)
        for neighbour in ("0", "2"):
            assert scrape.names_of(neighbour) >= healthy.names_of(neighbour)
    node.gpus[1].recover()


@pytest.mark.parametrize(("code", "reason"), [(9, "driver_not_loaded"), (1, "uninitialized")])
def test_kernel_module_unloaded_and_loaded_again(make_node: Any, code: int, reason: str) -> None:
    node = make_node(scraped=True)
    node.gpus.fail_init(code)
    node.gpus.reload_driver()
    scrape = node.scrape()
    assert scrape.values("DCGM_FI_DEV_SM_CLOCK") == {}
    until(lambda: node.scrape().downs.get("nvml") == reason)
    node.gpus.fail_init(0)
    until(lambda: len(node.scrape().values("DCGM_FI_DEV_SM_CLOCK")) == 3)


def test_driver_packages_upgraded_under_a_running_node(make_node: Any) -> None:
    """LIB_RM_VERSION_MISMATCH from nvmlInit; a process that has initialised keeps working until it does so again."""
    node = make_node(scraped=True)
    node.gpus.fail_init(18)
    assert node.scrape().downs == {}
    restarted = node.restarted()
    node.library.nvmlShutdown()
    scrape = restarted.scrape()
    assert scrape.downs["nvml"] == "driver_version_mismatch"
    assert scrape.value("pyrometer_gpus_present", source="pci") == 3


@pytest.mark.parametrize(
    ("code", "reason"), [(27, "not_ready"), (19, "in_use"), (999, "unknown_error"), (4, "no_permission")]
)
def test_every_call_on_every_gpu_fails(make_node: Any, code: int, reason: str) -> None:
    """The kernel module is being loaded; or systemd reloads the cgroups, and a container loses its devices."""
    node = make_node(scraped=True)
    for gpu in node.gpus:
        gpu.fail(code)
    scrape = node.scrape()
    assert {part: why for part, why in scrape.downs.items() if part != "nvml"} == dict.fromkeys("012", reason)
    assert set(scrape.values("pyrometer_gpu_up").values()) == {0}
    for gpu in node.gpus:
        gpu.recover()
    assert node.scrape().downs == {}


def test_the_handle_of_one_gpu_cannot_be_had(make_node: Any) -> None:
    """nvidia-smi fails as a whole: "Unable to determine the device handle for GPU ...: Unknown Error"."""
    node = make_node(setup=lambda gpus: gpus[1].fail(999))
    _only_1_is_down(node, node.scrape(), "unknown_error")


def test_inforom_is_damaged(make_node: Any) -> None:
    """CORRUPTED_INFOROM from what is stored there; all else answers."""
    errors = {"nvmlDeviceGetRowRemapperHistogram": 14, "nvmlDeviceGetMemoryErrorCounter": 14}
    fields = {"5": 14, "6": 14}
    node = make_node(setup=lambda gpus: gpus[1].set(errors=errors, field_errors=fields))
    scrape = node.scrape()
    assert scrape.downs == {}
    gone = {name for name in scrape.names_of("0") - scrape.names_of("1") if "AVAIL" not in name}
    assert gone == {"DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL"}


def test_library_older_than_the_exporter(make_node: Any) -> None:
    """FUNCTION_NOT_FOUND for everything that came after NVML 5."""
    healthy = make_node(driver="535.183.01").scrape().names_of("0")
    node = make_node(driver="535.183.01")
    for name in ("nvmlDeviceGetRowRemapperHistogram", "nvmlDeviceGetMigMode", "nvmlDeviceGetGpuFabricInfoV"):
        node.library.remove_function(name)
    scrape = node.scrape()
    assert scrape.downs == {}
    assert {name for name in healthy - scrape.names_of("0") if "AVAIL" not in name} == {"DCGM_FI_DEV_MIG_MODE"}


def test_field_that_this_board_or_driver_does_not_have(make_node: Any) -> None:
    """nvidia_gpu_exporter 497: NOT_SUPPORTED is absent, never 0."""
    fields = dict.fromkeys(("83", "143", "230"), 3)
    node = make_node(setup=lambda gpus: gpus[1].set(field_errors=fields))
    scrape = node.scrape()
    assert scrape.downs == {}
    assert scrape.names_of("0") - scrape.names_of("1") == {
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
        "pyrometer_gpu_energy_joules_total",
        "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
        "pyrometer_gpu_recovery_action",
    }
