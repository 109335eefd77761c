"""The memory-mapped file through which a director changes a node's simulated GPUs while an exporter reads them.

One header, then a fixed number of GPU records, all of plain C types. One process writes, any number read; each record
has a sequence number that is odd while it is being written, so that nobody reads half a change.
"""

from __future__ import annotations

import ctypes
import mmap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MAGIC = 0x31524750  # "PGR1"
MOST_GPUS = 16
SETTINGS_BYTES = 16384
REASON_COUNT = 11  # bits 0x1 to 0x400 of nvmlDeviceGetCurrentClocksEventReasons


class Header(ctypes.Structure):
    """Values that all GPUs of a node share."""

    _fields_ = (
        ("magic", ctypes.c_uint32),
        ("count", ctypes.c_uint32),
        ("seed", ctypes.c_uint32),
        ("epoch", ctypes.c_uint32),  # number of driver loads: handles of an earlier one are invalid
        ("init_error", ctypes.c_uint32),  # the nvmlReturn_t of nvmlInit
        ("init_hangs", ctypes.c_uint32),
        ("noise", ctypes.c_double),  # relative, 0 for none
        ("driver", ctypes.c_char * 80),
        ("model", ctypes.c_char * 96),
        ("library", ctypes.c_char * 80),  # the library's own version; empty: the one that belongs to the driver
    )


class GpuRecord(ctypes.Structure):
    """One GPU; times are seconds of CLOCK_MONOTONIC, which all processes of a machine share."""

    _fields_ = (
        ("sequence", ctypes.c_uint32),
        ("fault", ctypes.c_uint32),  # the NVML error that every call returns; 0 for none
        ("hangs", ctypes.c_uint32),
        ("lies", ctypes.c_uint32),
        ("hidden", ctypes.c_uint32),  # not enumerated at the next nvmlInit
        ("opened", ctypes.c_uint32),  # how often a handle was requested; written by the reader, as is the next
        ("stuck", ctypes.c_uint32),  # calls that hang at present
        ("bindings", ctypes.c_uint32),  # how often it was bound or unbound: older connections have lost it
        ("lacks", ctypes.c_uint64),  # bits of CAPABILITIES that return NOT_SUPPORTED
        ("delay_seconds", ctypes.c_double),  # every call takes this long
        ("uuid", ctypes.c_char * 96),
        ("serial", ctypes.c_char * 32),
        ("vbios", ctypes.c_char * 32),
        ("pci_bus_id", ctypes.c_char * 32),
        ("sm_clock", ctypes.c_uint32),
        ("memory_clock", ctypes.c_uint32),
        ("temperature", ctypes.c_uint32),
        ("memory_temperature", ctypes.c_uint32),
        ("power_mw", ctypes.c_uint32),
        ("power_limit_mw", ctypes.c_uint32),
        ("utilisation", ctypes.c_uint32),
        ("memory_utilisation", ctypes.c_uint32),
        ("throttled_sm_clock", ctypes.c_uint32),  # these three replace the values above while they aren't 0
        ("throttled_temperature", ctypes.c_uint32),
        ("throttled_power_mw", ctypes.c_uint32),
        ("memory_total", ctypes.c_uint64),
        ("memory_reserved", ctypes.c_uint64),
        ("memory_used", ctypes.c_uint64),
        ("since", ctypes.c_double),  # when the sums below were stored
        ("energy_mj", ctypes.c_double),
        ("reasons", ctypes.c_uint64),
        ("reason_seconds", ctypes.c_double * REASON_COUNT),
        ("pulse_reasons", ctypes.c_uint64),
        ("pulse_start", ctypes.c_double),
        ("pulse_seconds", ctypes.c_double),
        ("pulse_every", ctypes.c_double),  # 0 for a single one
        ("pulse_sm_clock", ctypes.c_uint32),
        ("settings", ctypes.c_char * SETTINGS_BYTES),  # JSON: settings of single features, by name
    )


# Capabilities that a board may lack, in the order of the bits of ``GpuRecord.lacks``.
CAPABILITIES = (
    "clocks", "temperature", "memory_temperature", "power", "power_limit", "energy", "utilisation", "memory",
    "reasons", "counters", "serial",
)  # fmt: skip

SIZE = ctypes.sizeof(Header) + MOST_GPUS * ctypes.sizeof(GpuRecord)


class StateFile:
    """The mapped file of a node.

    Raises:
        OSError: the file can't be opened or made.
        ValueError: the file holds no simulated GPUs.
    """

    def __init__(self, path: Path, *, create: bool = False) -> None:
        if create:
            # A new file under the old name: an exporter over the old one keeps what it has.
            path.unlink(missing_ok=True)
            path.write_bytes(bytes(SIZE))
        reason = f"{path} holds no simulated GPUs: make it with SimulatedGpus({str(path)!r})"
        if path.stat().st_size < SIZE:
            raise ValueError(reason)
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), SIZE)
        self.header = Header.from_buffer(self._map)
        self._records = [GpuRecord.from_buffer(self._map, _offset(index)) for index in range(MOST_GPUS)]
        self._copies: list[tuple[int, GpuRecord]] = [(-1, record) for record in self._records]  # by their sequence
        if not create and self.header.magic != MAGIC:
            raise ValueError(reason)

    def record(self, index: int) -> GpuRecord:
        """Return a GPU's record in place: all readers see its changes."""
        return self._records[index]

    def snapshot(self, index: int) -> GpuRecord:
        """Return a consistent copy of a GPU's record; the same object until the record changes.

        Raises:
            RuntimeError: a writer died halfway.
        """
        live, (sequence, copy) = self._records[index], self._copies[index]
        for _ in range(1000):
            before = live.sequence
            if before == sequence:
                return copy
            copy = GpuRecord.from_buffer_copy(self._map, _offset(index))
            if before % 2 == 0 and live.sequence == before:
                self._copies[index] = before, copy
                return copy
            time.sleep(0.0001)
        msg = f"the record of GPU {index} was left half written"
        raise RuntimeError(msg)

    @contextmanager
    def writing(self, index: int) -> Iterator[GpuRecord]:
        """Change a GPU's record while readers wait."""
        record = self.record(index)
        record.sequence += 1
        try:
            yield record
        finally:
            record.sequence += 1


def _offset(index: int) -> int:
    return ctypes.sizeof(Header) + index * ctypes.sizeof(GpuRecord)
