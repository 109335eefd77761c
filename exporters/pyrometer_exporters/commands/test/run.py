"""Run one tool on idle GPUs, and judge what it printed."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import IO, NamedTuple

from pyrometer_exporters.commands.test import pairs
from pyrometer_exporters.commands.test.tools import LEAST, LEAST_IS_OF_GPUS, Asked, Tool
from pyrometer_exporters.node.active.kept import Tried
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
    with tempfile.TemporaryFile() as output:
        process = _started(words, output, subprocess.DEVNULL)
        try:
            status = process.wait(seconds)
        finally:
            process_group.end([process])
        if status != 0:
            raise subprocess.CalledProcessError(status, words)
        output.seek(0)
        lines = output.read(MOST_OUTPUT_BYTES).decode(errors="replace").splitlines()
    return [line.strip() for line in lines if line.strip()]


def _started(words: Sequence[str], output: IO[bytes], errors: IO[bytes] | int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, start_new_session=True)


def program_of(tool: Tool) -> str | None:
    """Return the path of the tool's program; None where none is installed.

    One that is launched may be in a container, where it is found by its name.
    """
    found = next((path for name in tool.programs if (path := shutil.which(name))), None)
    return tool.programs[0] if found is None and tool.launched else found


def run(tool: Tool, program: str, asked: Asked, seconds: float) -> tuple[int, str]:
    """Run the tool; return its exit status and output. It is ended with all its children after so many seconds.

    Raises:
        TimeoutError: It has not ended in time.
        OSError: It can't be started.
    """
    folder = _with_folder(tool, asked)
    with folder as directory, tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        words = [program, *tool.words(replace(asked, directory=directory))]
        if tool.launched:
            words = pairs.launched(asked.command, [asked.host, asked.peer], asked.gpus, words)
        process = _started(words, output, errors)
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise TimeoutError from None
        finally:
            process_group.end([process])
        output.seek(0)
        return status, output.read(MOST_OUTPUT_BYTES).decode(errors="replace")


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
    model: str,
    limits: Mapping[str, float],
    seconds: float,
    wall: Callable[[], float],
) -> Tried:
    """Run the tool and judge it: by its own word, its exit status, and the least values."""
    try:
        status, text = run(tool, program, asked, seconds)
    except TimeoutError:
        return Tried(ok=False, reason=f"no answer in {seconds:.0f} s: it hangs", at=wall())
    except OSError as error:
        return Tried(ok=None, reason=f"{error.filename or program}: {error.strerror}", at=wall())
    try:
        reading = tool.read(text)
        if tool.launched:
            pairs.check_ranks(text, asked.gpus)
    except (ValueError, KeyError, TypeError) as error:
        if status != 0:  # DCGM and gpu-burn end with a status of their own where they have found something
            return Tried(ok=False, reason=f"it exited with status {status} and printed no results", at=wall())
        return Tried(ok=None, reason=f"its output can't be read: {error}", at=wall())
    problems = [*reading.problems, *_too_low(reading.results, {**_least(model, asked.gpus), **limits})]
    if status != 0 and not problems:
        problems = [f"it exited with status {status}"]
    return Tried(not problems, "; ".join(problems), wall(), reading.results)


def _least(model: str, gpus: int) -> Mapping[str, float]:
    """Return the least values of a node of so many GPUs of this model, and of its fabric."""
    own = LEAST.get(model, {}) if gpus == LEAST_IS_OF_GPUS.get(model, 8) else {}
    return {**own, **pairs.least(gpus)}


def _too_low(results: Sequence[tuple[str, str, float]], least: Mapping[str, float]) -> list[str]:
    return [
        f"{test} is {value:.4g} {unit}, at least {least[test]:.4g} are expected"
        for test, unit, value in results
        if test in least and value < least[test]
    ]
