"""GPU memory: error correction, and rows that were or could not be replaced."""

from __future__ import annotations

from pyrometer_exporters.node.checks.check import Problem, Verdict, absent, judged
from pyrometer_exporters.node.checks.gpus import (
    ECC_MODE,
    ECC_UNCORRECTED,
    REMAP_FAILURE,
    REMAP_PENDING,
    RETIRED_PENDING,
    GpuFacts,
)
from pyrometer_exporters.node.checks.node import Node
from pyrometer_exporters.node.checks.parts import EARLIER
from pyrometer_exporters.node.checks.subjects.gpu import gpu_check, identity, name_of, over_gpus, usual


def _ecc_mode(node: Node, gpus: list[GpuFacts]) -> Verdict:
    """Judge by what is stated, what was, and what its likes have: workstations' boards are delivered with ECC off."""
    modes = {identity(gpu): int(gpu.fields[ECC_MODE] != 0) for gpu in gpus if ECC_MODE in gpu.fields}
    if not modes:
        return absent("these boards have no ECC")
    stated, learned = node.expected.get("ecc"), node.expected.learned("gpu_ecc")
    problems = []
    for gpu in gpus:
        if modes.get(identity(gpu)) != 0 or stated is False:
            continue
        peers = [modes[identity(other)] for other in gpus if other.model == gpu.model and identity(other) in modes]
        if stated or "gpu_ecc_mode" in node.listed or usual(peers) == 1:
            problems.append(Problem(f"{name_of(gpu)} has ECC off"))
        elif learned.get(identity(gpu)):
            problems.append(Problem(f"{name_of(gpu)} has ECC off, and had it on {EARLIER}", learned=True))
    return judged(problems, gpu_ecc=modes)


def _uncorrected(node: Node, gpus: list[GpuFacts]) -> Verdict:
    counts = [(gpu, int(gpu.fields[ECC_UNCORRECTED])) for gpu in gpus if ECC_UNCORRECTED in gpu.fields]
    if not counts:
        return absent("these boards count no ECC errors")
    limit = node.limit("gpu_ecc_uncorrected", "errors")
    return judged([f"{name_of(gpu)} has {count} uncorrected ECC errors" for gpu, count in counts if count > limit])


def _remap(_node: Node, gpus: list[GpuFacts]) -> Verdict:
    pending, failure, retired = (_with(gpus, field) for field in (REMAP_PENDING, REMAP_FAILURE, RETIRED_PENDING))
    if pending is None and failure is None and retired is None:
        return absent("these boards don't replace rows or pages")
    problems = [
        f"{name_of(gpu)}: a row could not be remapped, so the GPU qualifies for replacement" for gpu in failure or ()
    ]
    problems += [f"{name_of(gpu)}: rows are waiting for a reset to be remapped" for gpu in pending or ()]
    return judged(problems + [f"{name_of(gpu)}: pages are waiting for a reboot to be retired" for gpu in retired or ()])


def _with(gpus: list[GpuFacts], field: int) -> list[GpuFacts] | None:
    """Return the GPUs on which a field is set; None if none has it."""
    reporting = [gpu for gpu in gpus if field in gpu.fields]
    return [gpu for gpu in reporting if gpu.fields[field]] if reporting else None


CHECKS = (
    gpu_check(
        "gpu_ecc_mode",
        "ECC is on, where it is stated, was on the day before, or most of the GPUs have it",
        "NVML: field 1",
        "Imbue",
        "Turn it on (`nvidia-smi -e 1`) and reset the GPU.",
        over_gpus(_ecc_mode),
    ),
    gpu_check(
        "gpu_ecc_uncorrected",
        "no uncorrected memory error since the driver was loaded",
        "NVML: field 4",
        "gcm check-nvidia-smi ecc_uncorrected (0), Imbue (0)",
        "Drain the node and reset the GPU; open a hardware case if they come back.",
        over_gpus(_uncorrected),
        limits={"errors": 0},
    ),
    gpu_check(
        "gpu_row_remap",
        "no memory row is waiting to be remapped, and no remapping failed",
        "NVML: fields 144, 145 and 31",
        "gcm check-nvidia-smi row_remap, gpud remapped-rows",
        "Pending: drain and reset the GPU. Failed: replace the GPU.",
        over_gpus(_remap),
    ),
)
