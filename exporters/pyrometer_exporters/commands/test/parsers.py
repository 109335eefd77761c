"""Read the output of test tools, of several versions each.

Each parser takes the text that a tool printed and returns a :class:`Reading`; foreign text is a ValueError.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pyrometer_exporters.node.active.kept import Result


class Reading(NamedTuple):
    """The content of a tool's output: what it calls failed, in words, and what it measured."""

    problems: tuple[str, ...]
    results: tuple[Result, ...]


def dcgm(text: str) -> Reading:
    """Read ``dcgmi diag -j``.

    DCGM 2 and 3 have ``{"DCGM GPU Diagnostic": {"test_categories": [...]}}`` with ``gpu_id`` or ``gpu_ids`` (DCGM,
    nvvs/include/NvvsCommon.h); DCGM 4 has ``"DCGM Diagnostic"``, with ``entity_id`` and warnings as objects.

    Raises:
        ValueError: It is nothing of the kind, or names no test.
    """
    root = _object(text)
    body = root.get("DCGM Diagnostic", root.get("DCGM GPU Diagnostic"))
    if not isinstance(body, dict):
        raise ValueError("it has no DCGM Diagnostic")
    if "runtime_error" in body:
        return Reading((f"dcgm: {body['runtime_error']}",), ())
    tests = [test for category in _list(body, "test_categories") for test in _list(category, "tests")]
    if not tests:
        raise ValueError("it names no test")
    failed, ran = [], 0
    for test in tests:
        for result in _list(test, "results"):
            status = str(result.get("status", "")).lower()
            ran += status in ("pass", "fail", "warn")
            if status == "fail":
                failed.append(_dcgm_problem(str(test.get("name", "?")), result))
    if not ran:
        raise ValueError("all of its tests were skipped")
    return Reading(tuple(failed), ())


def _dcgm_problem(name: str, result: Mapping[str, Any]) -> str:
    gpu = next((result[key] for key in ("gpu_id", "gpu_ids", "entity_id") if key in result), None)
    warnings = result.get("warnings") or []
    words = [str(each.get("warning", each) if isinstance(each, dict) else each)
             for each in (warnings if isinstance(warnings, list) else [warnings])]  # fmt: skip
    place = "" if gpu is None else f" on GPU {gpu}"
    return f"{name}{place} failed{': ' if words else ''}{'; '.join(words[:3])}"


def nvbandwidth(text: str) -> Reading:
    """Read ``nvbandwidth -j``: per test case the slowest of its links, in GB/s.

    ``{"nvbandwidth": {"testcases": [{"name": "host_to_device_memcpy_ce", "status": "Passed", "bandwidth_matrix":
    [["26.03", "N/A"]]}]}}``; cells are texts up to 0.8 and a GPU's way to itself is N/A or 0.

    Raises:
        ValueError: It is nothing of the kind, or no test case ran.
    """
    body = _object(text).get("nvbandwidth")
    if not isinstance(body, dict):
        raise ValueError("it has no nvbandwidth output")
    problems = [str(body["error"])] if "error" in body else []
    results = []
    for case in _list(body, "testcases"):
        name, status = str(case.get("name", "?")), str(case.get("status", ""))
        cells = [cell for row in _rows(case) for cell in _numbers(row) if cell > 0]
        if cells:
            results.append(Result(f"nvbandwidth_{name}", "GB/s", min(cells)))
        if status not in ("Passed", "Waived"):
            problems.append(f"{name}: {status}")
    if not results and not problems:
        raise ValueError("no test case ran")
    return Reading(tuple(problems), tuple(results))


def nccl(text: str) -> Reading:
    """Read ``all_reduce_perf`` of nccl-tests: the bus bandwidth at the largest size, out of place, in GB/s.

    A line is ``1073741824 268435456 float sum -1 4027.3 266.61 466.57 0 4029.1 266.50 466.37 0``: size, count, type,
    operation, root, time, algorithm's and bus bandwidth, wrong values, the same in place. Before 2.13 there was no
    ``root`` for all-reduce, and ``#wrong`` was an error such as ``0e+00``.

    Raises:
        ValueError: It has no such line.
    """
    sizes = {}
    for line in text.splitlines():
        words = re.sub(r"^\[\d+,\d+\]<stdout>:", "", line).split()
        if len(words) >= 8 and words[0].isdecimal() and words[1].isdecimal():
            rest = words[5:] if len(words) in (9, 13) else words[4:]
            sizes[int(words[0])] = _number(rest[2])
    if not sizes:
        raise ValueError("it has no line of results")
    wrong = re.search(r"Out of bounds values : (\d+)", text)
    problems = (f"{wrong[1]} wrong values: data was corrupted",) if wrong and int(wrong[1]) else ()
    return Reading(problems, (Result("nccl_all_reduce", "GB/s", sizes[max(sizes)]),))


def nccl_pair(text: str) -> Reading:
    """Read ``all_reduce_perf`` over two nodes, whose bandwidth is another one than that within a node.

    Raises:
        ValueError: It has no line of results.
    """
    found = nccl(text)
    return Reading(found.problems, tuple(each._replace(test="nccl_all_reduce_pair") for each in found.results))


def ib_write_bw(text: str) -> Reading:
    """Read ``ib_write_bw --report_gbits`` of perftest: the average bandwidth at the largest size, in Gb/s.

    ``65536 5000 98.12 97.85 0.186712``: bytes, iterations, peak, average, messages.

    Raises:
        ValueError: It has no such line, or was not asked for gigabits.
    """
    if "BW average[Gb/sec]" not in text:
        raise ValueError("no column BW average[Gb/sec]")
    rows = re.findall(r"^\s*(\d+)\s+\d+\s+([\d.]+)\s+([\d.]+)\s+[\d.]+\s*$", text, re.MULTILINE)
    if not rows:
        raise ValueError("it has no line of results")
    return Reading((), (Result("ib_write_bw", "Gb/s", float(max(rows, key=lambda row: int(row[0]))[2])),))


def burn(text: str) -> Reading:
    """Read gpu-fryer or gpu-burn: the slowest GPU in TFLOP/s, faults, and throttling.

    gpu-fryer: ``GPU #0: 757961 Gflops/s (min: 741070.84, max: 781752.77, dev: 757960.97)`` and ``Throttling HW: false,
    Thermal SW: false, Thermal HW: false``. gpu-burn: ``100.0%  proc'd: 5600 (51402 Gflop/s)   errors: 0   temps: 56 C``
    and ``GPU 0: OK`` or ``GPU 0: FAULTY``.

    Raises:
        ValueError: It is neither.
    """
    verdicts = re.findall(r"^\s*GPU (\d+): (OK|FAULTY)\s*$", text, re.MULTILINE)
    fryer = dict(re.findall(r"GPU #(\d+):\s*([\d.]+) Gflops/s", text))  # the last line of each GPU
    if not verdicts and not fryer:
        raise ValueError("neither gpu-burn's verdicts nor gpu-fryer's speeds")
    problems = [f"GPU {gpu} is faulty: wrong results" for gpu, verdict in verdicts if verdict == "FAULTY"]
    speeds = [float(each) for each in fryer.values()]
    if not fryer:
        last = [line for line in text.splitlines() if "Gflop/s)" in line][-1:]
        speeds = [float(each) for line in last for each in re.findall(r"\((\d+(?:\.\d+)?) Gflop/s\)", line)]
    problems += [
        f"throttled: {kind}" for kind in ("Throttling HW", "Thermal SW", "Thermal HW") if f"{kind}: true" in text
    ]
    results = (Result("burn", "TFLOP/s", min(speeds) / 1000),) if speeds else ()
    return Reading(tuple(problems), results)


def fio(text: str) -> Reading:
    """Read ``fio --output-format=json``: bandwidth in GB/s; ``bw_bytes`` since 3.0, ``bw`` in KiB/s before.

    Raises:
        ValueError: It is nothing of the kind.
    """
    jobs = _list(_object(text), "jobs")
    if not jobs:
        raise ValueError("it has no jobs")
    problems = [f"error {job['error']} of {job.get('jobname', 'fio')}" for job in jobs if job.get("error")]
    results = []
    for way in ("read", "write"):
        speeds = [_fio_speed(job[way]) for job in jobs if isinstance(job.get(way), dict)]
        if sum(speeds) > 0:
            results.append(Result(f"fio_{way}", "GB/s", sum(speeds) / 1e9))
    return Reading(tuple(problems), tuple(results))


def _fio_speed(data: Mapping[str, Any]) -> float:
    value = data["bw_bytes"] if "bw_bytes" in data else 1024 * _number(data.get("bw", 0))
    return _number(value)


def _object(text: str) -> Mapping[str, Any]:
    start = text.find("{")  # tools print warnings before and after it
    if start < 0:
        raise ValueError("no JSON object")
    try:
        found: Mapping[str, Any] = json.JSONDecoder().raw_decode(text, start)[0]
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return found


def _list(data: Any, key: str) -> list[Mapping[str, Any]]:  # noqa: ANN401  whatever JSON can hold
    found = data.get(key) if isinstance(data, dict) else None
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _rows(case: Mapping[str, Any]) -> list[Any]:
    found = case.get("bandwidth_matrix")
    return found if isinstance(found, list) else []


def _numbers(row: Any) -> Iterator[float]:  # noqa: ANN401  whatever JSON can hold
    for cell in row if isinstance(row, list) else []:
        if str(cell) != "N/A":
            yield _number(cell)


def _number(value: Any) -> float:  # noqa: ANN401  whatever JSON can hold
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not 0 <= number < math.inf:
        raise ValueError(f"{str(value)[:40]!r} is not a number of 0 or more")
    return number
