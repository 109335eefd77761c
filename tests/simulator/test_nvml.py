"""The simulated driver, through pynvml's own wrappers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrometer_simulator.nvml import SimulatedGpus, installed
from pyrometer_simulator.nvml.gpu_state import GpuState
from pyrometer_simulator.nvml.state_file import GpuRecord


class Time:
    now = 5000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Time:
    return Time()


@pytest.fixture
def gpus(tmp_path: Path, clock: Time) -> Iterator[SimulatedGpus]:
    gpus = SimulatedGpus(tmp_path / "gpus", count=2, monotonic=clock)
    with installed(gpus.path, clock):
        pynvml.nvmlInit()
        yield gpus


def _handle(index: int) -> object:
    return pynvml.nvmlDeviceGetHandleByIndex(index)


def test_identity_is_read_through_pynvml(gpus: SimulatedGpus) -> None:
    handle = _handle(1)
    assert pynvml.nvmlDeviceGetCount() == 2
    assert pynvml.nvmlSystemGetDriverVersion() == "590.48.01"
    assert pynvml.nvmlDeviceGetName(handle) == "NVIDIA H100 80GB HBM3"
    assert pynvml.nvmlDeviceGetSerial(handle) == "SIMULATED"
    assert pynvml.nvmlDeviceGetUUID(handle) == gpus[1].uuid
    assert pynvml.nvmlDeviceGetIndex(pynvml.nvmlDeviceGetHandleByPciBusId("0000:2a:00.0")) == 1


def test_counters_advance_without_a_writer(gpus: SimulatedGpus, clock: Time) -> None:
    gpus[0].load(power_watts=500)
    gpus[0].throttle("hw_thermal")
    clock.now += 4
    energy, thermal = pynvml.nvmlDeviceGetFieldValues(_handle(0), [83, 270])
    assert energy.value.ullVal == 2_000_000
    assert thermal.value.ullVal == 4_000_000_000


def test_energy_follows_the_power_of_its_time(gpus: SimulatedGpus, clock: Time) -> None:
    for watts in (100, 700):
        gpus[0].load(power_watts=watts)
        clock.now += 10
    gpus[0].idle()
    assert pynvml.nvmlDeviceGetTotalEnergyConsumption(_handle(0)) == 8_000_000


def test_a_throttle_holds_until_recovery_and_the_load_stays(gpus: SimulatedGpus, clock: Time) -> None:
    handle = _handle(0)
    gpus[0].load(sm_clock=1980, temperature=60)
    gpus[0].throttle("hw_thermal", sm_clock=1200, temperature=91)
    assert pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM) == 1200
    assert pynvml.nvmlDeviceGetTemperature(handle, 0) == 91
    if hasattr(pynvml, "nvmlDeviceGetTemperatureV"):  # since nvidia-ml-py 12.570
        assert pynvml.nvmlDeviceGetTemperatureV(handle, 0) == 91
    assert pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle) == 0x48
    clock.now += 3
    gpus[0].recover()
    clock.now += 3
    assert pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM) == 1980
    assert pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle) == 0
    assert gpus[0].reason_seconds("hw_thermal") == 3


def test_a_pulse_ends_by_itself_and_leaves_its_exact_length(gpus: SimulatedGpus, clock: Time) -> None:
    gpus[0].load()
    gpus[0].pulse("hw_power_brake", seconds=0.2, delay=1, sm_clock=600)
    seen = []
    for _ in range(3):
        seen.append(pynvml.nvmlDeviceGetCurrentClocksEventReasons(_handle(0)))
        clock.now += 1.1 if len(seen) == 1 else 0.5
    assert seen == [0, 0x88, 0]
    assert gpus[0].reason_seconds("hw_power_brake") == pytest.approx(0.2)


def test_pulses_repeat(gpus: SimulatedGpus, clock: Time) -> None:
    gpus[0].pulse("hw_power_brake", seconds=2, every=15)
    clock.now += 31
    assert gpus[0].reason_seconds("hw_power_brake") == pytest.approx(5)
    gpus[0].load()  # another change in between loses nothing
    clock.now += 15
    assert gpus[0].reason_seconds("hw_power_brake") == pytest.approx(7)


changes = st.lists(
    st.tuples(st.sampled_from(["load", "idle", "throttle", "pulse", "train", "recover"]), st.floats(0, 30)), max_size=12
)


@given(changes)
def test_counters_never_fall_whatever_the_director_does(changes: list[tuple[str, float]]) -> None:
    # On a bare record: a file for each example would be slow.
    record, now = GpuRecord(), 100.0
    record.since = now
    last = [0.0] * 12
    for change, seconds in changes:
        GpuState(record, now).fold()
        record.power_mw = 700_000 if change == "load" else 70_000
        record.reasons = 0x48 if change == "throttle" else 0
        if change in {"pulse", "train", "recover"}:
            record.pulse_reasons = 0x48 if change != "recover" else 0
            record.pulse_start, record.pulse_seconds = now + 1, 0.5
            record.pulse_every = 3.0 if change == "train" else 0.0
        now += seconds
        moment = GpuState(record, now)
        values = [moment.reason_seconds(bit) for bit in range(11)]
        assert all(b - 1e-6 <= a <= b + seconds + 1e-6 for a, b in zip(values, last, strict=False))
        assert moment.energy_mj() >= int(last[11]) - 1
        last = [*values, moment.energy_mj()]


def test_a_lying_gpu_reads_minus_one(gpus: SimulatedGpus) -> None:
    gpus[0].lie()
    assert pynvml.nvmlDeviceGetPowerUsage(_handle(0)) == 0xFFFFFFFF
    (energy,) = pynvml.nvmlDeviceGetFieldValues(_handle(0), [83])
    assert energy.value.ullVal == 0xFFFFFFFFFFFFFFFF


def test_handles_end_with_the_driver_they_came_from(gpus: SimulatedGpus) -> None:
    handle = _handle(0)
    gpus.reload_driver()
    with pytest.raises(pynvml.NVMLError_Uninitialized):
        pynvml.nvmlDeviceGetPowerUsage(handle)
    pynvml.nvmlShutdown()
    pynvml.nvmlInit()
    with pytest.raises(pynvml.NVMLError_Uninitialized):
        pynvml.nvmlDeviceGetPowerUsage(handle)
    assert pynvml.nvmlDeviceGetPowerUsage(_handle(0)) == 72_000


def test_noise_is_small_and_the_same_for_all_who_look(tmp_path: Path, clock: Time) -> None:
    gpus = SimulatedGpus(tmp_path / "gpus", count=1, noise=0.01, monotonic=clock)
    gpus[0].load(power_watts=600)
    with installed(gpus.path, clock):
        pynvml.nvmlInit()
        readings = []
        for _ in range(20):
            readings.append({pynvml.nvmlDeviceGetPowerUsage(_handle(0)) for _ in range(2)})
            clock.now += 1
    assert all(len(both) == 1 for both in readings)
    assert len({next(iter(both)) for both in readings}) > 10
    assert all(594_000 <= next(iter(both)) <= 606_000 for both in readings)
