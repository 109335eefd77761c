"""Run one tool on idle GPUs, and say whether it passed, failed, measured nothing, or could not be run."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, NamedTuple

from pyrometer_exporters.commands.test import judge, pairs
from pyrometer_exporters.commands.test.reading import (
    NotMeasuredError,
    Reading,
    clean,
    joined,
    losses,
    sentence,
)
from pyrometer_exporters.commands.test.tools import Asked, Tool
from pyrometer_exporters.node.active.kept import FAILED, NOT_MEASURED, OK, UNKNOWN, Tried
from pyrometer_kit import process_group

MOST_OUTPUT_BYTES = 16 << 20
NVIDIA_SMI_SECONDS = 30.0
LAUNCH_SECONDS = 60.0  # a job step waits for its turn


class Gpus(NamedTuple):
    """The node's GPUs: models, and why they can't be tested now; empty if they can."""

    models: tuple[str, ...]
    busy: str


def gpus(asked: Asked | None = None) -> Gpus:
    """Ask ``nvidia-smi`` which GPUs there are, and who uses them; in doubt they are in use.

    With ``asked`` it is that of the peer, through the launcher.
    """
    try:
        told = _smi(asked, "--query-gpu=name,utilization.gpu", "--format=csv,noheader,nounits")
        pids = _smi(asked, "--query-compute-apps=pid", "--format=csv,noheader")
    except subprocess.CalledProcessError as error:
        return Gpus((), f"nvidia-smi does not answer: {error.output or f'it exited with status {error.returncode}'}")
    except (OSError, subprocess.SubprocessError) as error:
        return Gpus((), f"nvidia-smi does not answer: {type(error).__name__}")
    rows = [line.rpartition(",") for line in told]
    models = tuple(model.strip() for model, _, _ in rows)
    loads = [load.strip() for _, _, load in rows]
    if not models:
        return Gpus((), "nvidia-smi lists no GPU")
    if pids:
        return Gpus(models, f"in use by process {', '.join(pids[:8])}")
    # "[N/A]" with MIG and "[Unknown Error]" of a GPU that answers no more are no idle GPU.
    busy = [f"utilization of GPU {number} is {load or 'missing'}" for number, load in enumerate(loads) if load != "0"]
    return Gpus(models, ", ".join(busy[:8]))


def gpus_of_both(tool: Tool, asked: Asked) -> Gpus:
    """Return the GPUs that a test uses, and why they can't be tested now: this node's, and then the peer's."""
    seen = gpus() if tool.gpus else Gpus((), "")
    if seen.busy or not tool.launched:
        return seen
    other = gpus(asked)
    if other.busy:
        return Gpus(seen.models, f"on {asked.peer}: {other.busy}")
    if other.models != seen.models:
        return Gpus(seen.models, f"{asked.peer} has other ones: {len(other.models)} {other.models[0]}")
    return seen


def _smi(asked: Asked | None, *arguments: str) -> list[str]:
    words, seconds = ["nvidia-smi", *arguments], NVIDIA_SMI_SECONDS
    if asked is not None:
        words, seconds = pairs.launched(asked.command, [asked.peer], 1, words), LAUNCH_SECONDS
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        process = _started(words, output, errors)
        try:
            status = process.wait(seconds)
        finally:
            process_group.end([process])
        if status != 0:
            raise subprocess.CalledProcessError(status, words, sentence(_text(errors), _text(output)))
        lines = _text(output).splitlines()
    return [line.strip() for line in lines if line.strip()]


def _started(
    words: Sequence[str], output: IO[bytes], errors: IO[bytes] | int, log: str = ""
) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "LC_ALL": "C"}  # a point in numbers, and words that can be looked up
    if log:
        environment |= {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT", "NCCL_DEBUG_FILE": log}
    return subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, start_new_session=True, env=environment
    )


def program_of(tool: Tool) -> str | None:
    """Return the path of the tool's program; None where none is installed.

    One that is launched may be in a container, where it is found by its name.
    """
    found = next((path for name in tool.programs if (path := shutil.which(name))), None)
    return tool.programs[0] if found is None and tool.launched else found


class Ran(NamedTuple):
    """How a program ended: its exit status (negative: the signal; None: it had to be killed), and what it printed."""

    status: int | None
    output: str
    errors: str
    log: str = ""


def run(tool: Tool, program: str, asked: Asked, seconds: float) -> Ran:
    """Run the tool. It is ended with all its children after so many seconds.

    Raises:
        OSError: It can't be started.
    """
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(_with_folder(tool, asked))
        output, errors = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(2))
        log = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pyrometer-test-"))) / "nccl"
        words = [program, *tool.words(replace(asked, directory=directory))]
        if tool.launched:
            words = pairs.launched(asked.command, [asked.host, asked.peer], asked.gpus, words)
        process = _started(words, output, errors, str(log) if tool.log else "")
        status = None
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            pass
        finally:
            process_group.end([process])
        with contextlib.suppress(OSError):
            return Ran(status, _text(output), _text(errors), clean(log.read_text(errors="replace")))
        return Ran(status, _text(output), _text(errors))


def _text(file: IO[bytes]) -> str:
    """Return the output, of a longer one the begin and the end: its devices are there and its result."""
    size, half = file.seek(0, os.SEEK_END), MOST_OUTPUT_BYTES // 2
    file.seek(0)
    text = file.read(half)
    file.seek(max(half, size - half))
    return clean((text + file.read(half)).decode(errors="replace"))


def _with_folder(tool: Tool, asked: Asked) -> contextlib.AbstractContextManager[str]:
    """Return a folder below ``--directory`` that is removed in the end with what a killed tool has left in it."""
    if not tool.folder:
        return contextlib.nullcontext(asked.directory)
    return tempfile.TemporaryDirectory(prefix="pyrometer-test-", dir=asked.directory, ignore_cleanup_errors=True)


def tried(
    tool: Tool,
    program: str,
    asked: Asked,
    *,
    models: Sequence[str],
    limits: Mapping[str, float],
    seconds: float,
    sysfs: Path,
    wall: Callable[[], float],
) -> Tried:
    """Run the tool and judge it.

    It has failed only by a loss that it or a driver named, or by a value that is too low. Whatever else went wrong says
    nothing of the hardware: its own words are kept, and it is no pass either.
    """
    try:
        ran = run(tool, program, asked, seconds)
    except OSError as error:
        return Tried(UNKNOWN, f"{error.filename or program}: {error.strerror}", wall(), tool=Path(program).name)
    reading, problems, state, words = Reading(), [], UNKNOWN, ""
    try:
        reading = tool.read(f"{ran.output}\n{ran.errors}")
        problems = list(reading.problems)
        if tool.launched:
            pairs.check_ranks(ran.output, asked.gpus)
        gpus = reading.gpus or asked.gpus
        if not reading.partial:
            problems += judge.problems(
                reading, models=models, gpus=gpus, nvls=_nvls(ran.log), limits=limits, sysfs=sysfs
            )
        state, words = _coverage(reading, asked)
    except NotMeasuredError as error:
        state, words = NOT_MEASURED, str(error)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        words = f"its output can't be read: {error}"
    problems = problems or losses(f"{ran.errors}\n{ran.output}\n{ran.log}")
    ended = _ended(ran, seconds)
    if problems:
        state, words = FAILED, "; ".join(problem.words for problem in problems)
    elif ended or reading.unable:
        told = ": ".join(filter(None, (ended, reading.unable or sentence(ran.errors, ran.output))))
        words = f"{words}; {told}" if state == NOT_MEASURED else told
        state = NOT_MEASURED if state == NOT_MEASURED and not reading.unable else UNKNOWN
    part = joined(dict.fromkeys(problem.part for problem in problems if problem.part))
    part = part or (asked.directory if tool.folder and state == FAILED else "")
    return Tried(state, words, wall(), reading.results, tool=Path(program).name, part=part)


def _coverage(reading: Reading, asked: Asked) -> tuple[str, str]:
    if reading.partial:
        return NOT_MEASURED, reading.partial
    if reading.software and asked.level > 1:
        return NOT_MEASURED, f"it has no test of hardware, which level {asked.level} is to run"
    if reading.gpus is not None and asked.gpus and reading.gpus < asked.gpus:
        return NOT_MEASURED, f"it covers {reading.gpus} of {asked.gpus} GPUs"
    zero = [part for parts in reading.parts.values() for part, value in parts.items() if not value]
    if zero or any(not result.value for result in reading.results):
        return NOT_MEASURED, f"it measured 0{' of ' if zero else ''}{joined(dict.fromkeys(zero))}"
    return OK, ""


def _ended(ran: Ran, seconds: float) -> str:
    """Return how it ended, where it did not end well."""
    if ran.status is None:
        return f"no answer in {seconds:.0f} s"
    if ran.status < 0:
        with contextlib.suppress(ValueError):
            return f"it was killed by {signal.Signals(-ran.status).name}"
    return f"it exited with status {ran.status}" if ran.status else ""


# nccl, src/transport/nvls.cc, since 2.17: its buffers; "NVLS multicast support is available" is of the hardware.
_NVLS = re.compile(r"NVLS comm 0x")


def _nvls(log: str) -> bool | None:
    """Return whether NCCL used NVLS, by its log; None without one, and where NCCL_ALGO chooses."""
    if "NCCL INFO" not in log or os.environ.get("NCCL_ALGO"):
        return None
    return bool(_NVLS.search(log)) and "Proceeding without NVLS" not in log
