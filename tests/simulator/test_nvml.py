"""The simulated driver, through pynvml's own wrappers."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrometer_simulator.nvml import SimulatedGpus, installed
from pyrometer_simulator.nvml.gpu_state import GpuState
from pyrometer_simulator.nvml.state_file import GpuRecord, StateFile


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


def test_the_same_seed_gives_the_same_gpus(tmp_path: Path) -> None:
    first, again, other = (SimulatedGpus(tmp_path / name, seed=seed) for name, seed in (("a", 1), ("b", 1), ("c", 2)))
    assert [gpu.uuid for gpu in first] == [gpu.uuid for gpu in again]
    assert not {gpu.uuid for gpu in first} & {gpu.uuid for gpu in other}


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


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (lambda gpu: gpu.lose(), pynvml.NVMLError_GpuIsLost),
        (lambda gpu: gpu.require_reset(), pynvml.NVMLError_ResetRequired),
        (lambda gpu: gpu.lack("power"), pynvml.NVMLError_NotSupported),
    ],
)
def test_faults_belong_to_one_gpu(gpus: SimulatedGpus, fault: object, error: type[Exception]) -> None:
    handles = [_handle(0), _handle(1)]
    fault(gpus[0])  # type: ignore[operator]
    with pytest.raises(error):
        pynvml.nvmlDeviceGetPowerUsage(handles[0])
    assert pynvml.nvmlDeviceGetPowerUsage(handles[1]) == 72_000


def test_a_lying_gpu_reads_minus_one(gpus: SimulatedGpus) -> None:
    gpus[0].lie()
    assert pynvml.nvmlDeviceGetPowerUsage(_handle(0)) == 0xFFFFFFFF
    (energy,) = pynvml.nvmlDeviceGetFieldValues(_handle(0), [83])
    assert energy.value.ullVal == 0xFFFFFFFFFFFFFFFF


def test_a_call_to_a_hung_gpu_returns_when_the_gpu_does(gpus: SimulatedGpus) -> None:
    handle = _handle(0)
    gpus[0].hang()
    call = threading.Thread(target=lambda: pynvml.nvmlDeviceGetPowerUsage(handle))
    call.start()
    call.join(0.1)
    assert call.is_alive()
    gpus[0].recover()
    call.join(2)
    assert not call.is_alive()


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


def test_a_hidden_gpu_is_missing_after_the_next_init(gpus: SimulatedGpus) -> None:
    gpus[0].hide()
    assert pynvml.nvmlDeviceGetCount() == 2
    pynvml.nvmlShutdown()
    pynvml.nvmlInit()
    assert pynvml.nvmlDeviceGetCount() == 1
    assert pynvml.nvmlDeviceGetUUID(_handle(0)) == gpus[1].uuid
    with pytest.raises(pynvml.NVMLError_NotFound):
        pynvml.nvmlDeviceGetHandleByPciBusId(gpus[0].pci_bus_id)


@pytest.mark.parametrize(
    ("driver", "field", "seconds"),
    [
        ("575.51.03", 252, 2),
        ("580.65.06", 252, 2),
        ("590.48.01", 270, 2),
        ("570.1", 270, None),
    ],
)
def test_field_ids_are_those_of_the_driver(
    tmp_path: Path, clock: Time, driver: str, field: int, seconds: int | None
) -> None:
    gpus = SimulatedGpus(tmp_path / "gpus", count=1, driver=driver, monotonic=clock)
    gpus[0].throttle("hw_thermal")
    clock.now += 2
    with installed(gpus.path, clock):
        pynvml.nvmlInit()
        (entry,) = pynvml.nvmlDeviceGetFieldValues(_handle(0), [field])
    if seconds is None:
        assert entry.nvmlReturn == pynvml.NVML_ERROR_NOT_SUPPORTED
    else:
        assert entry.value.ullVal == seconds * 1e9


def test_on_a_newer_driver_the_old_thermal_id_answers_something_else(gpus: SimulatedGpus) -> None:
    (entry,) = pynvml.nvmlDeviceGetFieldValues(_handle(0), [251])
    assert (entry.nvmlReturn, entry.valueType, entry.value.uiVal) == (0, pynvml.NVML_VALUE_TYPE_UNSIGNED_INT, 1)


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


def test_nothing_of_the_library_stays_behind(tmp_path: Path) -> None:
    gpus = SimulatedGpus(tmp_path / "gpus")
    with installed(gpus.path):
        pynvml.nvmlInit()
    assert pynvml.nvmlLib is None
    with pytest.raises(pynvml.NVMLError):
        pynvml.nvmlDeviceGetCount()


@pytest.mark.parametrize("size", [0, 100_000, 1 << 20])
def test_a_file_of_something_else_is_refused(tmp_path: Path, size: int) -> None:
    (tmp_path / "gpus").write_bytes(bytes(size))
    with pytest.raises(ValueError, match="holds no simulated GPUs"):
        StateFile(tmp_path / "gpus")


def test_the_real_exporter_runs_over_gpus_that_another_process_directs(tmp_path: Path) -> None:
    gpus = SimulatedGpus(tmp_path / "gpus", count=2)
    port_flag = "--web.listen-address=127.0.0.1:0"
    command = [sys.executable, "-m", "pyrometer_simulator.node", "--gpus", str(gpus.path), "--", port_flag]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as node:
        assert node.stderr is not None
        try:
            address = _address(node.stderr)
            assert _metric(address, "pyrometer_gpu_up", gpus[1].uuid) == 1
            gpus[1].load(sm_clock=1755)
            assert _metric(address, "DCGM_FI_DEV_SM_CLOCK", gpus[1].uuid) == 1755
            gpus[1].lose()
            assert _metric(address, "pyrometer_gpu_up", gpus[1].uuid) == 0
        finally:
            node.send_signal(signal.SIGTERM)
            node.stderr.read()
    assert node.returncode == 0


def _address(lines: Iterator[str]) -> str:
    for line in lines:
        if "listening on" in line:
            return line.rsplit("listening on ", 1)[1].strip().strip('"')
    pytest.fail("the exporter never listened")


def _metric(address: str, name: str, uuid: str) -> float | None:
    for _ in range(50):
        with urllib.request.urlopen(f"http://{address}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        for line in lines:
            if line.startswith(name) and uuid in line:
                return float(line.rsplit(" ", 1)[1])
        time.sleep(0.1)
    return None
