"""The director's side of a node's simulated GPUs: loads, throttles, pulses and faults."""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyrometer_simulator.nvml.gpu_state import GpuState
from pyrometer_simulator.nvml.pci_bus import PciBus
from pyrometer_simulator.nvml.state_file import CAPABILITIES, MAGIC, MOST_GPUS, SETTINGS_BYTES, GpuRecord, StateFile

MIB = 1 << 20
REASON_BITS = {
    "gpu_idle": 0x1,
    "clocks_setting": 0x2,
    "power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal": 0x20,
    "hw_thermal": 0x40,
    "hw_power_brake": 0x80,
    "display_clocks": 0x100,
    "board_limit": 0x200,
    "reliability": 0x400,
}
# Hardware sets its general bit along with either of the particular ones (nvml.h, nvmlClocksEventReasonHwSlowdown).
_IMPLIED = {0x40: 0x8, 0x80: 0x8}

GPU_IS_LOST, RESET_REQUIRED, LIB_RM_VERSION_MISMATCH = 15, 16, 18  # nvmlReturn_t

# PCI addresses of the eight GPUs of an HGX H100 board, as its users show them; beyond these, invented.
_HGX_BUSES = (0x18, 0x2A, 0x3A, 0x5D, 0x9A, 0xAB, 0xBA, 0xDB)


class SimulatedGpu:
    """One GPU; the exporter's next call sees every change."""

    def __init__(self, file: StateFile, index: int, monotonic: Callable[[], float]) -> None:
        self._file = file
        self._monotonic = monotonic
        self.index = index

    @property
    def uuid(self) -> str:
        """The UUID, ``GPU-...``."""
        return str(self._file.record(self.index).uuid.decode())

    @property
    def pci_bus_id(self) -> str:
        """The PCI address in NVML's spelling, ``00000000:18:00.0``."""
        return str(self._file.record(self.index).pci_bus_id.decode())

    @property
    def opened(self) -> int:
        """The number of times that a handle of this GPU was requested."""
        return int(self._file.record(self.index).opened)

    @property
    def stuck(self) -> int:
        """The number of calls on this GPU that hang at present: threads of an exporter."""
        return int(self._file.record(self.index).stuck)

    def reason_seconds(self, reason: str) -> float:
        """Return the true number of seconds that a reason has held the clocks.

        Raises:
            KeyError: ``reason`` is not in REASON_BITS.
        """
        gpu = GpuState(self._file.snapshot(self.index), self._monotonic())
        return gpu.reason_seconds(REASON_BITS[reason].bit_length() - 1)

    def load(
        self,
        *,
        utilisation: int = 99,
        power_watts: float = 650.0,
        temperature: int = 62,
        sm_clock: int = 1980,
        memory_used_mib: int = 68_000,
    ) -> None:
        """Set the load; 0 % sets the idle bit. A throttle stays on."""
        with self._changing() as record:
            record.utilisation = utilisation
            record.memory_utilisation = utilisation // 2
            record.power_mw = round(power_watts * 1000)
            record.temperature = temperature
            record.memory_temperature = temperature + 6
            record.sm_clock = sm_clock
            record.memory_used = memory_used_mib * MIB
            record.reasons = (record.reasons & ~0x1) | (0 if utilisation else 0x1)

    def idle(self) -> None:
        """Set the values of an idle GPU."""
        self.load(utilisation=0, power_watts=72, temperature=31, sm_clock=345, memory_used_mib=4)

    def throttle(self, *reasons: str, sm_clock: int = 0, temperature: int = 0, power_watts: float = 0.0) -> None:
        """Hold the clocks for these reasons until :meth:`recover`; values of 0 stay as they are.

        Raises:
            KeyError: a reason is not in REASON_BITS.
        """
        with self._changing() as record:
            record.reasons = (record.reasons & 0x1) | _mask(reasons)
            record.throttled_sm_clock = sm_clock
            record.throttled_temperature = temperature
            record.throttled_power_mw = round(power_watts * 1000)

    def pulse(self, *reasons: str, seconds: float, every: float = 0.0, delay: float = 0.0, sm_clock: int = 0) -> None:
        """Hold the clocks for ``seconds``, once or repeatedly ``every`` so many seconds; needs no process to end it.

        Raises:
            KeyError: a reason is not in REASON_BITS.
        """
        with self._changing() as record:
            record.pulse_reasons = _mask(reasons)
            record.pulse_start = self._monotonic() + delay
            record.pulse_seconds = seconds
            record.pulse_every = every
            record.pulse_sm_clock = sm_clock

    def recover(self) -> None:
        """End throttles, pulses and faults; load and counters stay."""
        with self._changing() as record:
            record.reasons &= 0x1
            record.pulse_reasons = 0
            record.throttled_sm_clock = record.throttled_temperature = record.throttled_power_mw = 0
            record.fault = record.hangs = record.lies = record.lacks = record.hidden = 0
            record.delay_seconds = 0.0

    def limit_power(self, watts: float) -> None:
        """Set the power limit, as ``nvidia-smi -pl`` does."""
        with self._changing() as record:
            record.power_limit_mw = round(watts * 1000)

    def lose(self) -> None:
        """Fall off the bus (Xid 79): every call returns GPU_IS_LOST."""
        self.fail(GPU_IS_LOST)

    def require_reset(self) -> None:
        """Return RESET_REQUIRED from every call."""
        self.fail(RESET_REQUIRED)

    def fail(self, code: int) -> None:
        """Return this nvmlReturn_t from every call."""
        with self._changing() as record:
            record.fault = code

    def hang(self) -> None:
        """Let calls hang (Xid 119) until :meth:`recover`."""
        with self._changing() as record:
            record.hangs = 1

    def hide(self) -> None:
        """Disappear from the driver's list at the next nvmlInit."""
        with self._changing() as record:
            record.hidden = 1

    def leave(self) -> None:
        """Detach from the driver (unbound, removed from the bus): lost to open connections, missing from later ones."""
        with self._changing() as record:
            record.hidden = 1
            record.bindings += 1

    def arrive(self) -> None:
        """Attach to the driver: only later connections list the GPU, and its counters start at 0."""
        with self._changing() as record:
            record.hidden = 0
            record.bindings += 1
        self.reset_counters()

    def exchange(self) -> None:
        """Put another card of the same model into the slot: a new UUID, no faults, no errors, counters at 0."""
        self.recover()
        with self._changing() as record:
            number = uuid.uuid5(uuid.NAMESPACE_OID, record.uuid.decode())
            record.uuid = f"GPU-{number}".encode()
            record.serial = f"SIMULATED-{number.hex[:8]}".encode()
            record.settings = b""
        self.reset_counters()

    def place(self, pci_bus_id: str, memory_mib: int) -> None:
        """Be a GPU at another address (NVML's spelling) and with another memory than the simulated board's."""
        with self._changing() as record:
            record.pci_bus_id = pci_bus_id.encode()
            record.memory_total = memory_mib * MIB

    def slow(self, seconds: float) -> None:
        """Delay every call by this many seconds."""
        with self._changing() as record:
            record.delay_seconds = seconds

    def lie(self) -> None:
        """Return -1 for all values, in NVML's unsigned types."""
        with self._changing() as record:
            record.lies = 1

    def lack(self, *capabilities: str) -> None:
        """Return NOT_SUPPORTED for these capabilities.

        Raises:
            ValueError: one is not in CAPABILITIES.
        """
        with self._changing() as record:
            record.lacks = sum(1 << CAPABILITIES.index(capability) for capability in capabilities)

    def reset_counters(self) -> None:
        """Restart energy and times at 0, as after a GPU reset."""
        with self._changing() as record:
            record.energy_mj = 0.0
            record.reason_seconds[:] = [0.0] * len(record.reason_seconds)

    def set(self, **settings: Any) -> None:  # noqa: ANN401  whatever JSON can hold
        """Set what a feature reads, by the names that its file in ``features/`` documents; None removes a name.

        Raises:
            ValueError: the settings don't fit into the record.
        """
        with self._changing() as record:
            known = json.loads(record.settings or b"{}") | settings
            text = json.dumps({name: value for name, value in known.items() if value is not None}).encode()
            if len(text) >= SETTINGS_BYTES:
                msg = f"{len(text)} bytes of settings; {SETTINGS_BYTES - 1} fit"
                raise ValueError(msg)
            record.settings = text

    def get(self, name: str, default: Any = None) -> Any:  # noqa: ANN401  whatever JSON can hold
        """Return what :meth:`set` stored under a name, else ``default``."""
        return json.loads(self._file.record(self.index).settings or b"{}").get(name, default)

    @contextmanager
    def _changing(self) -> Iterator[GpuRecord]:
        with self._file.writing(self.index) as record:
            GpuState(record, self._monotonic()).fold()
            yield record


class SimulatedGpus:
    """The GPUs of a node, created in ``path``; with ``create=False`` those that the file holds.

    Raises:
        ValueError: more GPUs than a node can have, or a file without simulated GPUs.
        OSError: the file can't be made or opened.
    """

    def __init__(
        self,
        path: Path,
        count: int = 8,
        model: str = "NVIDIA H100 80GB HBM3",
        driver: str = "590.48.01",
        *,
        seed: int = 0,
        noise: float = 0.0,
        create: bool = True,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        if not 0 <= count <= MOST_GPUS:
            msg = f"a node has 0 to {MOST_GPUS} GPUs, not {count}"
            raise ValueError(msg)
        self._file = StateFile(path, create=create)
        self.path = path
        if create:
            header = self._file.header
            header.count, header.seed, header.noise = count, seed, noise
            header.driver, header.model = driver.encode(), model.encode()
            self._create_gpus(monotonic())
        self._gpus = [SimulatedGpu(self._file, index, monotonic) for index in range(self._file.header.count)]

    def __getitem__(self, index: int) -> SimulatedGpu:
        return self._gpus[index]

    def __iter__(self) -> Iterator[SimulatedGpu]:
        return iter(self._gpus)

    def __len__(self) -> int:
        return len(self._gpus)

    def fail_init(self, code: int) -> None:
        """Set the nvmlReturn_t of nvmlInit: 12 no library, 9 no driver, 18 version mismatch; 0 is success."""
        self._file.header.init_error = code

    def hang_init(self, *, hangs: bool = True) -> None:
        """Let nvmlInit hang, or return again."""
        self._file.header.init_hangs = int(hangs)

    def upgrade_library(self, version: str) -> None:
        """Give the library on disk another version than the loaded module, so that nvmlInit refuses (code 18)."""
        self._file.header.library = version.encode()
        self._file.header.init_error = LIB_RM_VERSION_MISMATCH

    def reload_driver(self, driver: str | None = None) -> None:
        """Unload and load the driver: handles become invalid, counters restart at 0."""
        if driver is not None:
            self._file.header.driver = driver.encode()
        self._file.header.epoch += 1
        for gpu in self:
            gpu.reset_counters()

    def write_pci_tree(self, sysfs: Path) -> None:
        """Write the GPUs' entries in ``<sysfs>/bus/pci/devices``; see PciBus."""
        for gpu in self:
            PciBus(sysfs).plug(gpu.pci_bus_id)

    def _create_gpus(self, now: float) -> None:
        header = self._file.header
        chance = random.Random(header.seed)
        for index in range(header.count):
            record = self._file.record(index)
            _create_gpu(record, index, uuid.UUID(int=chance.getrandbits(128), version=4))
            record.since = now
            SimulatedGpu(self._file, index, lambda: now).idle()
        # Last, so that a reader that comes too early gets an error instead of half a node.
        header.magic = MAGIC


def _create_gpu(record: GpuRecord, index: int, identity: uuid.UUID) -> None:
    bus = _HGX_BUSES[index] if index < len(_HGX_BUSES) else 0xE0 + index
    record.uuid = f"GPU-{identity}".encode()
    record.serial = b"SIMULATED"
    record.vbios = b"96.00.89.00.01"
    record.pci_bus_id = f"00000000:{bus:02X}:00.0".encode()
    record.memory_clock = 2619
    record.power_limit_mw = 700_000
    record.memory_total = 81_559 * MIB
    record.memory_reserved = 551 * MIB


def _mask(reasons: tuple[str, ...]) -> int:
    mask = 0
    for reason in reasons:
        bit = REASON_BITS[reason]
        mask |= bit | _IMPLIED.get(bit, 0)
    return mask
