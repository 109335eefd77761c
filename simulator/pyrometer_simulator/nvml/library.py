"""The fake ``libnvidia-ml``: an object in place of ``pynvml.nvmlLib``, so that pynvml's own wrappers do their work.

Functions take what ctypes would hand to C (pointers by ``byref``, buffers, structures by value) and fill the caller's
structures. This file holds what the library as a whole does: initialisation, handles, faults and field values; what
single GPUs answer is in ``features/``.
"""

from __future__ import annotations

import ctypes
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pynvml

from pyrometer_simulator.nvml import features
from pyrometer_simulator.nvml.abi import (
    GPU_IS_LOST,
    INVALID_ARGUMENT,
    NOT_FOUND,
    NOT_SUPPORTED,
    SUCCESS,
    U64_MAX,
    UNINITIALIZED,
    UNTOUCHED,
    Body,
    write_field_value,
    write_number,
    write_text,
)
from pyrometer_simulator.nvml.gpu_state import GpuState
from pyrometer_simulator.nvml.state_file import CAPABILITIES, GpuRecord, StateFile

_HANDLE_BASE = 0x10000
_MIG_BASE = 0x100  # a MIG device's number within its GPU is counted from here
_HANG_POLL_SECONDS = 0.01


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
        self._connections = 0  # how often it attached: a handle is valid within one connection
        self._in_flight = 0
        self._lock = threading.Lock()
        self._visible: list[int] = []  # nvmlInit makes the list of GPUs, which stays as it is until the next one
        self._bindings: dict[int, int] = {}
        self._released = threading.Event()
        self._calling = threading.local()  # the name of the function that this thread is in
        self._settings: dict[bytes, dict[str, Any]] = {}
        self._features = features.discover()
        self._before = [feature.before for feature in self._features if feature.before]
        self.calls: dict[str, int] = {}
        """How often each function was called."""
        self.unsafe_shutdowns = 0
        """How often the library was shut down during another call, which NVML doesn't allow."""
        self._functions = {name: _Function(self._counted(name, body)) for name, body in self._bodies().items()}

    def __getattr__(self, name: str) -> _Function:
        try:
            return self.__dict__["_functions"][name]  # type: ignore[no-any-return]
        except KeyError:
            raise AttributeError(name) from None

    def remove_function(self, name: str) -> None:
        """Remove a function, as in a library too old to have it.

        Raises:
            KeyError: there is no function of this name.
        """
        del self._functions[name]

    @property
    def in_flight(self) -> int:
        """The number of calls that have not returned."""
        return self._in_flight

    def release(self) -> None:
        """Let hanging calls return."""
        self._released.set()

    @property
    def driver_version(self) -> tuple[int, ...]:
        """The simulated driver's version, such as (590, 48, 1)."""
        return _numbers(self._file.header.driver)

    @property
    def model(self) -> str:
        """The model of all GPUs of the node, such as ``NVIDIA H100 80GB HBM3``."""
        return str(self._file.header.model.decode())

    @property
    def monotonic(self) -> float:
        """The monotonic time that state is computed for, in seconds."""
        return self._monotonic()

    def setting(self, gpu: GpuState, name: str, default: Any = None) -> Any:  # noqa: ANN401  whatever JSON can hold
        """Return what ``SimulatedGpu.set`` stored under a name, else ``default``."""
        text = bytes(gpu.record.settings)
        parsed = self._settings.get(text)
        if parsed is None:
            if len(self._settings) > 64:  # one text for each GPU and change; old ones are not needed
                self._settings.clear()
            parsed = self._settings[text] = json.loads(text or b"{}")
        return parsed.get(name, default)

    def device_call(self, body: Body, capability: str | None = None) -> Body:
        """Return a C function of a GPU's handle.

        It checks the handle, injected faults and ``capability`` (of CAPABILITIES), then calls ``body(gpu, ...)``.
        """
        lacked = 1 << CAPABILITIES.index(capability) if capability else 0

        def call(handle: Any, *arguments: object) -> int:  # noqa: ANN401
            value = ctypes.c_void_p.from_buffer(handle).value or 0
            mig_device, index = divmod(value % _HANDLE_BASE, _MIG_BASE)
            if self._is_detached() or value // _HANDLE_BASE != self._connections:
                return UNINITIALIZED
            record = self._file.snapshot(index)
            if fault := self._fault(record, index):
                return fault
            if record.lacks & lacked:
                return NOT_SUPPORTED
            header = self._file.header
            gpu = GpuState(record, self._monotonic(), header.noise, header.seed, mig_device)
            for before in self._before:
                if (code := before(self, gpu, self._calling.name, arguments)) is not None:
                    return code
            return body(gpu, *arguments)

        return call

    def mig_handle(self, gpu: GpuState, number: int) -> int:
        """Return the handle of a GPU's MIG device, counted from 1."""
        uuids = [self._file.record(index).uuid for index in range(self._file.header.count)]
        return _HANDLE_BASE * self._connections + number * _MIG_BASE + uuids.index(gpu.record.uuid)

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
        return {
            "nvmlInitWithFlags": self._init,
            "nvmlShutdown": self._shutdown,
            "nvmlSystemGetDriverVersion": self._driver_version,
            "nvmlSystemGetNVMLVersion": self._library_version,
            "nvmlDeviceGetCount_v2": self._count,
            "nvmlDeviceGetHandleByIndex_v2": self._open_index,
            "nvmlDeviceGetHandleByPciBusId_v2": self._open_pci,
            "nvmlDeviceGetIndex": self.device_call(self._index),
            "nvmlDeviceGetFieldValues": self.device_call(self._field_values),
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

    def _is_detached(self) -> bool:
        return self._attached != int(self._file.header.epoch)

    def _driver_version(self, buffer: Any, _length: object) -> int:  # noqa: ANN401  a ctypes array
        return UNINITIALIZED if self._is_detached() else write_text(self._file.header.driver, buffer)

    def _library_version(self, buffer: Any, _length: object) -> int:  # noqa: ANN401  a ctypes array
        header = self._file.header
        return write_text(header.library or b"13." + header.driver, buffer)

    def _count(self, out: Any) -> int:  # noqa: ANN401  what byref() makes
        return UNINITIALIZED if self._is_detached() else write_number(out, None, len(self._visible))

    def _open_index(self, index: Any, out: Any) -> int:  # noqa: ANN401
        if self._is_detached():
            return UNINITIALIZED
        return self._open(self._visible[index.value], out) if index.value < len(self._visible) else INVALID_ARGUMENT

    def _open_pci(self, pci: Any, out: Any) -> int:  # noqa: ANN401
        if self._is_detached():
            return UNINITIALIZED
        wanted = pci.value.decode().lower().removeprefix("0000")
        for index in self._visible:
            if self._file.record(index).pci_bus_id.decode().lower().removeprefix("0000").endswith(wanted):
                return self._open(index, out)
        return NOT_FOUND

    def _open(self, index: int, out: Any) -> int:  # noqa: ANN401
        self._file.record(index).opened += 1
        # NVML opens a lost GPU by its address, too; only calls on its handle report the loss.
        address = ctypes.addressof(out._obj)  # noqa: SLF001
        ctypes.c_void_p.from_address(address).value = _HANDLE_BASE * self._connections + index
        return self._fault(self._file.snapshot(index), index) or SUCCESS

    def _fault(self, record: GpuRecord, index: int) -> int:
        """Play a GPU's delay or hang; return the injected error, 0 for none."""
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

    def _index(self, gpu: GpuState, out: Any) -> int:  # noqa: ANN401
        for number, index in enumerate(self._visible):
            if self._file.record(index).uuid == gpu.record.uuid:
                return write_number(out, None, number)
        return NOT_FOUND

    def _field_values(self, gpu: GpuState, count: Any, values: Any) -> int:  # noqa: ANN401
        errors = self.setting(gpu, "field_errors", {})
        for entry in values._obj[: count.value]:  # noqa: SLF001
            typed = self._field(gpu, entry.fieldId, entry.scopeId)
            entry.nvmlReturn = errors.get(str(entry.fieldId), NOT_SUPPORTED if typed is None else SUCCESS)
            if typed is not None and typed[0] != UNTOUCHED:
                kind, value = typed
                entry.timestamp = int(self._monotonic() * 1e6)
                entry.valueType = kind
                write_field_value(entry, kind, U64_MAX if gpu.record.lies else value)
        return SUCCESS

    def _field(self, gpu: GpuState, field: int, scope: int) -> tuple[int, int] | None:
        for feature in self._features:
            if (typed := feature.field(self, gpu, field, scope)) is not None:
                return typed
        return None


@cache
def _numbers(version: bytes) -> tuple[int, ...]:
    return tuple(int(number) for number in version.decode().split("."))


@contextmanager
def installed(path: Path, monotonic: Callable[[], float] = time.monotonic) -> Iterator[FakeLibrary]:
    """Put the fake library under pynvml for the length of the block; hanging calls end with it."""
    library = FakeLibrary(path, monotonic)
    put_under_pynvml(library)
    try:
        yield library
    finally:
        library.release()
        put_under_pynvml(None)


def put_under_pynvml(library: FakeLibrary | None) -> None:
    """Let pynvml call this library from now on; None: no library is loaded."""
    # pynvml keeps function pointers for the life of the process, for it never unloads a library.
    pynvml._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001
    pynvml.nvmlLib = library
