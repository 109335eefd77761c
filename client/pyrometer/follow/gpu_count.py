"""The number of GPUs that share the work, as a trainer's log prints it at its start. Each rank drives one GPU.

The scheduler's number of tasks is no substitute: one task may have eight GPUs. Without such a line it is unknown.
"""

from __future__ import annotations

import re

from pyrometer.follow.log_line import LoggedStep, parse_step

# Megatron-LM and its forks; DeepSpeed's launcher, and under MPI; Lightning, and so NeMo and litgpt; llm.c; fairseq.
_RANKS = re.compile(
    r"\busing world size: (\d+), data-parallel|\bdist_world_size=(\d+)\b|\blocal_rank=\d+, world_size=(\d+)\b"
    r"|\bdistributed processes registered\. Starting with (\d+) processes\b"
    r"|\* num_processes=(\d+) and total_batch_size=\d+$|\| training on (\d+) (?:GPUs|devices)\b"
)
_TITAN = re.compile(r"\bBuilding device mesh with parallelism: (.*)")
_TITAN_SIZE = re.compile(r"\b(?:pp|dp_replicate|dp_shard|cp|tp)=(\d+)\b")
# Numbers that have to be combined: Hugging Face's batch sizes, Composer's nodes.
_FACTORS = re.compile(
    r"(?:^|>>)\W{0,20}(Instantaneous batch size per device|Gradient Accumulation steps|Total train batch size|num_nodes"
    r"|num_gpus_per_node)\b[^=:]*[=:] ([\d,]+)\s*$"
)
# A rate is printed with four digits or more: beyond a thousand GPUs it no longer determines their number.
_ROUNDING = 0.05


class GpuCount:
    """Reads every line of a log, and computes the number of GPUs from steps where no line prints it.

    Attributes:
        gpus: 0 until it is known.
    """

    def __init__(self) -> None:
        self.gpus = 0
        self._factors: dict[str, int] = {}

    def feed(self, line: str) -> None:
        """Read a clean line."""
        if (match := _RANKS.search(line)) is not None:
            self._set(parse_step(next(digits for digits in match.groups() if digits)))
        elif (match := _TITAN.search(line)) is not None:
            self._set(_product(_TITAN_SIZE.findall(match[1])))
        elif (match := _FACTORS.search(line)) is not None:
            self._factors[match[1]] = parse_step(match[2].replace(",", "")) or 0
            self._set(self._combined())

    def feed_step(self, step: LoggedStep) -> None:
        """Divide the job's rate by that of one GPU, if the line has tokens, time and that rate."""
        tokens = (step.samples or 0.0) * (step.sequence or 0.0)
        if tokens and step.seconds and step.gpu_tokens_per_second:
            quotient = tokens / step.seconds / step.gpu_tokens_per_second
            if abs(quotient - round(quotient)) <= _ROUNDING:
                self._set(round(quotient))

    def _set(self, gpus: int | None) -> None:
        if gpus:
            self.gpus = gpus

    def _combined(self) -> int | None:
        get = self._factors.get
        per_gpu = get("Instantaneous batch size per device", 0) * get("Gradient Accumulation steps", 0)
        total = get("Total train batch size", 0)
        if per_gpu and total % per_gpu == 0:
            return total // per_gpu
        return get("num_nodes", 0) * get("num_gpus_per_node", 0)


def _product(sizes: list[str]) -> int:
    product = 1 if sizes else 0
    for size in sizes:
        product *= parse_step(size) or 0
    return product
