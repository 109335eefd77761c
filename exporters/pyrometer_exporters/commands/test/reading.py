"""Hold the content of a test tool's output: losses that it named, values by part, and why there is nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from pyrometer_exporters.node.active.kept import Result


class NotMeasuredError(ValueError):
    """The tool ran, and its output covers nothing or not all: neither a pass nor a failure."""


class Problem(NamedTuple):
    """A loss in words, and the part that it is of: ``GPU 3``, ``GPU 0 and GPU 1``, ``mlx5_0``; empty if not named."""

    words: str
    part: str = ""


@dataclass(frozen=True)
class Reading:
    """The content of a tool's output.

    Attributes:
        problems: losses that the tool itself named.
        results: what it measured.
        parts: the values behind a result, by part, in the unit of the result.
        gpus: the number of GPUs that were measured; None where the output does not say.
        unable: the tool's own words for what it could not do.
        partial: why its values are not to be compared with any other.
        software: whether it is of software only, and measured no hardware.
    """

    problems: tuple[Problem, ...] = ()
    results: tuple[Result, ...] = ()
    parts: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    gpus: int | None = None
    unable: str = ""
    partial: str = ""
    software: bool = False


_COLOUR: Final = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|\([AB0])")
# Prefixes of launchers: the time ("kubectl logs --timestamps", containerd, journald), the pod, the
# process ("[1,0]<stdout>:" of mpirun, "[gpu-1:0]: " of torchrun, "[0] " of Hydra, "0: " of srun --label).
_LAUNCHER: Final = re.compile(
    r"^(?:\d{4}-\d\d-\d\dT[\d:.,]+(?:Z|[+-]\d\d:?\d\d) (?:std(?:out|err) [FP] )?"
    r"|[A-Z][a-z]{2} [ \d]\d [\d:]{8} \S+ \S+\[\d+\]: |\[pod/\S+\] |\[default\d+\]: ?"
    r"|\[[\w.@-]+[,:]\d+\](?:<\w+>)?:? ?|\[\d+\] | *\d+: )+",
    re.MULTILINE,
)
_BLANK: Final = re.compile(r"\n[ \t\n]*\n")
# The same name before each line: pdsh, clush, docker compose.
_NAME: Final = re.compile(r"(?!Error|Warning)[\w.-]+(?:: | +\| )")

LOSSES: Final = (
    "uncorrectable ECC error",  # CUDA_ERROR_ECC_UNCORRECTABLE, 214 (cuda.h)
    "uncorrectable NVLink error",  # CUDA_ERROR_NVLINK_UNCORRECTABLE, 220
    "Invalid access of peer GPU memory over nvlink or a hardware error",  # CUDA_ERROR_CONTAINED, 721
    "GPU is lost",  # NVML_ERROR_GPU_IS_LOST (nvml.h)
    "fallen off the bus",  # Xid 79
    "CUDA_ERROR_(?:(?:ECC|NVLINK)_UNCORRECTABLE|CONTAINED)",  # the same by name, as gpu-fryer prints them
)
"""What drivers say of broken hardware, whichever tool prints it. Whatever is not here is no loss."""
# Not "0 uncorrectable ECC errors", and not "Uncorrectable ECC errors: 0", as tools that count print them.
_LOSS: Final = re.compile(rf"(?<!\b0 )(?<!\bno )(?:{'|'.join(LOSSES)})(?!\w* *[:=] *0\b)", re.IGNORECASE)
# NCCL's "host:pid:tid [3] NCCL WARN" has the GPU in brackets; NVML's has its address.
_GPU: Final = re.compile(
    r"\bGPU ?((?:[\da-f]{4,8}:)[\da-f]{2}:[\da-f]{2}\.\d)|\bGPU ?#?(\d{1,3})\b(?!:\d)|\bdevice (\d+)\b|\[(\d+)\] NCCL",
    re.IGNORECASE,
)

COULD_NOT_START: Final = (
    # A program that is not there, or does not fit this machine.
    r"command not found", r"No such file or directory", r"error while loading shared libraries", r"symbol lookup error",
    r"cannot execute", r"Exec format error", r"version `\S+' not found", r"Permission denied",
    r"Operation not permitted",
    r"(?:unrecognized|invalid|unknown|unexpected) (?:option|argument|command)", r"Invalid Arguments",
    # Slurm: src/srun and src/common/slurm_errno.c.
    r"srun: .*queued and waiting for resources", r"Requested nodes? (?:are busy|configuration is not available)",
    r"Unable to (?:create step|allocate resources|confirm allocation)", r"Invalid node name specified",
    r"Invalid account or account/partition", r"Invalid job id", r"Job/step already completing",
    r"More processors requested than permitted", r"Unable to contact slurm controller",
    # ssh(1), and Open MPI (help-plm-rsh.txt, help-rmaps-base.txt, help-plm-base.txt).
    r"ssh: (?:connect to host|Could not resolve)", r"Host key verification failed", r"Could not resolve hostname",
    r"not enough slots available", r"ORTE was unable to reliably start", r"PRTE (?:has lost|was unable)",
    r"unable to (?:locate|find) the specified executable",
    # Kubernetes.
    r"pods? \"\S+\" not found", r"unable to upgrade connection", r"container not found",
    r"deployments? \"\S+\" not found",
    # DCGM (dcgmlib/dcgm_structs.h, dcgmi/Diag.cpp).
    r"Unable to connect to host engine", r"unable to establish a connection", r"embedded host engine",
    r"diagnostic (?:instance )?is already running", r"homogeneous group of GPUs", r"while DCGM is paused",
    # CUDA before it has a device to test; NCCL and nccl-tests (src/util.cu).
    r"CUDA driver version is insufficient", r"no kernel image is available", r"forward compatibility was attempted",
    r"system not yet initialized", r"Invalid number of GPUs: \d+ requested", r"invalid device ordinal",
    r"out of memory",    r"Incompatible NCCL versions",
    # perftest (src/perftest_communication.c, src/perftest_resources.c).
    r"Couldn't connect to", r"Unable to (?:init the socket|open file descriptor)", r"IB device .* not found",
    r"Did not detect devices", r"Couldn't get context for the device",
)  # fmt: skip
"""Sentences of tools and launchers that could not begin: they say nothing about the hardware."""
_COULD_NOT_START: Final = re.compile("|".join(COULD_NOT_START), re.IGNORECASE)
_SAYS_WHY: Final = re.compile(
    r"error|fail|unable|can't|cannot|couldn't|could not|not found|denied|refused|invalid|abort|panicked|warn",
    re.IGNORECASE,
)
# Lines of mpirun, NCCL and shells that are no reason.
_NOISE: Final = re.compile(r"NCCL INFO|Authorization required|^[-=*+|#\s]*$|note: run with `RUST_BACKTRACE")
MOST_CHARACTERS: Final = 240
MOST_SEARCHED: Final = 1 << 16
MOST_TRIES: Final = 100  # an output that is cut off in the middle has a few levels that are open
_OBJECT: Final = re.compile(r"^[ \t]*\{", re.MULTILINE)


def clean(text: str) -> str:
    """Return the text without colours and what launchers put before each line; a line that is written over is one."""
    text = _BLANK.sub("\n", _COLOUR.sub("", text).replace("\r", "\n"))
    text = _LAUNCHER.sub("", text)
    lines = [line for line in text.splitlines() if line.strip()]
    name = _NAME.match(lines[0]) if len(lines) > 2 else None
    if name and all(line.startswith(name[0].rstrip()) for line in lines):
        text = _LAUNCHER.sub("", "\n".join(line.removeprefix(name[0]) for line in lines))
    return text


def gpu_in(words: str) -> str:
    """Return the GPU that a sentence names, as ``GPU 3``; empty where it names none."""
    gpu = _GPU.search(words)
    return f"GPU {next(group for group in gpu.groups() if group)}" if gpu else ""


def losses(text: str) -> list[Problem]:
    """Return what drivers said of broken hardware, each sentence once of each GPU."""
    found: dict[tuple[str, str], Problem] = {}
    for line in text.splitlines():
        if (loss := _LOSS.search(line)) is not None:
            found.setdefault((loss[0].lower(), gpu_in(line)), Problem(short(line), gpu_in(line)))
    return list(found.values())


def could_not_start(text: str) -> str:
    """Return the sentence of a tool or launcher that could not begin; empty where there is none."""
    return next(
        (short(line) for line in text.splitlines() if _COULD_NOT_START.search(line) and not _NOISE.search(line)), ""
    )


def sentence(errors: str, output: str) -> str:
    """Return the tool's own words for what went wrong: the first line with a reason, else the last one."""
    ends = [text if len(text) < 2 * MOST_SEARCHED else text[:MOST_SEARCHED] + text[-MOST_SEARCHED:]
            for text in (errors, output)]  # fmt: skip
    texts = [[line.strip() for line in text.splitlines() if not _NOISE.search(line)] for text in ends]
    lines = [line for text in texts for line in text]
    for tells in (_COULD_NOT_START, _SAYS_WHY):
        for line in lines:
            if tells.search(line):
                return short(line)
    return next((short(text[-1]) for text in texts if text), "")


def json_objects(text: str) -> Iterator[Mapping[str, Any]]:
    """Yield the JSON objects in an output that begin a line; tools print other lines before, between and after them."""
    at, left = 0, MOST_TRIES
    while left and (start := _OBJECT.search(text, at)) is not None:
        try:
            content, at = json.JSONDecoder().raw_decode(text, start.end() - 1)
        except (json.JSONDecodeError, RecursionError):  # cut off, or the brace of another text
            at, left = start.end(), left - 1
        else:
            yield content


def objects(value: object) -> list[Mapping[str, Any]]:
    """Return the objects in a list of JSON; nothing for anything else."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def short(line: str) -> str:
    """Return a line that fits into a label."""
    line = " ".join(line.split())
    return line if len(line) <= MOST_CHARACTERS else f"{line[: MOST_CHARACTERS - 3]}..."


def joined(parts: Mapping[str, object] | list[str]) -> str:
    """Return names as a list for people, the first eight."""
    names = list(parts)
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
