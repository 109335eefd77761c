"""How many GPUs share the work, as a trainer's log tells when it begins. Each rank drives one GPU.

The scheduler's tasks are no such number: one task may have eight GPUs. Where no line tells, it is unknown.
"""

from __future__ import annotations

import re

from pyrometer.follow.logged import Logged, whole

# Megatron-LM and its forks; DeepSpeed's launcher, and under MPI; Lightning, and with it NeMo and litgpt.
_RANKS = re.compile(
    r"\busing world size: (\d+), data-parallel|\bdist_world_size=(\d+)\b|\blocal_rank=\d+, world_size=(\d+)\b"
    r"|\bdistributed processes registered\. Starting with (\d+) processes\b"
)
_TITAN = re.compile(r"\bBuilding device mesh with parallelism: (.*)")
_TITAN_SIZE = re.compile(r"\b(?:pp|dp_replicate|dp_shard|cp|tp)=(\d+)\b")
# Numbers of which the whole is made: Hugging Face's batch sizes, Composer's nodes.
_PIECES = re.compile(
    r"(?:^|>>)\W*(Instantaneous batch size per device|Gradient Accumulation steps|Total train batch size|num_nodes"
    r"|num_gpus_per_node)\b[^=:]*[=:] ([\d,]+)\s*$"
)
# A rate is printed with four digits or more: beyond a thousand GPUs it no longer tells their number.
_ROUNDING = 0.05


class World:
    """Reads along with the steps.

    Attributes:
        gpus: 0 until a line has told.
    """

    def __init__(self) -> None:
        self.gpus = 0
        self._pieces: dict[str, int] = {}

    def feed(self, line: str) -> None:
        """A line, clean."""
        if (found := _RANKS.search(line)) is not None:
            self._learn(whole(next(digits for digits in found.groups() if digits)))
        elif (found := _TITAN.search(line)) is not None:
            self._learn(_product(_TITAN_SIZE.findall(found[1])))
        elif (found := _PIECES.search(line)) is not None:
            self._pieces[found[1]] = whole(found[2].replace(",", "")) or 0
            self._learn(self._composed())

    def step(self, said: Logged) -> None:
        """A step's line that has its tokens, its time and one GPU's rate."""
        tokens = (said.samples or 0.0) * (said.sequence or 0.0)
        if tokens and said.seconds and said.gpu_tokens_per_second:
            share = tokens / said.seconds / said.gpu_tokens_per_second
            if abs(share - round(share)) <= _ROUNDING:
                self._learn(round(share))

    def _learn(self, gpus: int | None) -> None:
        if gpus:
            self.gpus = gpus

    def _composed(self) -> int | None:
        get = self._pieces.get
        each = get("Instantaneous batch size per device", 0) * get("Gradient Accumulation steps", 0)
        total = get("Total train batch size", 0)
        if each and total % each == 0:
            return total // each
        return get("num_nodes", 0) * get("num_gpus_per_node", 0)


def _product(sizes: list[str]) -> int:
    product = 1 if sizes else 0
    for size in sizes:
        product *= whole(size) or 0
    return product
