"""The fake ``libnvidia-ml``: an object in place of ``pynvml.nvmlLib``, so that pynvml's own wrappers do their work.

Functions take what ctypes would hand to C (pointers by ``byref``, buffers, structures by value) and fill the caller's
structures. Signatures and error codes are nvml.h's.
"""

from __future__ import annotations

import ctypes
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pynvml

from pyrometer_simulator.nvml import answers, features
from pyrometer_simulator.nvml.answers import put, put_text
from pyrometer_simulator.nvml.layout import FEATURES, GpuRecord, StateFile
from pyrometer_simulator.nvml.moment import Moment

__all__ = ["FakeLibrary", "installed", "put", "put_text"]

SUCCESS, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND, GPU_IS_LOST = 0, 1, 2, 3, 6, 15
_HANDLE_BASE = 0x10000
_PART_BASE = 0x100  # a MIG device's number within its GPU is counted from here
_U32, _U64 = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF
UNSIGNED_INT, UNSIGNED_LONG_LONG = 1, 3  # nvmlValueType_t
UNTOUCHED = -1  # in place of a type: SUCCESS, and nothing written, as drivers do for ECC counters with ECC off
_HANG_POLL_SECONDS = 0.01

Body = Callable[..., int]


class _Function:
    """A foreign function as ctypes has them: callable, with a ``restype`` that callers may set."""

    restype: object = None
    argtypes: object = None

    def __init__(self, body: Callable[..., object]) -> None:
        self._body = body

    def __call__(self, *arguments: object) -> object:
        return self._body(*arguments)


class FakeLibrary:
    """The library over one node's state file."""

    def __init__(self, path: Path, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._file = StateFile(path)
        self._monotonic = monotonic
        self._attached: int | None = None  # the driver's epoch at nvmlInit
        self._inits = 0  # the library counts: only the first attaches, only the last nvmlShutdown detaches
        self._connections = 0  # how often it attached: a handle is good for one
        self._in_flight = 0
        self._lock = threading.Lock()
        self._visible: list[int] = []  # the list of GPUs is made by nvmlInit, and stays as it is until the next one
        self._bindings: dict[int, int] = {}
        self._released = threading.Event()
        self._calling = threading.local()  # the name of the function that this thread is in
        self._extras: dict[bytes, dict[str, Any]] = {}
        self._features = features.discover()
        self._before = [feature.before for feature in self._features if feature.before]
        self.calls: dict[str, int] = {}
        """How often each function was called."""
        self.unsafe_shutdowns = 0
        """How often the library was shut down while another call was under way, which NVML doesn't allow."""
        self._functions = {name: _Function(self._counted(name, body)) for name, body in self._bodies().items()}

    def __getattr__(self, name: str) -> _Function:
        try:
            return self.__dict__["_functions"][name]  # type: ignore[no-any-return]
        except KeyError:
            raise AttributeError(name) from None

    def remove_function(self, name: str) -> None:
        """Be a library too old to have this function."""
        del self._functions[name]

    @property
    def in_flight(self) -> int:
        """Calls that have not returned."""
        return self._in_flight

    def release(self) -> None:
        """Let calls that hang return."""
        self._released.set()

    def _counted(self, name: str, body: Body) -> Body:
        def call(*arguments: object) -> int:
            with self._lock:
                self.calls[name] = self.calls.get(name, 0) + 1
                self._in_flight += 1
            self._calling.name = name
            try:
                return body(*arguments)
            finally:
                with self._lock:
                    self._in_flight -= 1

        return call

    def _bodies(self) -> dict[str, Body]:
        device = self.device
        return {
            "nvmlInitWithFlags": self._init,
            "nvmlShutdown": self._shutdown,
            "nvmlSystemGetDriverVersion": self._driver_version,
            "nvmlSystemGetNVMLVersion": self._library_version,
            "nvmlDeviceGetCount_v2": self._count,
            "nvmlDeviceGetHandleByIndex_v2": self._open_index,
            "nvmlDeviceGetHandleByPciBusId_v2": self._open_pci,
            "nvmlDeviceGetIndex": device(self._index),
            "nvmlDeviceGetUUID": device(lambda moment, *out: put_text(moment.record.uuid, *out)),
            "nvmlDeviceGetName": device(lambda _moment, *out: put_text(self._file.header.model, *out)),
            "nvmlDeviceGetSerial": device(lambda moment, *out: put_text(moment.record.serial, *out), "serial"),
            "nvmlDeviceGetVbiosVersion": device(lambda moment, *out: put_text(moment.record.vbios, *out)),
            "nvmlDeviceGetPciInfo_v3": device(answers.pci_info),
            "nvmlDeviceGetClockInfo": device(answers.clock, "clocks"),
            "nvmlDeviceGetTemperature": device(answers.temperature, "temperature"),
            "nvmlDeviceGetTemperatureV": device(answers.temperature_v, "temperature"),
            "nvmlDeviceGetPowerUsage": device(lambda m, out: put(out, m, m.power_mw()), "power"),
            "nvmlDeviceGetEnforcedPowerLimit": device(
                lambda m, out: put(out, m, m.record.power_limit_mw), "power_limit"
            ),
            "nvmlDeviceGetTotalEnergyConsumption": device(lambda m, out: put(out, m, m.energy_mj()), "energy"),
            "nvmlDeviceGetUtilizationRates": device(answers.utilisation, "utilisation"),
            "nvmlDeviceGetMemoryInfo_v2": device(answers.memory, "memory"),
            "nvmlDeviceGetCurrentClocksEventReasons": device(self._reasons, "reasons"),
            "nvmlDeviceGetCurrentClocksThrottleReasons": device(self._reasons, "reasons"),
            "nvmlDeviceGetFieldValues": device(self._fields),
            **{name: body for feature in self._features for name, body in feature.functions(self).items()},
        }

    def _init(self, _flags: int) -> int:
        while self._file.header.init_hangs and not self._released.wait(_HANG_POLL_SECONDS):
            pass
        if self._file.header.init_error:
            return int(self._file.header.init_error)
        self._inits += 1
        if self._inits == 1:
            self._attached = int(self._file.header.epoch)
            self._connections += 1
            self._visible = [i for i in range(self._file.header.count) if not self._file.snapshot(i).hidden]
            self._bindings = {i: int(self._file.record(i).bindings) for i in self._visible}
        return SUCCESS

    def _shutdown(self) -> int:
        self.unsafe_shutdowns += self._in_flight > 1  # this call is one
        if not self._inits:
            return UNINITIALIZED
        self._inits -= 1
        if not self._inits:
            self._attached = None
        return SUCCESS

    def _away(self) -> bool:
        return self._attached != int(self._file.header.epoch)

    def _driver_version(self, buffer: Any, _length: object) -> int:  # noqa: ANN401  a ctypes array
        return UNINITIALIZED if self._away() else put_text(self._file.header.driver, buffer)

    def _library_version(self, buffer: Any, _length: object) -> int:  # noqa: ANN401  a ctypes array
        header = self._file.header
        return put_text(header.library or b"13." + header.driver, buffer)

    def _count(self, out: Any) -> int:  # noqa: ANN401  what byref() makes
        if self._away():
            return UNINITIALIZED
        out._obj.value = len(self._visible)  # noqa: SLF001  how a pointer made by byref() is followed
        return SUCCESS

    def _open_index(self, index: Any, out: Any) -> int:  # noqa: ANN401
        if self._away():
            return UNINITIALIZED
        return self._open(self._visible[index.value], out) if index.value < len(self._visible) else INVALID_ARGUMENT

    def _open_pci(self, pci: Any, out: Any) -> int:  # noqa: ANN401
        if self._away():
            return UNINITIALIZED
        wanted = pci.value.decode().lower().removeprefix("0000")
        for index in self._visible:
            if self._file.record(index).pci_bus_id.decode().lower().removeprefix("0000").endswith(wanted):
                return self._open(index, out)
        return NOT_FOUND

    def _open(self, index: int, out: Any) -> int:  # noqa: ANN401
        self._file.record(index).opened += 1
        # A lost GPU's handle can still be had by those who know its address; calls on it tell.
        address = ctypes.addressof(out._obj)  # noqa: SLF001
        ctypes.c_void_p.from_address(address).value = _HANDLE_BASE * self._connections + index
        return self._trouble(self._file.snapshot(index), index) or SUCCESS

    @property
    def driver(self) -> tuple[int, ...]:
        """The simulated driver's version, such as (590, 48, 1)."""
        return tuple(int(part) for part in self._file.header.driver.decode().split("."))

    @property
    def model(self) -> str:
        """What all GPUs of the node are, such as ``NVIDIA H100 80GB HBM3``."""
        return str(self._file.header.model.decode())

    @property
    def monotonic(self) -> float:
        """The time that state is computed for."""
        return self._monotonic()

    def extra(self, moment: Moment, name: str, default: Any = None) -> Any:  # noqa: ANN401  whatever JSON can hold
        """What ``SimulatedGpu.set`` left under a name."""
        text = bytes(moment.record.extras)
        found = self._extras.get(text)
        if found is None:
            if len(self._extras) > 64:  # one text for each GPU and change; old ones are not needed
                self._extras.clear()
            found = self._extras[text] = json.loads(text or b"{}")
        return found.get(name, default)

    def device(self, body: Body, feature: str | None = None) -> Body:
        """A function of a GPU's handle: checks handle, faults and ``feature``, then calls ``body(moment, ...)``."""
        lacked = 1 << FEATURES.index(feature) if feature else 0

        def call(handle: Any, *arguments: object) -> int:  # noqa: ANN401
            value = ctypes.c_void_p.from_buffer(handle).value or 0
            part, index = divmod(value % _HANDLE_BASE, _PART_BASE)
            if self._away() or value // _HANDLE_BASE != self._connections:
                return UNINITIALIZED
            record = self._file.snapshot(index)
            if trouble := self._trouble(record, index):
                return trouble
            if record.lacks & lacked:
                return NOT_SUPPORTED
            header = self._file.header
            moment = Moment(record, self._monotonic(), header.noise, header.seed, part)
            for before in self._before:
                if (code := before(self, moment, self._calling.name, arguments)) is not None:
                    return code
            return body(moment, *arguments)

        return call

    def part_handle(self, moment: Moment, part: int) -> int:
        """The handle of a GPU's MIG device."""
        uuids = [self._file.record(index).uuid for index in range(self._file.header.count)]
        return _HANDLE_BASE * self._connections + part * _PART_BASE + uuids.index(moment.record.uuid)

    def _trouble(self, record: GpuRecord, index: int) -> int:
        if record.delay_seconds:
            time.sleep(record.delay_seconds)
        if record.hangs:
            self._hang(index)
            record = self._file.snapshot(index)
        if record.hangs or record.bindings != self._bindings.get(index):
            return GPU_IS_LOST
        return int(record.fault)

    def _hang(self, index: int) -> None:
        live = self._file.record(index)
        with self._lock:
            live.stuck += 1
        while live.hangs and not self._released.wait(_HANG_POLL_SECONDS):
            pass
        with self._lock:
            live.stuck -= 1

    def _index(self, moment: Moment, out: Any) -> int:  # noqa: ANN401
        for number, index in enumerate(self._visible):
            if self._file.record(index).uuid == moment.record.uuid:
                return put(out, None, number)
        return NOT_FOUND

    def _major(self) -> int:
        return int(self._file.header.driver.split(b".")[0])

    def _reasons(self, moment: Moment, out: Any) -> int:  # noqa: ANN401
        # The last two bits came with R615.
        return put(out, moment, moment.reasons() & (0x7FF if self._major() >= 615 else 0x1FF))

    def _fields(self, moment: Moment, count: Any, values: Any) -> int:  # noqa: ANN401
        errors = self.extra(moment, "field_errors", {})
        for entry in values._obj[: count.value]:  # noqa: SLF001
            found = self._field(moment, entry.fieldId, entry.scopeId)
            entry.nvmlReturn = errors.get(str(entry.fieldId), NOT_SUPPORTED if found is None else SUCCESS)
            if found is not None and found[0] != UNTOUCHED:
                kind, value = found
                entry.timestamp = int(self._monotonic() * 1e6)
                entry.valueType = kind
                answers.fill_value(entry, kind, _U64 if moment.record.lies else value)
        return SUCCESS

    def _field(self, moment: Moment, field: int, scope: int) -> tuple[int, int] | None:
        def has(feature: str) -> bool:
            return not moment.record.lacks & (1 << FEATURES.index(feature))

        if field == 82:
            return (UNSIGNED_INT, int(moment.record.memory_temperature)) if has("memory_temperature") else None
        if field == 83:
            return (UNSIGNED_LONG_LONG, moment.energy_mj()) if has("energy") else None
        bit = self._counter_bits().get(field)
        if bit is not None and has("counters"):
            seconds = moment.reason_seconds(bit) - moment.record.counter_steps_back
            return UNSIGNED_LONG_LONG, max(0, int(seconds * 1e9))
        for feature in self._features:
            if (found := feature.field(self, moment, field, scope)) is not None:
                return found
        return None

    def _counter_bits(self) -> dict[int, int]:
        """Bit numbers by field id of the nanosecond counters, as this driver numbers them."""
        version = self.driver
        fields = {74: 2, 76: 4, 77: 9, 78: 0, 79: 10}
        if (575,) <= version < (580, 66):
            fields |= {251: 5, 252: 6, 253: 7}
        elif version >= (580, 82):
            fields |= {269: 5, 270: 6, 271: 7}
        return fields


@contextmanager
def installed(path: Path, monotonic: Callable[[], float] = time.monotonic) -> Iterator[FakeLibrary]:
    """Put the fake library under pynvml for the length of the block; calls that hang end with it."""
    library = FakeLibrary(path, monotonic)
    _put_under_pynvml(library)
    try:
        yield library
    finally:
        library.release()
        _put_under_pynvml(None)


def _put_under_pynvml(library: FakeLibrary | None) -> None:
    # pynvml keeps function pointers for the life of the process, for it never unloads a library.
    pynvml._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001
    pynvml.nvmlLib = library
