"""Profiling fields: averages between two samples, kept across scrapes, and counters on drivers that have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pynvml
import pytest

from pyrometer_exporters.node.gpu.rate_window import RateWindow
from pyrometer_simulator.nvml import SimulatedGpus

TENSOR = "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"


def of_model(model: str) -> Callable[[SimulatedGpus], None]:
    def setup(gpus: SimulatedGpus) -> None:
        gpus._file.header.model = model.encode()

    return setup


def samples_alive(node: Any) -> int:
    calls = node.library.calls
    return int(calls.get("nvmlGpmSampleAlloc", 0) - calls.get("nvmlGpmSampleFree", 0))


def test_first_scrape_has_no_profiling_and_waits_for_none(make_node: Any) -> None:
    node = make_node(count=1, still=True)
    scrape = node.scrape()
    assert not any(name.startswith("DCGM_FI_PROF") for name in scrape.names_of("0"))
    assert scrape.value("pyrometer_gpu_up") == 1


def test_units_are_those_of_dcgm(make_node: Any) -> None:
    node = make_node(count=1, still=True)
    node.gpus[0].set(gpm={"5": 62.5, "10": 40.0, "20": 2.0, "21": 0.5, "60": 1024.0, "61": 1.0})
    node.scrape()
    scrape = node.scrape_every(15)
    assert scrape.value(TENSOR) == 0.625
    assert scrape.value("DCGM_FI_PROF_DRAM_ACTIVE") == 0.4
    assert scrape.value("DCGM_FI_PROF_PCIE_TX_BYTES") == 2 << 20
    assert scrape.value("DCGM_FI_PROF_PCIE_RX_BYTES") == 1 << 19
    assert scrape.value("DCGM_FI_PROF_NVLINK_RX_BYTES") == 1 << 30
    assert scrape.value("DCGM_FI_PROF_NVLINK_TX_BYTES") == 1 << 20


def test_a_media_engine_is_served_from_when_it_first_worked(make_node: Any) -> None:
    node = make_node(count=1, still=True)
    decoder = "DCGM_FI_PROF_NVDEC0_ACTIVE"
    seen = []
    for busy in (0.0, 0.0, 25.0, 0.0):
        node.gpus[0].set(gpm={"30": busy})
        node.clock.now += 15
        seen.append(node.scrape().value(decoder))
    assert seen == [None, None, 0.25, 0]
    assert node.scrape().value("DCGM_FI_PROF_NVJPG0_ACTIVE") is None


def test_rate_is_over_the_time_since_the_scrape_before(make_node: Any) -> None:
    node = make_node(count=1, still=True)
    node.gpus[0].set(pcie_bytes=[0, 0])
    node.scrape()
    node.clock.now += 10
    node.gpus[0].set(pcie_bytes=[50 << 20, 0])
    assert node.scrape().value("DCGM_FI_PROF_PCIE_TX_BYTES") == 5 << 20


def test_second_server_that_scrapes_a_moment_later_gets_an_average_over_its_own_interval(make_node: Any) -> None:
    node = make_node(count=1, still=True)
    sent = 0
    rates = []
    for seconds in (14.8, 0.2, 14.8, 0.2, 14.8, 0.2):
        node.clock.now += seconds
        sent += round(seconds * 10) << 20
        node.gpus[0].set(pcie_bytes=[sent, 0])
        rates.append(node.scrape().value("DCGM_FI_PROF_PCIE_TX_BYTES"))
    assert rates[2:] == [pytest.approx(10 << 20, rel=0.01)] * 4
    assert node.library.calls["nvmlGpmSampleAlloc"] == 3


def test_scrapes_closer_than_gpm_can_measure_get_the_same_values(make_node: Any) -> None:
    node = make_node(count=1, still=True)
    node.gpus[0].load()
    node.scrape()
    node.clock.now += 15
    first = node.scrape().value(TENSOR)
    node.clock.now += 0.05
    assert node.scrape().value(TENSOR) == first
    assert node.library.calls["nvmlGpmSampleGet"] == 2


def test_pair_that_spans_minutes_is_not_used(make_node: Any) -> None:
    node = make_node(count=1, still=True, scraped=True)
    assert node.scrape_every(300).value(TENSOR) is None
    assert node.scrape_every(15).value(TENSOR) is not None


def test_samples_are_neither_leaked_nor_allocated_per_scrape(make_node: Any) -> None:
    node = make_node(count=1, still=True)
    for _ in range(20):
        node.scrape_every(15)
    assert samples_alive(node) == node.library.calls["nvmlGpmSampleAlloc"] <= 3
    for _ in range(5):  # lost and found again
        node.gpus[0].lose()
        node.scrape_every(15)
        node.gpus[0].recover()
        for _ in range(3):
            node.scrape_every(15)
    assert samples_alive(node) <= 3


def test_samples_of_an_earlier_connection_are_not_given_back_to_another(make_node: Any) -> None:
    mig = [{"id": 7, "profile": "1g.10gb", "gpm": {"1": 80.0}}]
    node = make_node(count=2, still=True, setup=lambda gpus: gpus[1].set(mig=mig))
    for _ in range(4):
        node.scrape_every(15)
    before = node.library.calls.get("nvmlGpmSampleFree", 0)
    node.gpus.reload_driver()
    scrape = node.scrape_every(15, times=4)
    assert scrape.downs == {}
    assert scrape.value(TENSOR, gpu="0") is not None
    assert scrape.value("DCGM_FI_PROF_GR_ENGINE_ACTIVE", gpu="1", GPU_I_ID="7") == 0.8
    assert node.library.calls.get("nvmlGpmSampleFree", 0) == before


def test_pair_from_before_a_loss_is_not_used(make_node: Any) -> None:
    node = make_node(count=1, still=True, scraped=True)
    node.gpus[0].lose()
    node.scrape_every(15)
    node.gpus[0].recover()
    scrape = node.scrape_every(15)
    assert scrape.value("pyrometer_gpu_up") == 1
    assert scrape.value(TENSOR) is None


@pytest.mark.parametrize("model", ["NVIDIA A100-SXM4-80GB", "NVIDIA L40S", "Tesla V100-SXM2-32GB"])
def test_gpus_before_hopper_have_no_profiling_and_all_the_rest(make_node: Any, model: str) -> None:
    node = make_node(count=1, still=True, setup=of_model(model), scraped=True)
    scrape = node.scrape_every(15)
    assert not any(name.startswith("DCGM_FI_PROF") for name in scrape.names_of("0"))
    assert scrape.value("DCGM_FI_DEV_SM_CLOCK") is not None
    assert "nvmlGpmSampleGet" not in node.library.calls


@pytest.mark.parametrize("missing", ["nvmlGpmQueryDeviceSupport", "nvmlGpmSampleAlloc", "nvmlGpmMetricsGet"])
def test_library_without_gpm_costs_only_the_profiling(make_node: Any, missing: str) -> None:
    node = make_node(count=1, still=True)
    node.library.remove_function(missing)
    scrape = node.scrape_every(15, times=3)
    assert scrape.value("pyrometer_gpu_up") == 1
    assert scrape.value(TENSOR) is None


@pytest.mark.parametrize(("given", "expected"), [(None, None), (-1.0, None), (300.0, None), (0.0, 0.0), (100.0, 1.0)])
def test_metric_that_cannot_be_true_is_left_out_alone(
    make_node: Any, given: float | None, expected: float | None
) -> None:
    node = make_node(count=1, still=True)
    node.gpus[0].set(gpm={"5": given, "10": 40.0})
    node.scrape()
    scrape = node.scrape_every(15)
    assert scrape.value(TENSOR) == expected
    assert scrape.value("DCGM_FI_PROF_DRAM_ACTIVE") == 0.4


def test_profiling_without_permission_costs_only_the_profiling(make_node: Any) -> None:
    node = make_node(count=1, still=True)
    node.gpus[0].set(errors={"nvmlGpmSampleGet": 4})
    scrape = node.scrape_every(15, times=3)
    assert (scrape.value("pyrometer_gpu_up"), scrape.value(TENSOR)) == (1, None)
    assert samples_alive(node) <= 3


def test_counters_of_cycles_give_exact_averages_from_r595_on(make_node: Any) -> None:
    node = make_node(count=1, still=True, driver="595.45.04")
    node.gpus[0].load(power_watts=650)
    scrapes = []
    for _ in range(3):
        node.clock.now += 10
        scrapes.append(node.scrape())

    def grown(name: str, **labels: str) -> float:
        return float(scrapes[2].value(name, **labels) - scrapes[1].value(name, **labels))

    cycles = grown("pyrometer_gpu_sm_cycles_total")
    assert cycles == pytest.approx(1.98e9 * 10)
    assert grown("pyrometer_gpu_sm_active_cycles_total") == pytest.approx(cycles)
    assert grown("pyrometer_gpu_pipe_active_cycles_total", pipe="tensor") / cycles == pytest.approx(0.55)
    assert len(scrapes[2].values("pyrometer_gpu_nvlink_link_received_bytes_total")) == 18


def test_older_drivers_are_not_asked_for_counters_that_they_lack(
    make_node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = set()
    real = pynvml.nvmlGpmMetricsGet

    def spy(request: Any) -> Any:
        asked.update(entry.metricId for entry in request.metrics[: request.numMetrics])
        return real(request)

    monkeypatch.setattr(pynvml, "nvmlGpmMetricsGet", spy)
    node = make_node(count=1, still=True, driver="590.48.01", scraped=True)
    assert not node.scrape_every(15).values("pyrometer_gpu_sm_cycles_total")
    assert max(asked) < 210


def test_driver_that_refuses_the_counters_still_gives_the_averages(
    make_node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = pynvml.nvmlGpmMetricsGet

    def refuse(request: Any) -> Any:
        if any(entry.metricId >= 248 for entry in request.metrics[: request.numMetrics]):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return real(request)

    monkeypatch.setattr(pynvml, "nvmlGpmMetricsGet", refuse)
    node = make_node(count=1, still=True, driver="595.45.04")
    scrape = node.scrape_every(15, times=3)
    assert scrape.value(TENSOR) is not None
    assert not scrape.values("pyrometer_gpu_sm_cycles_total")


def test_a_request_that_fails_once_costs_that_scrape_and_no_counter_for_good(
    make_node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = make_node(count=1, still=True, driver="595.45.04")
    for _ in range(2):
        before = node.scrape_every(15)
    with monkeypatch.context() as patched:
        patched.setattr(pynvml, "nvmlGpmMetricsGet", _refuse)
        assert node.scrape_every(15).values("pyrometer_gpu_sm_cycles_total") == {}
    assert node.scrape_every(15).names_of("0") >= before.names_of("0") >= {
        "pyrometer_gpu_sm_cycles_total", "pyrometer_gpu_pcie_transmitted_bytes_total"
    }  # fmt: skip


def _refuse(_request: Any) -> Any:
    raise pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN)


def test_old_binding_with_room_for_fewer_metrics_gives_the_first_ones(
    make_node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Small(pynvml.Structure):  # type: ignore[misc]
        _fields_ = [(name, kind) for name, kind in pynvml.c_nvmlGpmMetricsGet_t._fields_ if name != "metrics"] + [
            ("metrics", pynvml.c_nvmlGpmMetric_t * 4)
        ]

    monkeypatch.setattr(pynvml, "c_nvmlGpmMetricsGet_t", Small)
    node = make_node(count=1, still=True, scraped=True)
    node.clock.now += 15
    served = {name for name in node.scrape().names_of("0") if name.startswith("DCGM_FI_PROF")}
    assert len(served) == 4


def test_spaced_readings_keep_what_later_ones_are_compared_with() -> None:
    readings: RateWindow[str] = RateWindow()
    assert readings.before(0) is None
    assert readings.keep(0, "a") is None
    assert readings.too_early(0.05)
    assert readings.before(0.05) is None
    assert readings.before(0.2) == (0, "a")
    assert readings.keep(0.2, "b") == "b"
    assert readings.keep(15, "c") is None
    assert readings.before(15.2) == (0, "a")
    assert readings.keep(30, "d") == "a"
    assert readings.before(45) == (30, "d")
    assert readings.before(200) is None
    assert readings.forget() == ["c", "d"]
