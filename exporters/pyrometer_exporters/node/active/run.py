"""Run one tool on idle GPUs, and judge what it printed."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from pyrometer_exporters.node.active.kept import Tried
from pyrometer_exporters.node.active.tools import LEAST, LEAST_IS_OF_GPUS, Asked, Tool
from pyrometer_kit import process_group

MOST_OUTPUT_BYTES = 16 << 20
NVIDIA_SMI_SECONDS = 30.0


class Gpus(NamedTuple):
    """The node's GPUs: models, and why they can't be tested now; empty if they can."""

    models: tuple[str, ...]
    busy: str


def gpus() -> Gpus:
    """Ask ``nvidia-smi`` which GPUs there are, and who uses them; in doubt they are in use."""
    try:
        told = _smi("--query-gpu=name,utilization.gpu", "--format=csv,noheader,nounits")
        pids = _smi("--query-compute-apps=pid", "--format=csv,noheader")
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


def _smi(*arguments: str) -> list[str]:
    done = subprocess.run(["nvidia-smi", *arguments], capture_output=True, text=True, check=True, errors="replace",
                          stdin=subprocess.DEVNULL, timeout=NVIDIA_SMI_SECONDS)  # fmt: skip
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]


def program_of(tool: Tool) -> str | None:
    """Return the path of the tool's program; None where none is installed."""
    return next((path for name in tool.programs if (path := shutil.which(name))), None)


def run(tool: Tool, program: str, asked: Asked, seconds: float) -> tuple[int, str]:
    """Run the tool; return its exit status and output. It is ended with all its children after so many seconds.

    Raises:
        TimeoutError: It has not ended in time.
        OSError: It can't be started.
    """
    folder = _with_folder(tool, asked)
    with folder as directory, tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        words = [program, *tool.words(replace(asked, directory=directory))]
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, start_new_session=True
        )
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
    except (ValueError, KeyError, TypeError) as error:
        if status != 0:  # DCGM and gpu-burn end with a status of their own where they have found something
            return Tried(ok=False, reason=f"it ended with status {status} and without results", at=wall())
        return Tried(ok=None, reason=f"its output can't be read: {error}", at=wall())
    least = LEAST.get(model, {}) if asked.gpus == LEAST_IS_OF_GPUS else {}
    problems = [*reading.problems, *_too_low(reading.results, {**least, **limits})]
    if status != 0 and not problems:
        problems = [f"it ended with status {status}"]
    return Tried(not problems, "; ".join(problems), wall(), reading.results)


def _too_low(results: Sequence[tuple[str, str, float]], least: Mapping[str, float]) -> list[str]:
    return [
        f"{test} is {value:.4g} {unit}, at least {least[test]:.4g} are expected"
        for test, unit, value in results
        if test in least and value < least[test]
    ]
