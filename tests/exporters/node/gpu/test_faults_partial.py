"""A GPU or a driver that is ill in one place only: that place is missing, and nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyrometer_exporters.framework.outcome import PartError
from pyrometer_exporters.node.gpu.clock_events import ClockEvents
from pyrometer_exporters.node.gpu.sampler import SampledGpu, Sampler
from pyrometer_simulator.nvml.pci_bus import PciBus


def _garbled(function: str) -> Callable[..., object]:
    def call(*_arguments: object) -> object:
        raise UnicodeDecodeError("utf-8", b"\xff\xff", 0, 1, f"invalid start byte in {function}")

    call.__name__ = function
    return call


@pytest.mark.parametrize(
    "function",
    ["nvmlDeviceGetSerial", "nvmlDeviceGetVbiosVersion", "nvmlDeviceGetName", "nvmlDeviceGetInforomImageVersion"],
)
def test_a_text_that_is_none_costs_that_text_alone(
    make_node: Any, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    """An InfoROM that lost its mind gives bytes that are no text."""
    monkeypatch.setattr(f"pynvml.{function}", _garbled(function))
    scrape = make_node(count=1).scrape()
    assert scrape.downs == {}
    assert scrape.value("DCGM_FI_DEV_SM_CLOCK", gpu="0") == 345


@pytest.mark.parametrize("code", [14, 17, 20, 27, 999])
def test_an_identity_that_cannot_be_read_in_full_is_no_reason_not_to_serve_the_gpu(make_node: Any, code: int) -> None:
    errors = dict.fromkeys(("nvmlDeviceGetSerial", "nvmlDeviceGetVbiosVersion"), code)
    scrape = make_node(setup=lambda gpus: gpus[1].set(errors=errors)).scrape()
    assert scrape.downs == {}
    assert scrape.value("pyrometer_gpu_info", gpu="1", serial="", vbios="") == 1


def test_a_model_that_could_not_be_read_at_first_is_there_once_the_gpu_was_opened_again(make_node: Any) -> None:
    node = make_node(setup=lambda gpus: gpus[1].set(errors={"nvmlDeviceGetName": 999}))
    assert node.scrape().value("pyrometer_gpu_info", gpu="1", model="") == 1
    node.gpus[1].set(errors=None)
    node.gpus[1].fail(999)
    node.scrape()
    node.gpus[1].recover()
    assert node.scrape().value("pyrometer_gpu_info", gpu="1", model="NVIDIA H100 80GB HBM3") == 1


@pytest.mark.parametrize(
    "function", ["nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetBrand", "nvmlGpmSampleGet", "nvmlEventSetCreate"]
)
def test_a_binding_that_fails_in_one_function_costs_one_subject_and_is_told(
    make_node: Any, monkeypatch: pytest.MonkeyPatch, function: str, caplog: pytest.LogCaptureFixture
) -> None:
    """nvidia-ml-py 13.615 has a structure whose making is a NameError. In number_calls that is a function it lacks."""

    def broken(*_arguments: object) -> object:
        msg = "name 'pynvml' is not defined"
        raise NameError(msg)

    broken.__name__ = function
    monkeypatch.setattr(f"pynvml.{function}", broken)
    node = make_node(count=2)
    for _ in range(3):
        scrape = node.scrape()
        assert scrape.value("pyrometer_gpu_up", gpu="1") == 1
        assert scrape.value("DCGM_FI_DEV_SM_CLOCK", gpu="1") == 345
        assert scrape.value("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", gpu="1") == 0
        assert len(scrape.downs) == 2
        assert set(scrape.downs.values()) == {"nameerror"}
        assert {part.partition("/")[0] for part in scrape.downs} == {"0", "1"}
    assert caplog.text.count("can't be") == 2


def test_a_driver_that_left_all_gpus_that_are_read_is_connected_to_again_though_one_is_left_out(
    make_node: Any,
) -> None:
    """nvmlDeviceGetCount can answer from memory while every handle has gone with the kernel module."""
    node = make_node("--collector.gpu.device-exclude=0000:2a:00.0", still=True)
    assert node.scrape().downs == {}
    _is_connected_to_again(node, after=1)


def test_a_driver_that_left_all_gpus_is_connected_to_again_though_one_was_given_away(
    make_node: Any, sysfs: Path
) -> None:
    node = make_node(still=True, scraped=True)
    PciBus(sysfs).bind(node.gpus[1].pci_bus_id, "vfio-pci")
    node.scrape()
    _is_connected_to_again(node, after=9)


@pytest.mark.parametrize("count", [2, 8])
def test_one_gpu_that_calls_the_driver_gone_from_the_start_leaves_the_others(make_node: Any, count: int) -> None:
    node = make_node(count=count, still=True, setup=lambda gpus: gpus[0].fail(1))
    for _ in range(5):
        scrape = node.scrape()
        assert scrape.downs == {"0": "uninitialized"}
        node.clock.now += 15
    assert node.library.calls["nvmlInitWithFlags"] == 1


def test_a_counter_of_all_ones_is_not_believed_at_first_either() -> None:
    events = ClockEvents()
    (event,) = events.update({"hw_thermal": float((1 << 64) - 1)}, {"hw_thermal": 0.0}, 100.0)
    assert (event.seconds, event.method) == (0.0, "sampled")


def test_gpus_that_come_and_go_leave_nothing_behind_in_the_sampler(make_node: Any, hands_of: Any) -> None:
    node = make_node(still=True)
    hands = hands_of(node)
    node.scrape()
    for _ in range(5):
        hands.give_away(1)
        node.scrape()
        hands.take_back(1)
        node.scrape()
    assert len(node.collector._shared.sampler._gpus) == 3


def test_a_gpu_that_is_no_longer_watched_is_not_read() -> None:
    reads: list[float] = []
    turns: list[int] = []
    sampler = Sampler(lambda: turns.append(1) or _Connection(), 100)  # type: ignore[func-returns-value]
    watched = SampledGpu()
    watched.read = lambda: reads.append(0.0) or 0  # type: ignore[func-returns-value]
    sampler.watch(watched)
    sampler.forget(watched)
    sampler.forget(watched)
    _wait_for_turns(turns, 2)  # one may have begun before
    before = len(reads)
    _wait_for_turns(turns, 4)
    sampler.close()
    assert len(reads) == before


def _wait_for_turns(turns: list[int], count: int) -> None:
    enough, end = len(turns) + count, time.monotonic() + 30
    while len(turns) < enough:
        assert time.monotonic() < end
        time.sleep(0.005)


class _Connection:
    def __enter__(self) -> Any:
        return type("Link", (), {"generation": 0})()

    def __exit__(self, *_: object) -> None:
        pass


def test_a_release_that_is_answered_while_a_connection_is_about_to_be_made_is_kept(make_node: Any) -> None:
    node = make_node(count=1)
    driver = node.collector._shared.driver

    class Interrupting:
        """A clock that is asked first of all by whoever connects."""

        def monotonic(self) -> float:
            assert driver.release(1.0)
            return 0.0

    driver._clock = Interrupting()
    with pytest.raises(PartError, match="released"):
        driver.visit()
    assert "nvmlInitWithFlags" not in node.library.calls


def _is_connected_to_again(node: Any, after: int) -> None:
    """Once all its GPUs have answered with this nvmlReturn_t."""
    for gpu in node.gpus:
        gpu.fail(after)
    node.scrape_every(15)
    for gpu in node.gpus:
        gpu.recover()
    assert node.scrape_every(15).downs == {}
    assert node.library.calls["nvmlInitWithFlags"] == 2


@pytest.mark.parametrize(
    ("call", "family"),
    [
        ("nvmlDeviceGetPowerUsage", "DCGM_FI_DEV_POWER_USAGE"),
        ("nvmlDeviceGetUtilizationRates", "DCGM_FI_DEV_GPU_UTIL"),
        ("nvmlDeviceGetFieldValues", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"),
    ],
)
def test_an_everyday_call_that_ends_in_unknown_costs_its_own_values_and_the_gpu_is_up(
    make_node: Any, call: str, family: str
) -> None:
    node = make_node(scraped=True)
    node.gpus[1].set(errors={call: 999})
    scrape = node.scrape()
    assert scrape.downs == {f"1/{call}": "unknown_error"}
    assert scrape.value("pyrometer_gpu_up", gpu="1") == 1
    assert scrape.value("DCGM_FI_DEV_SM_CLOCK", gpu="1") == 345
    assert family in scrape.names_of("0") - scrape.names_of("1")


def test_a_gpu_of_which_more_calls_fail_than_answer_is_down(make_node: Any) -> None:
    failing = (
        "nvmlDeviceGetPowerUsage", "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetFieldValues",
        "nvmlDeviceGetClockInfo", "nvmlDeviceGetEnforcedPowerLimit",
    )  # fmt: skip
    node = make_node(scraped=True)
    node.gpus[1].set(errors=dict.fromkeys(failing, 999))
    scrape = node.scrape()
    assert scrape.downs == {"1": "unknown_error"}
    assert scrape.value("pyrometer_gpu_up", gpu="1") == 0
