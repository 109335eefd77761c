"""Requests for NVML field values, and their answers: two hundred values of a GPU in one call.

The binding's structures run Python for each member of each entry, so entries are packed and unpacked at once. An answer
of c_nvmlFieldValue_t is 40 bytes an entry::

    byte   0        4        8          16           24         28          32
           fieldId  scopeId  timestamp  latencyUsec  valueType  nvmlReturn  value (its type's first bytes)

A GPU's types and return codes are the same at nearly every scrape: which entries hold a value, and how wide it is, is
found out once for each such pattern (:class:`_Plan`), and each width is then read as a column of the whole answer.
"""

from __future__ import annotations

import ctypes
import struct
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import compress

import pynvml

from pyrometer_exporters.node.gpu.nvml import ABOUT_THE_WHOLE_GPU, FieldKey, NvmlError

_ENTRY, _WORD = struct.Struct("=IIqqIIQ"), struct.Struct("=Q")
# The formats of memoryview.cast for each NVML_VALUE_TYPE_* (nvml.h, nvmlValueType_t): double to unsigned short.
_FORMATS = "dIQQqiH"
_DOUBLE = 0
_LEAST_DOUBLE_BITS = 1 << 52  # of the smallest normal double, 2e-308
# NVML_FI_DEV_ECC_SBE_VOL_TOTAL to ..._DBE_AGG_CBU: unsigned long long whatever valueType a driver reports (NVIDIA
# bug 2032468). R545 reports none for the memory's temperature (bug 4300930), so it reads as a double, too small to be
# one.
_ECC_COUNTER_FIELDS = range(3, 29)
_MOST_REQUESTS = _MOST_PLANS = 64

Call = Callable[[object, object], int]
"""Answers a request: the number of entries and a pointer to them; returns an nvmlReturn_t."""


class _Plan:
    """How to read the answers with one pattern of types and return codes."""

    def __init__(self, keys: Sequence[FieldKey], pattern: Sequence[int]) -> None:
        self._keys = keys
        self._doubles: list[int] = []
        """The entries that are called doubles."""
        by_format: defaultdict[str, set[int]] = defaultdict(set)
        for index, (key, (kind, code)) in enumerate(zip(keys, map(_kind_and_code, pattern), strict=True)):
            field = key[0] if isinstance(key, tuple) else key
            if code in ABOUT_THE_WHOLE_GPU:
                raise NvmlError(code, f"field {field}")
            if code == pynvml.NVML_SUCCESS and kind == _DOUBLE:
                self._doubles.append(index)
            elif code == pynvml.NVML_SUCCESS and kind < len(_FORMATS):
                by_format["Q" if field in _ECC_COUNTER_FIELDS else _FORMATS[kind]].add(index)
        # The formats in the answer, each with whether an entry has it.
        self._columns = [(form, [n in entries for n in range(len(keys))]) for form, entries in by_format.items()]

    def read(self, answer: bytearray) -> dict[FieldKey, float]:
        """Return the values of an answer by key."""
        values_by_key: dict[FieldKey, float] = {}
        for form, has in self._columns:
            column = memoryview(answer).cast(form)  # type: ignore[call-overload]
            width = _ENTRY.size // column.itemsize
            values = column[32 // column.itemsize :: width].tolist()
            values_by_key.update(compress(zip(self._keys, values, strict=True), has))
        for index in self._doubles:
            value = _double(answer, index)
            if value is not None:
                values_by_key[self._keys[index]] = value
        return values_by_key


class FieldRequests:
    """The requests that were made so far, and the plans for reading their answers. For any thread."""

    def __init__(self) -> None:
        self._requests: dict[tuple[FieldKey, ...], bytes] = {}
        self._plans: dict[tuple[tuple[FieldKey, ...], tuple[int, ...]], _Plan] = {}

    def ask(self, keys: tuple[FieldKey, ...], call: Call) -> tuple[int, dict[FieldKey, float]]:
        """Ask for these fields; return the call's return code, and the values if it succeeded.

        Raises:
            NvmlError: an entry says that no call on the GPU will do.
        """
        # A new one each time: a driver may leave an entry as it was.
        answer = bytearray(self._requests.get(keys) or self._requested(keys))
        entries = (pynvml.c_nvmlFieldValue_t * len(keys)).from_buffer(answer)
        code = call(ctypes.c_int32(len(keys)), ctypes.byref(entries))
        if code != pynvml.NVML_SUCCESS:
            return code, {}
        pattern = tuple(memoryview(answer).cast("Q")[3 :: _ENTRY.size // 8].tolist())
        plan = self._plans.get((keys, pattern)) or self._planned(keys, pattern)
        return code, plan.read(answer)

    def _requested(self, keys: tuple[FieldKey, ...]) -> bytes:
        if len(self._requests) >= _MOST_REQUESTS:
            self._requests.clear()
        ids = (key if isinstance(key, tuple) else (key, 0) for key in keys)
        request = self._requests[keys] = b"".join(_ENTRY.pack(*key, 0, 0, 0, 0, 0) for key in ids)
        return request

    def _planned(self, keys: tuple[FieldKey, ...], pattern: tuple[int, ...]) -> _Plan:
        if len(self._plans) >= _MOST_PLANS:
            self._plans.clear()
        plan = self._plans[keys, pattern] = _Plan(keys, pattern)
        return plan


def _kind_and_code(word: int) -> tuple[int, int]:
    kind, code = struct.unpack("=II", _WORD.pack(word))
    return kind, code


def _double(answer: bytearray, index: int) -> float | None:
    """Return the value of an entry that is called a double; None if the driver never filled it in.

    A driver may call an entry good that it left as it was: so it is for ECC counters while ECC is off (NVIDIA bug
    2009232).
    """
    field, _, at, took, _, _, bits = _ENTRY.unpack_from(answer, index * _ENTRY.size)
    if not at and not took:
        return None
    if field in _ECC_COUNTER_FIELDS or bits < _LEAST_DOUBLE_BITS:
        return int(bits)
    return float(struct.unpack("=d", _WORD.pack(bits))[0])
