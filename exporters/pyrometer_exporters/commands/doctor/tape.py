"""Record the answers of an NVIDIA driver at the C boundary as a tape, time its calls, and play the tape.

The tape is JSON: for each call (function, arguments, thread) its return codes and what it wrote through its pointers,
up to :data:`MAX_ANSWERS` of them; playing repeats the last one. It contains the GPUs' serial numbers and UUIDs.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import tarfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pynvml

FILE_NAME = "tape.json"
"""The name of the tape in a field report."""
MAX_TAPE_BYTES = 64 << 20
MAX_ANSWERS = 4
SAMPLER = "gpu-sampler"
"""The name of the sampler's threads (``node/gpu/sampler.py``)."""
MAX_READS = 2000
"""Noted reads of each GPU by the sampler."""
MAX_TIMED = 100
"""Timed calls of each function."""
_FIELD_VALUES = "nvmlDeviceGetFieldValues"
_NOT_SUPPORTED = 3
_SAMPLE_ALLOC, _SAMPLE_GETS = "nvmlGpmSampleAlloc", ("nvmlGpmSampleGet", "nvmlGpmMigSampleGet")
_NEW = "new"  # name of a sample that no GPU has filled yet
_FIRST_ADDRESS = 0x1000

Answer = list[Any]
"""The return code, then the bytes written through each pointer: hexadecimal, or ``["pointer", name]``."""
Recording = dict[str, list[Answer]]


class Pointers:
    """Names for the addresses of GPUs, event sets and samples, which differ in every process.

    A name consists of the thread that first got the address and a number, as the order of threads varies.
    """

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._addresses: dict[str, int] = {}
        self._numbers: dict[str, Iterator[int]] = {}

    def name(self, address: int) -> str:
        """Return the name of an address, assigning one if needed."""
        if address not in self._names:
            thread = threading.current_thread().name
            number = next(self._numbers.setdefault(thread, itertools.count()))
            self._names[address] = f"{thread}#{number}"
        return self._names[address]

    def forget(self, address: int) -> None:
        """Name an address as new: that of a sample just allocated, by any thread and for any GPU."""
        self._names[address] = _NEW

    def claim(self, address: int, owner: str) -> None:
        """Name a new sample after the GPU or GPU instance that fills it, as threads serve GPUs in any order."""
        if self._names.get(address, _NEW) == _NEW:
            number = next(self._numbers.setdefault(owner, itertools.count()))
            self._names[address] = f"{owner}/sample{number}"

    def new_address(self) -> int:
        """Return an address without a name."""
        address = self.address(f"{_NEW}{len(self._addresses)}")
        self.forget(address)
        return address

    def address(self, name: str) -> int:
        """Return an address for a name, the same each time."""
        address = self._addresses.setdefault(name, _FIRST_ADDRESS + len(self._addresses))
        self._names[address] = name
        return address


class Recorder:
    """Stand in for ``pynvml.nvmlLib``: forward every call to ``library`` and keep its answers."""

    def __init__(self, library: Any) -> None:  # noqa: ANN401  a CDLL or the simulated one
        self._library = library
        self._pointers = Pointers()
        self.calls: Recording = {}
        self.seconds: dict[str, list[float]] = {}
        """How long the first calls of each function took, up to :data:`MAX_TIMED`."""
        self.under_way: dict[int, tuple[str, float]] = {}
        """By thread, the call that has not returned and when it began, by ``time.monotonic``."""
        self.reads: dict[str, list[float]] = {}
        """By GPU, when the sampler's threads began a read, by ``time.monotonic``."""

    def __getattr__(self, name: str) -> Callable[..., int]:
        function = getattr(self._library, name)

        def call(*arguments: Any) -> int:  # noqa: ANN401  ctypes values
            key = _key(name, arguments, self._pointers)
            code = self._timed(name, key, function, arguments)
            if name == _SAMPLE_ALLOC:
                self._pointers.forget(ctypes.cast(arguments[0]._obj, ctypes.c_void_p).value or 0)  # noqa: SLF001
            self._keep(key, [code, *(_output(target, self._pointers) for target in _targets(arguments))])
            if name == _FIELD_VALUES:
                for entry in _entries(arguments):
                    self._keep(_entry_key(key, entry), [entry.nvmlReturn, _output(entry, self._pointers)])
            return code

        return call

    def _timed(self, name: str, key: str, function: Callable[..., int], arguments: Sequence[Any]) -> int:
        """Call the function; note how long that took, and while it lasts that it has not returned."""
        thread = threading.current_thread()
        start = time.monotonic()
        self.under_way[thread.ident or 0] = key, start
        try:
            return int(function(*arguments))
        finally:
            self.under_way.pop(thread.ident or 0, None)
            took = self.seconds.setdefault(name, [])
            if len(took) < MAX_TIMED:
                took.append(time.monotonic() - start)
            # An address that a sample had before a GPU got it keeps the sample's name: of no GPU in particular.
            if thread.name == SAMPLER and "/sample" not in key and len(self.reads.setdefault(key, [])) < MAX_READS:
                self.reads[key].append(start)

    def still_under_way(self) -> list[tuple[str, float]]:
        """Return the calls that have not returned, and when each began, by ``time.monotonic``."""
        return sorted(self.under_way.copy().values(), key=lambda call: call[1])

    def under_way_for(self, seconds: float) -> bool:
        """Return whether a call has not returned for so long."""
        return any(time.monotonic() - start >= seconds for _key, start in self.still_under_way())

    def _keep(self, key: str, answer: Answer) -> None:
        answers = self.calls.setdefault(key, [])
        if len(answers) < MAX_ANSWERS:
            answers.append(answer)

    def text(self) -> str:
        """Return the tape as JSON."""
        return json.dumps({"version": 1, "calls": dict(self.calls)}, indent=0)

    def save(self, path: Path) -> None:
        """Write the tape.

        Raises:
            OSError: the file can't be written.
        """
        path.write_text(self.text(), encoding="utf-8")


class Player:
    """Stand in for ``pynvml.nvmlLib``: answer as the recorded driver did; NOT_SUPPORTED to unrecorded calls."""

    def __init__(self, calls: Mapping[str, list[Answer]]) -> None:
        self._calls = calls
        self._pointers = Pointers()
        self._positions: dict[str, int] = {}
        self._functions = {key.partition("(")[0] for key in calls}

    def __getattr__(self, name: str) -> Callable[..., int]:
        if name not in self._functions:
            raise AttributeError(name)

        def call(*arguments: Any) -> int:  # noqa: ANN401  ctypes values
            key = _key(name, arguments, self._pointers)
            if name == _FIELD_VALUES:
                for entry in _entries(arguments):
                    self._fill([entry], self._next(_entry_key(key, entry)))
                answer = self._next(key)
                return int(answer[0]) if answer else _NOT_SUPPORTED
            return self._fill(_targets(arguments), self._next(key))

        return call

    def _next(self, key: str) -> Answer | None:
        answers = self._calls.get(key)
        if answers is None:
            return None
        number = self._positions[key] = self._positions.get(key, -1) + 1
        return answers[min(number, len(answers) - 1)]

    def _fill(self, targets: Sequence[Any], answer: Answer | None) -> int:
        if answer is None:
            for target in targets:
                if hasattr(target, "nvmlReturn"):
                    target.nvmlReturn = _NOT_SUPPORTED
            return _NOT_SUPPORTED
        code, *outputs = answer
        for target, output in zip(targets, outputs, strict=True):
            if isinstance(output, list):
                ctypes.c_void_p.from_address(ctypes.addressof(target)).value = (
                    self._pointers.new_address() if output[1] == _NEW else self._pointers.address(output[1])
                )
            else:
                data = bytes.fromhex(output).ljust(ctypes.sizeof(target), b"\0")
                ctypes.memmove(ctypes.addressof(target), data, ctypes.sizeof(target))
        return int(code)


def _key(name: str, arguments: Sequence[Any], pointers: Pointers) -> str:
    """Return a call's name that is the same in every process: ``nvmlDeviceGetClockInfo(worker-gpu-0#0,1)``."""
    if name in _SAMPLE_GETS:
        *owner, sample = arguments
        called = ",".join(text for argument in owner for text in _inputs(argument, pointers))
        pointers.claim(ctypes.cast(sample, ctypes.c_void_p).value or 0, called)
    inputs = [text for argument in arguments for text in _inputs(argument, pointers)]
    return f"{name}({','.join(inputs)})" if inputs else f"{name}()@{threading.current_thread().name}"


def _inputs(argument: Any, pointers: Pointers) -> Iterator[str]:  # noqa: ANN401
    if argument is None:  # a query of the size needed: its answer differs from that of a call with a buffer
        yield "null"
    elif isinstance(argument, int):
        yield str(argument)
    elif isinstance(argument, ctypes._Pointer):  # noqa: SLF001  the base of all pointer types
        yield pointers.name(ctypes.cast(argument, ctypes.c_void_p).value or 0)
    elif isinstance(argument, ctypes._SimpleCData):  # noqa: SLF001
        yield argument.value.decode() if isinstance(argument.value, bytes) else str(argument.value)
    elif hasattr(argument, "_obj") and hasattr(argument._obj, "sample1"):  # noqa: SLF001  nvmlGpmMetricsGet
        yield from _inputs(argument._obj.sample1, pointers)  # noqa: SLF001
        yield from _inputs(argument._obj.sample2, pointers)  # noqa: SLF001


def _targets(arguments: Sequence[Any]) -> list[Any]:
    """Return what a call writes to: targets of byref(), and buffers."""
    targets = [getattr(argument, "_obj", argument) for argument in arguments]
    return [t for a, t in zip(arguments, targets, strict=True) if t is not a or isinstance(a, ctypes.Array)]


def _output(target: Any, pointers: Pointers) -> Any:  # noqa: ANN401
    if isinstance(target, ctypes._Pointer):  # noqa: SLF001
        return ["pointer", pointers.name(ctypes.cast(target, ctypes.c_void_p).value or 0)]
    return ctypes.string_at(ctypes.addressof(target), ctypes.sizeof(target)).rstrip(b"\0").hex()


def _entries(arguments: Sequence[Any]) -> Any:  # noqa: ANN401
    _handle, count, values = arguments
    return values._obj[: count.value]  # noqa: SLF001


def _entry_key(call: str, entry: Any) -> str:  # noqa: ANN401
    # Each field is kept on its own: scrapes differ in the fields that they ask for together.
    return f"{call.partition(',')[0]})[{entry.fieldId},{entry.scopeId}]"


@contextmanager
def under_pynvml(library: object) -> Iterator[None]:
    """Let pynvml use ``library`` for the length of the block."""
    before = pynvml.nvmlLib
    try:
        pynvml._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001
        pynvml.nvmlLib = library
        yield
    finally:
        pynvml._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001
        pynvml.nvmlLib = before


def load(path: Path) -> Player:
    """Return the driver of a tape: a file of :meth:`Recorder.save`, or a field report with one in it.

    Raises:
        ValueError: the file can't be read or has no tape.
    """
    try:
        document = json.loads(_tape_in(path))
    except OSError as error:
        msg = f"{path}: {error.strerror}"
        raise ValueError(msg) from None
    except (ValueError, tarfile.TarError, EOFError, zlib.error):  # not JSON, not UTF-8, cut short
        document = None
    if not isinstance(document, dict) or not isinstance(document.get("calls"), dict):
        msg = f"{path} has no tape of a driver: make one with pyrometer-doctor --field-report on a machine with GPUs"
        raise ValueError(msg)
    return Player(document["calls"])


def _tape_in(path: Path) -> str:
    if not tarfile.is_tarfile(path):
        return path.read_text(encoding="utf-8")
    with tarfile.open(path) as archive:
        member = next((entry for entry in archive if entry.isfile() and entry.name.endswith(f"/{FILE_NAME}")), None)
        content = archive.extractfile(member) if member is not None else None
        return content.read(MAX_TAPE_BYTES).decode() if content is not None else ""
