"""Peak dense FLOP/s of one GPU, by its exact name in NVML and torch, and by dtype.

Nothing is guessed: a GPU that isn't listed has no peak, so its run has FLOP/s but no MFU. Substring matching would give
"NVIDIA L40S" the L4's peak, and an MFU three times too high.
"""

from __future__ import annotations

from pyrometer_exporters.node.train.peak_table import PEAKS

# Names of types as trainers spell them, and the column of the table.
_COLUMNS = {
    "": "bf16", "bf16": "bf16", "bfloat16": "bf16", "fp16": "fp16", "float16": "fp16", "half": "fp16", "tf32": "tf32",
    "fp8": "fp8", "float8": "fp8", "mxfp8": "fp8", "fp4": "fp4", "mxfp4": "fp4", "nvfp4": "fp4",
}  # fmt: skip
# Block scaling came with FP4.
_NEEDS_FP4 = "mxfp8"
_ONLY_NVIDIA = "nvfp4"


def peak_flops(gpu_model: str, dtype: str) -> float | None:
    """Return the peak dense FLOP/s of one GPU, None where the model or dtype is unknown.

    Args:
        gpu_model: Its exact name.
        dtype: bf16, fp16, tf32, fp8, mxfp8, mxfp4 or nvfp4, in upper or lower case. Empty is bf16, or fp16 on a GPU
            without it (V100, T4).

    >>> peak_flops("NVIDIA H100 80GB HBM3", "bf16")
    989400000000000.0
    """
    row, name = PEAKS.get(gpu_model), dtype.lower()
    column = _COLUMNS.get(name)
    if row is None or column is None:
        return None
    if (name == _NEEDS_FP4 and row.fp4 is None) or (name == _ONLY_NVIDIA and not gpu_model.startswith("NVIDIA ")):
        return None
    tera = row.fp16 if not name and row.bf16 is None else getattr(row, column)
    return None if tera is None else tera * 1e12
