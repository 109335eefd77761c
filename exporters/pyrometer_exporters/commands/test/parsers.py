"""Read the output of test tools, of several versions each.

Each parser takes the text that a tool printed (:func:`reading.clean`) and returns a
:class:`~pyrometer_exporters.commands.test.reading.Reading`; foreign text is a ValueError, and one that covers nothing a
:class:`~pyrometer_exporters.commands.test.reading.NotMeasuredError`.
"""

from __future__ import annotations

import errno
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from pyrometer_exporters.commands.test.reading import (
    NotMeasuredError,
    Problem,
    Reading,
    joined,
    json_objects,
    losses,
    objects,
    short,
)
from pyrometer_exporters.node.active.kept import Result


def nvbandwidth(text: str) -> Reading:
    """Read ``nvbandwidth``, as text or as JSON (0.5 and later): per test case the slowest of its links, in GB/s.

    The text has ``Running host_to_device_memcpy_ce.`` and a matrix with a line of column numbers above it. The JSON is
    ``{"nvbandwidth": {"testcases": [{"name": "host_to_device_memcpy_ce", "status": "Passed", "bandwidth_matrix":
    [["26.03", "N/A"]]}]}}``; cells are texts up to 0.8 and a GPU's way to itself is N/A or 0.

    Raises:
        ValueError: It is nothing of the kind.
        NotMeasuredError: No test case ran.
    """
    bodies = [body for root in json_objects(text) if isinstance(body := root.get("nvbandwidth"), dict)]
    cases = [case for body in bodies for case in _cases_of_json(body)] or _cases_of_text(text)
    unable = [short(str(body["error"])) for body in bodies if body.get("error")]
    parts: dict[str, dict[str, float]] = {}
    gpus = 0
    for name, status, matrix in cases:
        if status not in ("Passed", "Waived"):
            unable.append(f"{name}: {status}")
        elif "latency" not in name:  # in ns, the less the better
            found = parts.setdefault(f"nvbandwidth_{name}", {})
            for part, value in _links(name, matrix):
                found[part] = min(value, found.get(part, math.inf))
            gpus = max([gpus, *map(len, matrix)])
    parts = {name: found for name, found in parts.items() if found}
    if not parts and not unable:
        raise NotMeasuredError("no test case ran") if cases else ValueError("it has no nvbandwidth output")
    results = tuple(Result(name, "GB/s", min(found.values())) for name, found in parts.items())
    return Reading(tuple(losses("\n".join(unable))), results, parts, gpus or None, "; ".join(unable))


Matrix = Sequence[Sequence[str]]
Case = tuple[str, str, Matrix]
"""Name, status, and matrix of a test case."""


def _cases_of_json(body: Mapping[str, Any]) -> list[Case]:
    found: list[Case] = []
    for case in objects(body.get("testcases")):
        rows = case.get("bandwidth_matrix")
        kept = [row for row in rows if isinstance(row, list)] if isinstance(rows, list) else []
        status = f"{case.get('status', '')} {case.get('error', '')}".strip()
        found.append((str(case.get("name", "?")), status, [[str(cell) for cell in row] for row in kept]))
    return found


# " 0     26.03     25.94       N/A": two decimals, so that a cell that is cut off is none.
_CELLS: Final = re.compile(r"^ *\d+ {2,}((?:(?:\d+\.\d\d|N/A)(?: +|$))+)$", re.MULTILINE)
_COLUMNS: Final = re.compile(r"^ +0(?: +\d+)*$", re.MULTILINE)


def _cases_of_text(text: str) -> list[Case]:
    found: list[Case] = []
    for block in re.split(r"^ *Running (?=\w)", text, flags=re.MULTILINE)[1:]:
        name, _, rest = block.partition(".")
        rows = [row.split() for row in _CELLS.findall(rest)]
        header = _COLUMNS.search(rest)
        columns = len(header[0].split()) if header else 0
        whole = rows and {len(row) for row in rows} == {columns} and len(rows) == (columns if _is_pair(name) else 1)
        reason = re.search(r"^(?:ERROR|Error|\[CUDA|NVML_ERROR|ASSERT| *Invalid).*", rest, re.MULTILINE)
        cut = "its output is cut off" if header or not re.search("^Waive", rest, re.MULTILINE) else "Waived"
        found.append((name, short(reason[0]) if reason else "Passed" if whole else cut, rows))
    return found


def _is_pair(name: str) -> bool:
    return name.startswith("device_to_device")


def _links(name: str, matrix: Matrix) -> Iterator[tuple[str, float]]:
    """Yield the value of each GPU, or of each pair of GPUs once in each direction."""
    for at, row in enumerate(matrix):
        for to, cell in enumerate(row):
            if cell != "N/A" and not (_is_pair(name) and at == to):
                yield f"GPU {min(at, to)} and GPU {max(at, to)}" if _is_pair(name) else f"GPU {to}", _number(cell)


# nccl-tests, src/common.cu: "#  Rank  8 Group  0 Pid   1885 on   worker-0 device  0 [0x8d] NVIDIA H100 80GB HBM3",
# before 2.13.9 without "Group  0".
RANK: Final = re.compile(r"#\s+Rank\s+(\d+)\s.*?\bPid\s+\d+ on\s+(\S+) device\s")


LEAST_SIZE: Final = 1 << 30
"""Bytes; smaller ones do not reach the bandwidth of NVLink or of eight links."""
LEAST_MESSAGE: Final = 1 << 16
"""Bytes, the default of perftest; smaller ones measure the rate of messages."""


def nccl(text: str) -> Reading:
    """Read ``all_reduce_perf`` of nccl-tests: the bus bandwidth at the largest size, out of place, in GB/s.

    A line is ``1073741824 268435456 float sum -1 4027.3 266.61 466.57 0 4029.1 266.50 466.37 0``: size, count, type,
    operation, root, time, algorithm's and bus bandwidth, wrong values, the same in place. Before 2.13 there was no
    ``root`` for all-reduce, and ``#wrong`` was an error such as ``0e+00``.

    Raises:
        ValueError: It has no such line.
        NotMeasuredError: It ends before its summary, or measured 0.
    """
    sizes, wrong = {}, set()
    iterations = "Per-Iteration Report" in text  # with other numbers behind each
    for line in text.splitlines():
        words = line.split()
        if len(words) < 8 or not (words[0].isdecimal() and words[1].isdecimal()):
            continue
        rooted = words[4] == "-1"
        rest = words[5:] if rooted else words[4:]
        sizes[int(words[0])] = _number(rest[2])
        if rooted and any(map(_is_positive, rest[3 : 4 if iterations else 8 : 4])):
            wrong.add(words[0])
    if not sizes:
        raise ValueError("it has no line of results")
    bounds = re.findall(r"Out of bounds values\s*: (\d+)", text)
    averages = re.findall(r"Avg bus bandwidth\s*:\s*(.*)", text)
    below = next((each.split()[0] for each in averages if "FAILED" in each), "")
    problems: tuple[Problem, ...] = ()
    if (count := sum(map(int, bounds))) or wrong:
        how = f"{count} wrong values" if count else f"wrong values at {joined(sorted(wrong, key=int))} bytes"
        problems = (Problem(f"{how}: data was corrupted"),)
    elif max(len(bounds), len(averages)) < max(1, len(re.findall(r"^# nThread", text, re.MULTILINE))):
        raise NotMeasuredError("its output ends before the summary")
    elif below:
        problems = (Problem(f"average {below} GB/s, less than NCCL_TESTS_MIN_BW"),)
    if not sizes[max(sizes)] and not problems:
        raise NotMeasuredError("it measured 0 GB/s")
    ranks = [int(number) for number, _ in RANK.findall(text)]
    gpus = max(ranks) + 1 if ranks else None
    partial = "" if max(sizes) >= LEAST_SIZE else f"its largest size is {max(sizes)} bytes, less than 1 GiB"
    result = Result("nccl_all_reduce", "GB/s", sizes[max(sizes)])
    return Reading(problems, (result,), gpus=gpus, partial=partial)


def _is_positive(cell: str) -> bool:
    try:
        return float(cell) > 0
    except ValueError:
        return False


def nccl_pair(text: str) -> Reading:
    """Read ``all_reduce_perf`` over two nodes, whose bandwidth is another one than that within a node.

    Raises:
        ValueError: It has no line of results.
        NotMeasuredError: It covers nothing.
    """
    found = nccl(text)
    results = tuple(each._replace(test="nccl_all_reduce_pair") for each in found.results)
    return replace(found, results=results, gpus=None)


# perftest, src/perftest_parameters.h, REPORT_FMT: "65536 5000 98.12 97.85 0.186712", with a column more for the use of
# the CPU; the peak is 0.00 with -D.
_BANDWIDTH: Final = re.compile(r"^\s*(\d+)\s+\d+\s+([\d.]+)\s+([\d.]+)\s+[\d.]+(?:\s+[\d.]+)?\s*$", re.MULTILINE)
# Its megabytes are of 2**20 bytes, and called so since 2024 (commit 1d202bb).
_GIGABITS: Final = {"Gb": 1.0, "MB": 8 * 2**20 / 1e9, "MiB": 8 * 2**20 / 1e9}


def ib_write_bw(text: str) -> Reading:
    """Read ``ib_write_bw`` of perftest (its siblings of reads and sends print the same): the average in Gb/s.

    Raises:
        ValueError: It has no such line: it is of latencies, or of something else.
        NotMeasuredError: It measured 0.
    """
    unit = re.search(r"BW average\[(Gb|MB|MiB)/sec\]", text)
    rows = _BANDWIDTH.findall(text)
    if not unit or not rows:
        raise ValueError("no column BW average" if not unit else "it has no line of results")
    largest = max(int(row[0]) for row in rows)
    value = min(_number(row[2]) for row in rows if int(row[0]) == largest) * _GIGABITS[unit[1]]
    if not value:
        raise NotMeasuredError("it measured 0 Gb/s")
    device = re.search(r"\bDevice\s*: (\S+)", text)
    parts = {"ib_write_bw": {device[1]: value}} if device else {}
    partial = "" if largest >= LEAST_MESSAGE else f"its largest message is {largest} bytes, less than 64 KiB"
    return Reading(results=(Result("ib_write_bw", "Gb/s", value),), parts=parts, partial=partial)


def burn(text: str) -> Reading:
    """Read gpu-fryer or gpu-burn: the slowest GPU in TFLOP/s, faults, and throttling.

    Raises:
        ValueError: It is neither.
        NotMeasuredError: It gives no speed, or 0.
    """
    text = "\n".join([text, *_lines_of_fryer(text)])
    if re.search(r"GPU #\d+:\s*[\d.]+ Gflops/s", text):
        return _fryer(text)
    if re.search(r"^\s*GPU \d+: (?:OK|FAULTY)\s*$", text, re.MULTILINE):
        return _gpu_burn(text)
    raise ValueError("neither gpu-burn's verdicts nor gpu-fryer's speeds")


# gpu-fryer, src/main.rs, BadResultReasons.
_FRYER_REASONS: Final = {
    "Throttling": "GPU is throttled",
    "LowFlops": "GPU is not performing as expected",
    "ZeroFlops": "GPU reported 0 FLOPS",
}


def _lines_of_fryer(text: str) -> Iterator[str]:
    """Yield the lines that gpu-fryer prints without ``--json`` (1.2 and later)."""
    for record in json_objects(text):
        for gpu in objects(record.get("gpus")) if record.get("type") == "results" else ():
            result = gpu["burn_result"]
            yield f"GPU #{result['gpu_idx']}: {_number(gpu['flops_avg']) / 1e9:.0f} Gflops/s"
            kinds = ("Throttling HW", "throttling_hw"), ("Thermal SW", "throttling_thermal_sw"), (
                "Thermal HW", "throttling_thermal_hw")  # fmt: skip
            yield ", ".join(f"{kind}: {'true' if result.get(key) else 'false'}" for kind, key in kinds)
        if record.get("type") == "problems":
            yield "Some GPUs are not healthy" if record.get("problems") else "All GPUs seem healthy"
        for problem in objects(record.get("problems")):
            reason = str(problem.get("reason"))
            yield f"  - GPU {problem.get('gpu_idx')} - {_FRYER_REASONS.get(reason, reason)}"


def _fryer(text: str) -> Reading:
    """Read ``GPU #0: 757961 Gflops/s (min: ...)``, ``Throttling HW: false, Thermal SW: ...``, and its own reasons.

    ``  - GPU 3 - GPU is throttled. ...`` are the reasons. One that could not work at all says so on standard error:
    ``Unable to burn GPU #3: DriverError(CUDA_ERROR_OUT_OF_MEMORY, ...)``.
    """
    found = re.findall(r"GPU #(\d+):\s*([\d.]+) Gflops/s", text)
    speeds = {f"GPU {gpu}": _number(value) / 1000 for gpu, value in found}  # the last line of each GPU
    died = {f"GPU {gpu}": words for gpu, words in re.findall(r"Unable to burn GPU #(\d+): (.*)", text)}
    if not any(speeds.values()):
        raise NotMeasuredError("; ".join(["all of its GPUs did 0 TFLOP/s", *map(short, list(died.values())[:1])]))
    problems, unable = [], []
    for gpu, words in re.findall(r"^\s*- GPU (\d+) - (.*)$", text, re.MULTILINE):
        part = f"GPU {gpu}"
        if part in died and not losses(died[part]):
            unable.append(f"{part}: {short(died[part])}")
        else:
            problems.append(Problem(f"{part}: {short(words).partition('. Check')[0]}", part))
    told = {(problem.part, "throttled" in problem.words) for problem in problems}
    part = ""
    for line in text.splitlines():
        named = re.match(r"\s*GPU #(\d+):", line)
        part = f"GPU {named[1]}" if named else part
        kinds = [kind for kind in ("Throttling HW", "Thermal SW", "Thermal HW") if f"{kind}: true" in line]
        if kinds and (part, True) not in told:
            problems.append(Problem(f"{part} is throttled: {', '.join(kinds)}", part))
    if not problems and not unable and not re.search(r"All GPUs seem healthy|Some GPUs are not healthy", text):
        raise NotMeasuredError("its output ends before its verdict")
    slow = [part for part, value in speeds.items() if not value and part not in {each.part for each in problems}]
    unable += [f"{part} did 0 TFLOP/s" for part in slow if part not in died]
    results = (Result("burn", "TFLOP/s", min(speeds.values())),)
    return Reading(tuple(problems), results, {"burn": speeds}, len(speeds), "; ".join(dict.fromkeys(unable)))


def _gpu_burn(text: str) -> Reading:
    """Read lines that are written over, and verdicts ``GPU 0: OK`` or ``GPU 0: FAULTY``.

    ``100.0%  proc'd: 5600 (51402 Gflop/s) - -1 (0 Gflop/s)   errors: 0 - -1  (DIED!)  temps: 56 C - -- ``. The
    count of one that died is no number of wrong results, and one that could not begin may be OK with 0 Gflop/s or be
    FAULTY (wilicc/gpu-burn 7, 52, 69, 123).
    """
    verdicts = re.findall(r"^\s*GPU (\d+): (OK|FAULTY)\s*$", text, re.MULTILINE)
    gpus = sorted({int(gpu) for gpu, _ in verdicts})
    faulty = {int(gpu) for gpu, verdict in verdicts if verdict == "FAULTY"}
    lines = [line for line in text.splitlines() if "Gflop/s)" in line]
    columns = [re.findall(r"\((\d+(?:\.\d+)?) Gflop/s\)", line) for line in lines]
    full = [row for row in columns if len(row) == len(gpus)]
    speeds = {f"GPU {at}": _number(value) / 1000 for at, value in enumerate(full[-1])} if full else {}
    marks = [re.findall(r"(-?\d+) *(\([A-Z]+!\))?", re.sub(r".*errors:|temps:.*", "", line)) for line in lines]
    words = re.search(r"Failure during compute: .*", text) or re.search(r"Couldn't init a GPU test: .*", text)
    why = short(words[0]) if words else ""
    problems, unable = [], [why] if why else []
    for gpu in sorted(faulty):
        seen = [row[gpu][1] for row in marks if len(row) > gpu]
        if "(WARNING!)" in seen or "(DIED!)" not in seen:
            problems.append(Problem(f"GPU {gpu} is faulty: wrong results", f"GPU {gpu}"))
        elif why.startswith("Failure") and "memory" not in why:
            problems.append(Problem(f"GPU {gpu}: {why}", f"GPU {gpu}"))
        else:
            unable.append(f"GPU {gpu} died")
    idle = [part for part in (f"GPU {gpu}" for gpu in gpus) if not speeds.get(part)]
    if idle and not problems and not unable:
        raise NotMeasuredError(f"it gives no speed of {joined(idle)}")
    results = (Result("burn", "TFLOP/s", min(speeds.values())),) if speeds else ()
    return Reading(tuple(problems), results, {"burn": speeds}, len(gpus), "; ".join(unable))


ERRORS_OF_DISKS: Final = frozenset({errno.EIO, errno.EILSEQ, errno.EUCLEAN, errno.ENODATA, errno.EREMOTEIO})
"""Error numbers of fio of a medium or of data; the others, such as ENOSPC and EINVAL, of what it may do."""


def fio(text: str) -> Reading:
    """Read ``fio --output-format=json``: bandwidth in GB/s; ``bw_bytes`` since 3.0, ``bw`` in KiB/s before.

    Raises:
        ValueError: It is nothing of the kind.
        NotMeasuredError: It read and wrote nothing.
    """
    jobs = [job for root in json_objects(text) for job in objects(root.get("jobs"))]
    if not jobs:
        raise ValueError("it has no jobs")
    problems, unable = [], []
    for job in (job for job in jobs if job.get("error")):
        number = int(_number(job["error"]))
        words = f"error {number} of {job.get('jobname', 'fio')}: {os.strerror(number)}"
        if number in ERRORS_OF_DISKS:
            problems.append(Problem(words))
        else:
            unable.append(words)
    results = []
    for way in ("read", "write"):
        speeds = [_fio_speed(job[way]) for job in jobs if isinstance(job.get(way), dict)]
        if sum(speeds) > 0:
            results.append(Result(f"fio_{way}", "GB/s", sum(speeds) / 1e9))
    if not (results or problems or unable):
        raise NotMeasuredError("it read and wrote nothing")
    return Reading(tuple(problems), tuple(results), unable="; ".join(unable))


def _fio_speed(data: Mapping[str, Any]) -> float:
    value = data["bw_bytes"] if "bw_bytes" in data else 1024 * _number(data.get("bw", 0))
    return _number(value)


def _number(value: Any) -> float:  # noqa: ANN401  whatever JSON can hold
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not 0 <= number < math.inf:
        raise ValueError(f"{str(value)[:40]!r} is not a number of 0 or more")
    return number
