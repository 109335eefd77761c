"""Record the answers of a real NVIDIA driver at the C boundary and replay them: fixtures from machines with GPUs.

    python -m pyrometer_simulator.nvml.recording record FILE [-- flags of pyrometer-doctor]
    python -m pyrometer_simulator.nvml.recording play FILE [-- flags of pyrometer-doctor]

Both run the doctor: over the machine's own libnvidia-ml, or over the recording of one. The file is JSON: for each call
(function, arguments, thread) its return codes and what it wrote through its pointers, up to :data:`MAX_ANSWERS` of
them; replaying repeats the last one. The file contains the GPUs' serial numbers and UUIDs.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import json
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pynvml

from pyrometer_exporters.doctor.main import main as doctor

MAX_ANSWERS = 4
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

    def __getattr__(self, name: str) -> Callable[..., int]:
        function = getattr(self._library, name)

        def call(*arguments: Any) -> int:  # noqa: ANN401  ctypes values
            key = _key(name, arguments, self._pointers)
            code = int(function(*arguments))
            if name == _SAMPLE_ALLOC:
                self._pointers.forget(ctypes.cast(arguments[0]._obj, ctypes.c_void_p).value or 0)  # noqa: SLF001
            self._keep(key, [code, *(_output(target, self._pointers) for target in _targets(arguments))])
            if name == _FIELD_VALUES:
                for entry in _entries(arguments):
                    self._keep(_entry_key(key, entry), [entry.nvmlReturn, _output(entry, self._pointers)])
            return code

        return call

    def _keep(self, key: str, answer: Answer) -> None:
        answers = self.calls.setdefault(key, [])
        if len(answers) < MAX_ANSWERS:
            answers.append(answer)

    def save(self, path: Path) -> None:
        """Write the recording.

        Raises:
            OSError: the file can't be written.
        """
        path.write_text(json.dumps({"version": 1, "calls": self.calls}, indent=0), encoding="utf-8")


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
    """Return the recorded driver in a file.

    Raises:
        ValueError: the file can't be read or is no recording.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        msg = f"{path}: {error.strerror}"
        raise ValueError(msg) from None
    except ValueError:  # not JSON, not UTF-8
        document = None
    if not isinstance(document, dict) or not isinstance(document.get("calls"), dict):
        msg = f"{path} is no recording: make one with record on a machine that has GPUs"
        raise ValueError(msg)
    return Player(document["calls"])


def main(argv: Sequence[str] | None = None) -> int:
    """Record or replay; return the doctor's exit status."""
    program = "python -m pyrometer_simulator.nvml.recording"
    parser = argparse.ArgumentParser(prog=program, description=(__doc__ or "").split("\n")[0])
    parser.add_argument("what", choices=("record", "play"))
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument("doctor", nargs="*", metavar="-- FLAGS", help="flags of the doctor")
    flags = parser.parse_args(argv)
    try:
        return _play(flags.file, flags.doctor) if flags.what == "play" else _record(flags.file, flags.doctor)
    except (OSError, ValueError) as error:
        parser.error(str(error))


def _play(file: Path, arguments: Sequence[str]) -> int:
    with under_pynvml(load(file)):
        return doctor(arguments)


def _record(file: Path, arguments: Sequence[str]) -> int:
    file.touch()  # fail before the GPUs are queried if the file can't be written
    try:
        recorder = Recorder(ctypes.CDLL("libnvidia-ml.so.1"))
    except OSError as error:
        msg = f"no NVIDIA driver on this machine: {error}"
        raise ValueError(msg) from None
    with under_pynvml(recorder):
        status = doctor(arguments)
    recorder.save(file)
    return status


if __name__ == "__main__":
    sys.exit(main())
