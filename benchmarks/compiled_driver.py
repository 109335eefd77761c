"""Compile a driver library in C that answers at once, with the answers that the simulated driver gave.

The simulated driver is Python: it takes more CPU time than all of the exporter, keeps the other threads from running
while it is at it, and calls to it never leave Python. A real library is left and entered through ctypes, which gives
the interpreter's lock away and takes it back; that is a part of what a scrape costs, and here it is in the figure.
Values that moved while it was listened to move on: counters by as much again at each call, all else to and fro.
"""

from __future__ import annotations

import argparse
import ctypes
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pynvml

from pyrometer_exporters.framework.collector import Context
from pyrometer_exporters.node.gpu.binding import Pynvml
from pyrometer_exporters.node.gpu.collector import add_flags, build
from pyrometer_kit.clock import SystemClock
from pyrometer_simulator.nvml import SimulatedGpus, installed

_HANDLE = ctypes.POINTER(pynvml.struct_c_nvmlDevice_t)
_FIELDS, _WAIT = "nvmlDeviceGetFieldValues", "nvmlEventSetWait_v2"
_NOT_SUPPORTED, _TIMEOUT = 3, 10  # nvmlReturn_t
_UNSIGNED_LONG_LONG = 3  # nvmlValueType_t
_SCRAPES, _SCRAPE_SECONDS = 12, 15  # everything that is seldom read is read twice
_FIELD_BYTES = ctypes.sizeof(pynvml.c_nvmlFieldValue_t)

Key = tuple[object, ...]


@dataclass
class _Answer:
    """The answer to a call: its code, and the bytes written through each pointer argument, first and last."""

    code: int
    first: dict[int, bytes]
    last: dict[int, bytes]


class Listener:
    """Stand in for ``pynvml.nvmlLib``: forward every call and record its answer."""

    def __init__(self, library: Any) -> None:  # noqa: ANN401  the simulated one
        self._library = library
        self.answers: dict[str, dict[Key, _Answer]] = defaultdict(dict)
        self.fields: dict[Key, _Answer] = {}

    def __getattr__(self, name: str) -> Callable[..., int]:
        try:
            function = getattr(self._library, name)
        except AttributeError:  # a function of real libraries that few boards support
            self.answers[name][()] = _Answer(_NOT_SUPPORTED, {}, {})
            raise

        def call(*arguments: object) -> int:
            code = int(function(*arguments))
            if name == _FIELDS:
                self._remember_fields(*arguments)
            else:
                written = {place: _written(argument) for place, argument in enumerate(arguments)}
                found = {place: data for place, data in written.items() if data is not None}
                _remember(self.answers[name], tuple(map(_key, arguments)), code, found)
            return code

        return call

    def _remember_fields(self, handle: object, _count: object, values: Any) -> None:  # noqa: ANN401
        for entry in values._obj:  # noqa: SLF001  how a pointer made by byref() is followed
            key = _key(handle), entry.fieldId, entry.scopeId
            _remember(self.fields, key, entry.nvmlReturn, {0: bytes(entry)})


def _remember(answers: dict[Key, _Answer], key: Key, code: int, written: dict[int, bytes]) -> None:
    answers.setdefault(key, _Answer(code, written, written)).last = written


def _written(argument: Any) -> bytes | None:  # noqa: ANN401  what ctypes hands to C
    if isinstance(argument, ctypes.Array):
        return bytes(argument)
    pointed = getattr(argument, "_obj", None)
    return None if pointed is None else bytes(pointed)


def _key(argument: Any) -> object:  # noqa: ANN401  what ctypes hands to C
    """Return the arguments that distinguish calls: GPUs, numbers, texts; None for outputs and other handles."""
    if isinstance(argument, _HANDLE):
        return ctypes.c_void_p.from_buffer(argument).value or 0
    if isinstance(argument, ctypes.c_char_p):
        return argument.value
    number = getattr(argument, "value", argument)
    return number if isinstance(number, int) else None


class _Clock(SystemClock):
    """A clock that advances on demand, so that what is seldom read is read, and counters move."""

    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


def compile_driver(gpus: SimulatedGpus, sysfs: Path, folder: Path) -> Path:
    """Compile the library of a node with these GPUs.

    Raises:
        OSError: there is no C compiler ``cc``.
    """
    clock = _Clock()
    with installed(gpus.path, clock.monotonic) as simulated:
        pynvml.nvmlLib = listener = Listener(simulated)
        parser = argparse.ArgumentParser()
        add_flags(parser)
        collector = build(Context(parser.parse_args([]), clock, sysfs, folder, folder, None), Pynvml())
        for _ in range(_SCRAPES):
            clock.ahead += _SCRAPE_SECONDS
            for _ in collector.collect(time.monotonic() + 5):
                pass
        collector.close()
    return compiled(listener, folder)


def compiled(listener: Listener, folder: Path) -> Path:
    """Compile the recorded answers with the C compiler ``cc``.

    Raises:
        OSError: there is none.
    """
    source, library = folder / "instant.c", folder / "libnvidia-ml.so.1"
    source.write_text(_source(listener))
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", library, source], check=True)
    return library


def _source(listener: Listener) -> str:
    functions = [_function(name, answers) for name, answers in listener.answers.items() if name != _WAIT]
    return "\n".join([_HEAD, _fields(listener.fields), *functions])


_HEAD = f"""
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
typedef unsigned long W;
typedef unsigned char B;
static unsigned turn;
static void give(W to, const B *first, const B *last, unsigned size) {{
  memcpy((void *)to, ++turn & 8 ? first : last, size);
}}
int {_WAIT}(W set, W data, W milliseconds) {{
  if ((unsigned)milliseconds) usleep(1000 * (unsigned)milliseconds);
  return {_TIMEOUT};
}}
"""


def _function(name: str, answers: dict[Key, _Answer]) -> str:
    width = max(map(len, answers))
    letters = [f"a{place}" for place in range(width)]
    parameters = ", ".join(f"W {letter}" for letter in letters) or "void"
    body = [_branch(key, answer, letters) for key, answer in answers.items()]
    return f"int {name}({parameters}) {{\n{''.join(body)}  return 2;\n}}"


def _branch(key: Key, answer: _Answer, letters: list[str]) -> str:
    tests = [_test(letter, part) for letter, part in zip(letters, key, strict=False) if part is not None]
    gives = [
        f"static const B f{place}[] = {_bytes(answer.first[place])}, l{place}[] = {_bytes(data)}; "
        f"give({letters[place]}, f{place}, l{place}, {len(data)});"
        for place, data in answer.last.items()
        if answer.code == 0
    ]
    return f"  if ({' && '.join(tests) or '1'}) {{ {' '.join(gives)} return {answer.code}; }}\n"


def _test(letter: str, part: object) -> str:
    if isinstance(part, bytes):
        return f'!strcmp((char *){letter}, "{part.decode()}")'
    return f"(unsigned){letter} == {int(part) & 0xFFFFFFFF}u"  # type: ignore[call-overload]


def _bytes(data: bytes) -> str:
    return f"{{{','.join(map(str, data))}}}"


def _fields(fields: dict[Key, _Answer]) -> str:
    """Return all GPUs' field values as one sorted table in C; other fields are not supported."""
    rows = [_row(*key, answer) for key, answer in sorted(fields.items(), key=lambda item: item[0])]  # type: ignore[arg-type]
    return f"""
struct row {{ unsigned id[3]; W grows; B first[{_FIELD_BYTES}], last[{_FIELD_BYTES}]; }};
static struct row rows[] = {{{",".join(rows)}}};
static int compare(const void *a, const void *b) {{
  const unsigned *left = a, *right = ((const struct row *)b)->id;
  for (int n = 0; n < 3; n++)
    if (left[n] != right[n]) return left[n] < right[n] ? -1 : 1;
  return 0;
}}
int {_FIELDS}(W gpu, W count, W values) {{
  for (unsigned n = 0; n < (unsigned)count; n++) {{
    B *entry = (B *)values + n * {_FIELD_BYTES};
    unsigned *ids = (unsigned *)entry, id[] = {{gpu, ids[0], ids[1]}};
    struct row *found = bsearch(id, rows, sizeof rows / sizeof *rows, sizeof *rows, compare);
    if (!found) {{ ids[7] = {_NOT_SUPPORTED}; continue; }}
    give((W)entry, found->first, found->last, {_FIELD_BYTES});
    if (found->grows) {{
      *(W *)(found->last + {_FIELD_BYTES - 8}) += found->grows;
      memcpy(entry, found->last, {_FIELD_BYTES});
    }}
  }}
  return 0;
}}
"""


def _row(gpu: int, field: int, scope: int, answer: _Answer) -> str:
    first, last = (pynvml.c_nvmlFieldValue_t.from_buffer_copy(data[0]) for data in (answer.first, answer.last))
    grows = last.value.ullVal - first.value.ullVal if last.valueType == _UNSIGNED_LONG_LONG else 0
    texts = _bytes(answer.first[0]), _bytes(answer.last[0])
    return f"{{{{{gpu & 0xFFFFFFFF}u,{field},{scope}u}},{max(0, grows)}ul,{','.join(texts)}}}"
