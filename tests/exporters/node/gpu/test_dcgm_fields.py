"""DCGM's fields that are one call or one field value each, its violation counters, the licence and versions."""

from __future__ import annotations

from typing import Any

import pytest


def test_clocks_limits_and_engines_have_the_units_of_dcgm(make_node: Any) -> None:
    node = make_node(count=1, still=True)
    gpu = node.gpus[0]
    gpu.load(sm_clock=1755, power_watts=612.5)
    gpu.set(encoder=12, decoder=34, replays=7, max_clocks=[1980, 2619], limits_mw=[200_000, 700_000, 650_000])
    gpu.set(requested_limit_mw=500_000, fan=110)
    scrape = node.scrape()
    expected = {
        "DCGM_FI_DEV_VIDEO_CLOCK": 1404,
        "DCGM_FI_DEV_MAX_SM_CLOCK": 1980,
        "DCGM_FI_DEV_MAX_MEM_CLOCK": 2619,
        "DCGM_FI_DEV_ENC_UTIL": 12,
        "DCGM_FI_DEV_DEC_UTIL": 34,
        "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": 7,
        "DCGM_FI_DEV_POWER_USAGE_INSTANT": 612.5,
        "DCGM_FI_DEV_POWER_MGMT_LIMIT": 500,
        "DCGM_FI_DEV_POWER_MGMT_LIMIT_MIN": 200,
        "DCGM_FI_DEV_POWER_MGMT_LIMIT_MAX": 700,
        "DCGM_FI_DEV_POWER_MGMT_LIMIT_DEF": 650,
        "DCGM_FI_DEV_GPU_TEMP_LIMIT": 90 - 3 - 62,
        "DCGM_FI_DEV_FAN_SPEED": 110,
        "DCGM_FI_DEV_FB_TOTAL": 81559,
        "DCGM_FI_DEV_FB_USED_PERCENT": pytest.approx(68_000 / (81_559 - 551)),
        "DCGM_FI_DEV_SHUTDOWN_TEMP": 95,
        "DCGM_FI_DEV_SLOWDOWN_TEMP": 90,
        "DCGM_FI_DEV_PSTATE": 0,
    }
    assert {name: scrape.value(name) for name in expected} == expected


def test_a_gpu_beyond_its_thermal_limit_has_a_margin_below_0(make_node: Any) -> None:
    node = make_node(count=1)
    node.gpus[0].load(temperature=94)
    assert node.scrape().value("DCGM_FI_DEV_GPU_TEMP_LIMIT") == -7


def test_drivers_without_the_fields_are_asked_by_call(make_node: Any) -> None:
    node = make_node(count=1)
    node.gpus[0].set(
        replays=7,
        limits_mw=(100_000, 750_000, 725_000),
        field_errors=dict.fromkeys(("94", "187", "188", "189", "192"), 3),
    )
    scrape = node.scrape()
    assert scrape.value("DCGM_FI_DEV_POWER_MGMT_LIMIT_MIN") == 100
    assert scrape.value("DCGM_FI_DEV_POWER_MGMT_LIMIT_MAX") == 750
    assert scrape.value("DCGM_FI_DEV_POWER_MGMT_LIMIT_DEF") == 725
    assert scrape.value("DCGM_FI_DEV_PCIE_REPLAY_COUNTER") == 7
    assert scrape.value("DCGM_FI_DEV_POWER_MGMT_LIMIT") == 700


def test_value_that_is_not_to_be_had_is_absent_alone(make_node: Any) -> None:
    node = make_node(count=1)
    node.gpus[0].set(errors={"nvmlDeviceGetEncoderUtilization": 3, "nvmlDeviceGetMaxClockInfo": 999})
    names = node.scrape().names_of("0")
    assert not {"DCGM_FI_DEV_ENC_UTIL", "DCGM_FI_DEV_MAX_SM_CLOCK"} & names
    assert {"DCGM_FI_DEV_DEC_UTIL", "DCGM_FI_DEV_SM_CLOCK"} <= names


def test_value_that_cannot_be_true_is_absent_alone(make_node: Any) -> None:
    node = make_node(count=1)
    node.gpus[0].set(encoder=4_000_000_000, limits_mw=[0xFFFFFFFF, 700_000, 700_000])
    scrape = node.scrape()
    assert not {"DCGM_FI_DEV_ENC_UTIL", "DCGM_FI_DEV_POWER_MGMT_LIMIT_MIN"} & scrape.names_of("0")
    assert scrape.value("pyrometer_gpu_up") == 1


def test_limits_and_largest_clocks_are_asked_once(make_node: Any) -> None:
    node = make_node(count=1)
    for _ in range(3):
        node.scrape()
    assert node.library.calls["nvmlDeviceGetMaxClockInfo"] == 2
    assert node.library.calls["nvmlDeviceGetBrand"] == 1
    assert node.library.calls["nvmlDeviceGetGridLicensableFeatures_v4"] == 1


def test_violations_are_nanoseconds_and_agree_with_our_seconds(make_node: Any) -> None:
    node = make_node(count=1, still=True)
    node.gpus[0].load()
    node.gpus[0].throttle("hw_thermal", "power_cap")
    node.clock.now += 3
    node.gpus[0].recover()
    scrape = node.scrape_every(5)
    assert scrape.value("DCGM_FI_DEV_POWER_VIOLATION") == 3e9
    assert scrape.value("DCGM_FI_DEV_THERMAL_VIOLATION") == 3e9
    assert scrape.value("DCGM_FI_DEV_TOTAL_BASE_CLOCKS_VIOLATION") == 3e9
    assert scrape.value("DCGM_FI_DEV_SYNC_BOOST_VIOLATION") == 0
    assert scrape.value("pyrometer_gpu_clock_event_seconds_total", reason="power_cap") == 3


@pytest.mark.parametrize(("license_state", "expected"), [(None, 0), (0, 0), (1, 1)])
def test_license_is_1_only_for_a_virtual_gpu_that_has_it(
    make_node: Any, license_state: int | None, expected: float
) -> None:
    node = make_node(count=1, setup=lambda gpus: gpus[0].set(license=license_state))
    assert node.scrape().value("DCGM_FI_DEV_VGPU_LICENSE_STATUS") == expected


def test_license_that_comes_later_is_seen_within_a_minute(make_node: Any) -> None:
    node = make_node(count=1, still=True, setup=lambda gpus: gpus[0].set(license=0), scraped=True)
    node.gpus[0].set(license=1)
    assert node.scrape_every(30).value("DCGM_FI_DEV_VGPU_LICENSE_STATUS") == 0
    assert node.scrape_every(31).value("DCGM_FI_DEV_VGPU_LICENSE_STATUS") == 1


def test_driver_535_has_the_rest_though_it_lacks_newer_fields(make_node: Any) -> None:
    node = make_node(count=1, still=True, driver="535.183.01", scraped=True)
    node.clock.now += 15
    names = node.scrape().names_of("0")
    assert "pyrometer_gpu_pcie_transmitted_bytes_total" not in names
    assert {
        "DCGM_FI_DEV_POWER_VIOLATION",
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
        "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
    } <= names
