"""Judge whether a run's MFU is known and believable, and if not, why."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from pyrometer_exporters.node.train.description import Meta
from pyrometer_exporters.node.train.rings import Header

log = logging.getLogger(__name__)

# The best that published runs reach on dense bf16 is about 0.55 to 0.65 (MegaScale, arXiv 2402.15627, table 2), and
# what a matrix multiplication alone reaches of the peak is 0.73 to 0.87 (ml-engineering, compute/accelerator/README.md,
# Maximum Achievable Matmul FLOPS). Beyond these the FLOPs, the peak or the step's time are wrong.
SUSPECT_MFU = 0.75
IMPOSSIBLE_MFU = 0.9
# So many batches after the last one that was refused, the run's MFU is believed again.
_REMEMBERED = 100
# A single batch may look fast: the step before it was slow, and the GPU's queue was full.
_SUSPECT_IN_A_ROW = 10


@dataclass(slots=True)
class MfuCheck:
    """Judges each batch of a rank."""

    judged: int = 0
    last_refused: int = -_REMEMBERED
    suspect_in_a_row: int = 0
    warned: bool = False

    def accept(self, mfu: float | None, meta: Meta) -> float | None:
        """Return a batch's MFU, None where it can't be true."""
        if mfu is None:
            return None
        self.judged += 1
        self.suspect_in_a_row = self.suspect_in_a_row + 1 if mfu > SUSPECT_MFU else 0
        if self.suspect and not self.warned:
            self.warned = True
            log.warning(
                "run %s, attempt %s: an MFU of %.2f is more than GPUs reach: check flops_per_token (%s), "
                "tokens_per_step (%s), dtype (%s) and world_size (%s)",
                meta.run, meta.attempt, mfu, meta.flops_per_token, meta.tokens_per_step, meta.texts["dtype"],
                meta.world_size,
            )  # fmt: skip
        if mfu <= IMPOSSIBLE_MFU:
            return mfu
        self.last_refused = self.judged
        return None

    @property
    def suspect(self) -> bool:
        """True while the last batches in a row are beyond SUSPECT_MFU."""
        return self.suspect_in_a_row >= _SUSPECT_IN_A_ROW

    @property
    def refused(self) -> bool:
        """True while one of the last batches was beyond IMPOSSIBLE_MFU."""
        return self.judged - self.last_refused < _REMEMBERED


def unknown_reasons(meta: Meta, header: Header, peak: float | None, check: MfuCheck) -> Iterator[str]:
    """Yield what a run's MFU lacks; nothing where it is known."""
    if not header.flops_extra:
        if meta.flops_per_token is None:
            yield "flops"
        if meta.tokens_per_step is None and not header.tokens_extra:
            yield "tokens"
    if not meta.world_size:
        yield "gpus"
    if peak is None:
        yield "peak"
    if check.refused:
        yield "implausible"
