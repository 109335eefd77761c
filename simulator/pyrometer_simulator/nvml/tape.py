"""Answers of a real NVIDIA driver, recorded at the C boundary and played back: fixtures from machines that have a GPU.

    python -m pyrometer_simulator.nvml.tape record FILE [-- flags of pyrometer-doctor]
    python -m pyrometer_simulator.nvml.tape play FILE [-- flags of pyrometer-doctor]

Both run the doctor: over the machine's own libnvidia-ml, or over what it answered then. The file is JSON: for each call
(function, arguments, thread) its return codes and what it wrote through its pointers, the first :data:`MOST_ANSWERS` of
them; the last is given again and again. It holds the GPUs' serial numbers and UUIDs.
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

MOST_ANSWERS = 4
_FIELD_VALUES = "nvmlDeviceGetFieldValues"
_NOT_SUPPORTED = 3
_FIRST_ADDRESS = 0x1000

Answer = list[Any]
"""Return code, then what was written through each pointer: hexadecimal, or ``["pointer", name]``."""
Tape = dict[str, list[Answer]]


class Pointers:
    """Names for the addresses of GPUs, event sets and samples, which differ in every process.

    A name is that of the thread that first got the address, and a number: threads run in another order each time.
    """

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._addresses: dict[str, int] = {}
        self._numbers: dict[str, Iterator[int]] = {}

    def name(self, address: int) -> str:
        """The name of an address, perhaps a new one."""
        if address not in self._names:
            thread = threading.current_thread().name
            number = next(self._numbers.setdefault(thread, itertools.count()))
            self._names[address] = f"{thread}#{number}"
        return self._names[address]

    def address(self, name: str) -> int:
        """An address for a name, always the same."""
        address = self._addresses.setdefault(name, _FIRST_ADDRESS + len(self._addresses))
        self._names[address] = name
        return address


class Recorder:
    """In place of ``pynvml.nvmlLib``: hands every call on to ``library`` and keeps what it gave."""

    def __init__(self, library: Any) -> None:  # noqa: ANN401  a CDLL or the simulated one
        self._library = library
        self._pointers = Pointers()
        self.tape: Tape = {}

    def __getattr__(self, name: str) -> Callable[..., int]:
        function = getattr(self._library, name)

        def call(*arguments: Any) -> int:  # noqa: ANN401  ctypes values
            key = _key(name, arguments, self._pointers)
            code = int(function(*arguments))
            self._keep(key, [code, *(_written(target, self._pointers) for target in _targets(arguments))])
            if name == _FIELD_VALUES:
                for entry in _entries(arguments):
                    self._keep(_entry_key(key, entry), [entry.nvmlReturn, _written(entry, self._pointers)])
            return code

        return call

    def _keep(self, key: str, answer: Answer) -> None:
        answers = self.tape.setdefault(key, [])
        if len(answers) < MOST_ANSWERS:
            answers.append(answer)

    def save(self, path: Path) -> None:
        """Write the tape."""
        path.write_text(json.dumps({"version": 1, "calls": self.tape}, indent=0), encoding="utf-8")


class Player:
    """In place of ``pynvml.nvmlLib``: answers as the recorded driver did; NOT_SUPPORTED to what it was never asked."""

    def __init__(self, tape: Mapping[str, list[Answer]]) -> None:
        self._tape = tape
        self._pointers = Pointers()
        self._asked: dict[str, int] = {}
        self._functions = {key.partition("(")[0] for key in tape}

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
        answers = self._tape.get(key)
        if answers is None:
            return None
        number = self._asked[key] = self._asked.get(key, -1) + 1
        return answers[min(number, len(answers) - 1)]

    def _fill(self, targets: Sequence[Any], answer: Answer | None) -> int:
        if answer is None:
            for target in targets:
                if hasattr(target, "nvmlReturn"):
                    target.nvmlReturn = _NOT_SUPPORTED
            return _NOT_SUPPORTED
        code, *written = answer
        for target, found in zip(targets, written, strict=True):
            if isinstance(found, list):
                ctypes.c_void_p.from_address(ctypes.addressof(target)).value = self._pointers.address(found[1])
            else:
                data = bytes.fromhex(found).ljust(ctypes.sizeof(target), b"\0")
                ctypes.memmove(ctypes.addressof(target), data, ctypes.sizeof(target))
        return int(code)


def _key(name: str, arguments: Sequence[Any], pointers: Pointers) -> str:
    """``nvmlDeviceGetClockInfo(worker-gpu-0#0,1)``: the call as it is in every process."""
    shown = [text for argument in arguments for text in _shown(argument, pointers)]
    return f"{name}({','.join(shown)})" if shown else f"{name}()@{threading.current_thread().name}"


def _shown(argument: Any, pointers: Pointers) -> Iterator[str]:  # noqa: ANN401
    if argument is None:  # asks only how much room is needed: another answer than that of a call with room
        yield "null"
    elif isinstance(argument, int):
        yield str(argument)
    elif isinstance(argument, ctypes._Pointer):  # noqa: SLF001  the base of all pointer types
        yield pointers.name(ctypes.cast(argument, ctypes.c_void_p).value or 0)
    elif isinstance(argument, ctypes._SimpleCData):  # noqa: SLF001
        yield argument.value.decode() if isinstance(argument.value, bytes) else str(argument.value)
    elif hasattr(argument, "_obj") and hasattr(argument._obj, "sample1"):  # noqa: SLF001  nvmlGpmMetricsGet
        yield from _shown(argument._obj.sample1, pointers)  # noqa: SLF001
        yield from _shown(argument._obj.sample2, pointers)  # noqa: SLF001


def _targets(arguments: Sequence[Any]) -> list[Any]:
    """What a call writes to: what byref() points to, and buffers."""
    found = [getattr(argument, "_obj", argument) for argument in arguments]
    return [t for a, t in zip(arguments, found, strict=True) if t is not a or isinstance(a, ctypes.Array)]


def _written(target: Any, pointers: Pointers) -> Any:  # noqa: ANN401
    if isinstance(target, ctypes._Pointer):  # noqa: SLF001
        return ["pointer", pointers.name(ctypes.cast(target, ctypes.c_void_p).value or 0)]
    return ctypes.string_at(ctypes.addressof(target), ctypes.sizeof(target)).rstrip(b"\0").hex()


def _entries(arguments: Sequence[Any]) -> Any:  # noqa: ANN401
    _handle, count, values = arguments
    return values._obj[: count.value]  # noqa: SLF001


def _entry_key(call: str, entry: Any) -> str:  # noqa: ANN401
    # Which fields are asked together differs from scrape to scrape.
    return f"{call.partition(',')[0]})[{entry.fieldId},{entry.scopeId}]"


@contextmanager
def under_pynvml(library: object) -> Iterator[None]:
    """Have pynvml use ``library`` for the length of the block."""
    before = pynvml.nvmlLib
    try:
        pynvml._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001
        pynvml.nvmlLib = library
        yield
    finally:
        pynvml._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001
        pynvml.nvmlLib = before


def load(path: Path) -> Player:
    """A recorded driver; ValueError where the file can't be read or is none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        msg = f"{path}: {error.strerror}"
        raise ValueError(msg) from None
    except ValueError:  # not JSON, not UTF-8
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("calls"), dict):
        msg = f"{path} is no recording: make one with record on a machine that has GPUs"
        raise ValueError(msg)
    return Player(found["calls"])


def main(argv: Sequence[str] | None = None) -> int:
    """Record or play; the doctor's exit status."""
    parser = argparse.ArgumentParser(prog="python -m pyrometer_simulator.nvml.tape", description=__doc__.split("\n")[0])
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
    file.touch()  # where it can't be written, say so before the GPUs are asked
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
