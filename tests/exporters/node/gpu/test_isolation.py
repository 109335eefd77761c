"""One sick GPU, a missing driver, a hung call: nothing of it reaches the healthy ones."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import until

from pyrometer_kit.errors import UsageError
from pyrometer_simulator.nvml import SimulatedGpus
from pyrometer_simulator.nvml.features.events import report_xid

FAULTS = {
    "gpu_is_lost": lambda gpu: gpu.lose(),
    "reset_required": lambda gpu: gpu.require_reset(),
    "unknown_error": lambda gpu: gpu.fail(999),
    "timeout": lambda gpu: gpu.fail(10),
    "nvml_error_77": lambda gpu: gpu.fail(77),
    "implausible": lambda gpu: gpu.lie(),
}


@pytest.mark.parametrize("reason", FAULTS)
def test_a_sick_gpu_says_why_leaves_its_neighbours_alone_and_comes_back(make_node: Any, reason: str) -> None:
    node = make_node()
    healthy = node.scrape()
    FAULTS[reason](node.gpus[1])
    scrape = node.scrape()
    assert scrape.downs == {"1": reason}
    assert scrape.value("pyrometer_gpu_up", gpu="1", uuid=node.gpus[1].uuid) == 0
    # The GPU's identity and its events are no readings: they stay.
    xids = {"pyrometer_gpu_xid_errors_total", "pyrometer_gpu_xid_critical_errors_total", "DCGM_FI_DEV_XID_ERRORS"}
    assert scrape.names_of("1") == {"pyrometer_gpu_up", "pyrometer_gpu_info", *xids}
    for neighbour in ("0", "2"):
        assert scrape.value("pyrometer_gpu_up", gpu=neighbour) == 1
        assert scrape.names_of(neighbour) >= healthy.names_of(neighbour)
    node.gpus[1].recover()
    scrape = node.scrape()
    assert scrape.downs == {}
    assert scrape.names_of("1") >= healthy.names_of("1")
    assert node.library.calls["nvmlInitWithFlags"] == 1


SAMPLED = {"pyrometer_gpu_clock_event_sampled_seconds_total"}  # goes with the mask


@pytest.mark.parametrize(
    ("garbage", "lacking"),
    [
        ({"nvmlDeviceGetTemperatureV": 82_505}, {"DCGM_FI_DEV_GPU_TEMP"}),
        (
            {"nvmlDeviceGetCurrentClocksEventReasons": 686_104},
            {"DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS"},
        ),
        ({"nvmlDeviceGetUtilizationRates": 2619}, {"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_MEM_COPY_UTIL"}),
    ],
)
def test_one_number_that_cannot_be_true_is_left_out_and_the_gpu_is_well(
    make_node: Any, garbage: dict[str, int], lacking: set[str]
) -> None:
    node = make_node(count=2)
    healthy = node.scrape().names_of("0")
    node.gpus[0].set(garbage=garbage)
    scrape = node.scrape()
    assert scrape.downs == {}
    assert scrape.value("pyrometer_gpu_up", gpu="0") == 1
    assert healthy - scrape.names_of("0") - SAMPLED == lacking


def test_two_numbers_that_cannot_be_true_are_a_gpu_in_trouble(make_node: Any) -> None:
    node = make_node(count=2)
    node.gpus[0].set(garbage={"nvmlDeviceGetTemperatureV": 82_505, "nvmlDeviceGetUtilizationRates": 2619})
    assert node.scrape().downs == {"0": "implausible"}


def test_a_hung_gpu_costs_one_deadline_once(make_node: Any) -> None:
    node = make_node(scraped=True)
    node.gpus[1].hang()
    for seconds in (0.3, 0.3):
        start = time.monotonic()
        scrape = node.scrape(seconds)
        assert time.monotonic() - start < 5
        assert scrape.downs == {"1": "deadline"}
        assert scrape.value("pyrometer_gpu_up", gpu="1", uuid=node.gpus[1].uuid) == 0
        assert scrape.value("DCGM_FI_DEV_SM_CLOCK", gpu="0") == 345
    node.gpus[1].recover()
    until(lambda: node.scrape().downs == {})


def test_a_hung_gpu_holds_one_thread_whatever_is_asked_of_it(make_node: Any) -> None:
    """Sampler, reads and the fetch of its Xids all call the driver about it: the first to hang is the only one."""
    node = make_node(scraped=True)
    for _ in range(5):
        node.gpus[1].hang()
        for _ in range(10):
            scrape = node.scrape(0.3)
            assert node.gpus[1].stuck <= 1
            assert scrape.value("pyrometer_gpu_up", gpu="0") == scrape.value("pyrometer_gpu_up", gpu="2") == 1
            _wait_for_a_turn(node)
        assert node.gpus[1].stuck == 1
        node.gpus[1].recover()
        until(lambda: node.scrape().downs == {})


def test_a_gpu_is_not_down_because_a_busy_machine_lets_the_sampler_stand_still_for_a_while(make_node: Any) -> None:
    node = make_node(scraped=True)
    node.gpus[1].hang()
    until(lambda: node.gpus[1].stuck == 1)
    threading.Timer(0.3, node.gpus[1].recover).start()
    assert node.scrape().downs == {}


def test_xids_of_a_hung_gpu_come_when_its_call_returns(make_node: Any) -> None:
    node = make_node(scraped=True)
    node.gpus[1].hang()
    assert node.scrape(0.3).downs == {"1": "deadline"}
    report_xid(node.gpus[1], 119)
    node.gpus[1].recover()
    until(lambda: node.scrape().value("pyrometer_gpu_xid_errors_total", gpu="1", xid="119") == 1)


def test_a_gpu_that_hangs_from_the_start_is_down_without_an_identity(make_node: Any, sysfs: Path) -> None:
    node = make_node(setup=lambda gpus: gpus[2].hang())
    scrape = node.scrape(0.4)
    assert scrape.downs == {"2": "deadline"}
    assert scrape.value("pyrometer_gpu_up", gpu="2") == 0
    assert scrape.values("pyrometer_gpu_info", gpu="2") == {}


@pytest.mark.parametrize(
    ("feature", "families"),
    [
        ("clocks", {"DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_MEM_CLOCK"}),
        ("temperature", {"DCGM_FI_DEV_GPU_TEMP"}),
        ("memory_temperature", {"DCGM_FI_DEV_MEMORY_TEMP"}),
        ("power", {"DCGM_FI_DEV_POWER_USAGE"}),
        ("power_limit", {"DCGM_FI_DEV_ENFORCED_POWER_LIMIT"}),
        ("energy", {"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "pyrometer_gpu_energy_joules_total"}),
        ("utilisation", {"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_MEM_COPY_UTIL"}),
        ("memory", {"DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_RESERVED"}),
        ("reasons", {"DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "pyrometer_gpu_clock_event_sampled_seconds_total"}),
        ("counters", set()),
        ("serial", set()),
    ],
)
def test_what_one_board_does_not_support_is_absent_there_and_nowhere_else(
    make_node: Any, feature: str, families: set[str]
) -> None:
    node = make_node(setup=lambda gpus: gpus[1].lack(feature))
    scrape = node.scrape()
    assert scrape.downs == {}
    lacking = scrape.names_of("0") - scrape.names_of("1")
    assert lacking >= families
    assert bool(lacking) == bool(families) or feature == "counters"


@pytest.mark.parametrize(
    "function", ["nvmlDeviceGetTemperatureV", "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetMemoryInfo_v2"]
)
def test_a_library_older_than_a_function_serves_all_the_rest(make_node: Any, function: str) -> None:
    node = make_node()
    node.library.remove_function(function)
    scrape = node.scrape()
    assert scrape.downs == {}
    assert scrape.value("DCGM_FI_DEV_GPU_TEMP", gpu="0") == 31
    assert scrape.value("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", gpu="0") == 1


def test_a_board_that_knows_only_the_older_of_two_calls_is_asked_by_that(make_node: Any) -> None:
    node = make_node(count=1, setup=lambda gpus: gpus[0].set(errors={"nvmlDeviceGetTemperatureV": 3}))
    scrape = node.scrape()
    assert scrape.downs == {}
    assert scrape.value("DCGM_FI_DEV_GPU_TEMP", gpu="0") == 31


@pytest.mark.parametrize(("function", "label"), [("Name", "model"), ("Serial", "serial"), ("VbiosVersion", "vbios")])
def test_a_text_that_cannot_be_had_for_no_reason_is_empty_and_the_gpu_is_well(
    make_node: Any, function: str, label: str
) -> None:
    node = make_node(count=1, setup=lambda gpus: gpus[0].set(errors={f"nvmlDeviceGet{function}": 999}))
    scrape = node.scrape()
    assert scrape.downs == {}
    assert scrape.value("pyrometer_gpu_info", gpu="0", **{label: ""}) == 1


def test_gpus_without_a_pci_address_are_served_under_their_uuids(make_node: Any, sysfs: Path) -> None:
    def on_no_bus(gpus: SimulatedGpus) -> None:
        for gpu in gpus:
            gpu.set(errors={"nvmlDeviceGetPciInfo_v3": 3})

    node = make_node(count=2, setup=on_no_bus)
    shutil.rmtree(sysfs)
    scrape = node.scrape()
    assert scrape.downs == {}
    for gpu in node.gpus:
        assert scrape.value("DCGM_FI_DEV_GPU_TEMP", UUID=gpu.uuid, pci_bus_id="") == 31
        assert scrape.value("pyrometer_gpu_info", uuid=gpu.uuid, pci_bus_id="") == 1
        assert scrape.value("DCGM_FI_DEV_XID_ERRORS", UUID=gpu.uuid) == 0
    assert {labels[:2] for labels in node.scrape().values("pyrometer_gpu_up")} == {
        (str(gpu.index), gpu.uuid) for gpu in node.gpus
    }


@pytest.mark.parametrize(
    ("code", "reason"), [(12, "no_driver"), (9, "driver_not_loaded"), (18, "driver_version_mismatch")]
)
def test_without_a_driver_the_bus_is_still_counted(make_node: Any, code: int, reason: str) -> None:
    scrape = make_node(setup=lambda gpus: gpus.fail_init(code)).scrape()
    assert scrape.downs == {"nvml": reason}
    assert scrape.values("pyrometer_gpus_present") == {("pci",): 3}
    assert scrape.values("pyrometer_gpu_up") == {}


def test_without_sysfs_the_bus_is_not_counted(make_node: Any, sysfs: Path) -> None:
    node = make_node(count=0)
    assert not sysfs.exists()
    assert node.scrape().values("pyrometer_gpus_present") == {("nvml",): 0}


def test_a_missing_driver_is_tried_again_with_growing_pauses(make_node: Any) -> None:
    node = make_node(still=True, setup=lambda gpus: gpus.fail_init(9))
    tries = []
    for _ in range(200):
        until(lambda: node.scrape().downs != {"nvml": "deadline"})  # on a busy machine a try may end a scrape later
        tries.append(node.library.calls["nvmlInitWithFlags"])
        node.clock.now += 1
    pauses = [tries.count(number) for number in sorted(set(tries))]
    assert pauses[:7] == [1, 2, 4, 8, 16, 32, 60]
    node.gpus.fail_init(0)
    node.scrape_every(60)
    assert node.scrape().value("pyrometer_gpu_up", gpu="0") == 1


def test_an_init_that_hangs_holds_up_nobody_and_is_not_tried_twice_at_once(make_node: Any) -> None:
    node = make_node(setup=lambda gpus: gpus.hang_init())
    for _ in range(2):
        scrape = node.scrape(0.1)
        assert scrape.downs == {"nvml": "deadline"}
    until(lambda: node.library.calls.get("nvmlInitWithFlags") == 1)
    node.gpus.hang_init(hangs=False)
    until(lambda: node.scrape().value("pyrometer_gpu_up", gpu="2") == 1)


def test_a_reloaded_driver_is_found_again_under_the_same_gpus(make_node: Any) -> None:
    node = make_node(still=True)
    before = node.scrape()
    node.gpus.reload_driver("595.45.04")
    scrape = node.scrape_every(15, times=3)
    assert scrape.downs == {}
    assert scrape.values("pyrometer_gpu_up") == before.values("pyrometer_gpu_up")
    assert scrape.value("pyrometer_gpu_info", gpu="0", driver="595.45.04") == 1


def test_gpus_keep_their_numbers_when_the_driver_comes_back_without_a_neighbour(make_node: Any) -> None:
    node = make_node(still=True, scraped=True)
    node.gpus[0].hide()
    node.gpus.reload_driver()
    scrape = node.scrape_every(15, times=3)
    assert scrape.downs == {"0": "not_found"}
    assert scrape.value("pyrometer_gpu_up", gpu="0", uuid=node.gpus[0].uuid) == 0
    assert scrape.value("pyrometer_gpu_up", gpu="2", uuid=node.gpus[2].uuid) == 1
    assert scrape.values("pyrometer_gpus_present") == {("pci",): 3, ("nvml",): 2}


@pytest.mark.parametrize("flag", ["1", "0000:2a:00.0", "00000000:2A:00.0"])
def test_an_excluded_gpu_is_never_opened(make_node: Any, flag: str) -> None:
    node = make_node(f"--collector.gpu.device-exclude={flag}")
    scrape = node.scrape()
    assert [gpu.opened for gpu in node.gpus] == [1, 0, 1]
    assert {labels[0] for labels in scrape.values("pyrometer_gpu_up")} == {"0", "2"}
    assert scrape.downs == {}


def test_a_gpu_excluded_by_uuid_is_never_opened_where_procfs_knows_it(make_node: Any, tmp_path: Path) -> None:
    def tell_procfs(gpus: Any) -> None:
        for gpu in gpus:
            folder = tmp_path / "proc/driver/nvidia/gpus" / gpu.pci_bus_id[4:].lower()
            folder.mkdir(parents=True)
            (folder / "information").write_text(f"Model: \t\t NVIDIA H100\nGPU UUID: \t {gpu.uuid}\n")

    uuid = make_node().gpus[2].uuid  # the same in every node with the same seed
    node = make_node(f"--collector.gpu.device-exclude={uuid}", setup=tell_procfs, scraped=True)
    assert [gpu.opened for gpu in node.gpus] == [1, 1, 0]


def test_only_included_gpus_are_opened(make_node: Any) -> None:
    node = make_node("--collector.gpu.device-include=0|2", scraped=True)
    assert [gpu.opened for gpu in node.gpus] == [1, 0, 1]


def test_include_and_exclude_together_are_refused(make_node: Any) -> None:
    with pytest.raises(UsageError, match="exclude each other"):
        make_node("--collector.gpu.device-include=0", "--collector.gpu.device-exclude=1")


def _wait_for_a_turn(node: Any) -> None:
    """Wait until the sampler has had another turn."""
    sampler = node.collector._shared.sampler
    due = sampler._stretches.ends
    until(lambda: sampler._stretches.ends > due)
