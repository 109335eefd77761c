"""Peak dense FLOP/s of one GPU, by its exact name in NVML and torch, and by dtype.

Nothing is guessed: a GPU that isn't listed has no peak, so its run has FLOP/s but no MFU. Substring matching would give
"NVIDIA L40S" the L4's peak, and an MFU three times too high. Numbers are the vendor's dense tensor peaks
(half of the "with sparsity" figures), TFLOP/s.
"""

from __future__ import annotations

# name: (bf16 and fp16, tf32, fp8); None where the part has no such tensor path.
_TERA: dict[str, tuple[float, float | None, float | None]] = {
    "NVIDIA A100-SXM4-40GB": (312, 156, None),
    "NVIDIA A100-SXM4-80GB": (312, 156, None),
    "NVIDIA A100-PCIE-40GB": (312, 156, None),
    "NVIDIA A100 80GB PCIe": (312, 156, None),
    "NVIDIA A800-SXM4-80GB": (312, 156, None),
    "NVIDIA L4": (121, 60, 242),
    "NVIDIA L40": (181, 90.5, None),
    "NVIDIA L40S": (362, 183, 733),
    "NVIDIA H100 80GB HBM3": (989.4, 494.7, 1979),
    "NVIDIA H100 PCIe": (756, 378, 1513),
    "NVIDIA H100 NVL": (835, 418, 1671),
    "NVIDIA H800": (989.4, 494.7, 1979),
    "NVIDIA GH200 480GB": (989.4, 494.7, 1979),
    "NVIDIA H200": (989, 494.5, 1979),
    "NVIDIA H200 NVL": (835, 418, 1671),
    "NVIDIA H20": (148, 74, 296),
    "NVIDIA B200": (2250, 1125, 4500),
    "NVIDIA GB200": (2500, 1250, 5000),
}
_COLUMN = {"bf16": 0, "bfloat16": 0, "fp16": 0, "float16": 0, "": 0, "tf32": 1, "fp8": 2}


def peak_flops(gpu_model: str, dtype: str) -> float | None:
    """Return the peak dense FLOP/s of one GPU, None where the model or dtype is unknown. An empty dtype is bf16.

    >>> peak_flops("NVIDIA H100 80GB HBM3", "bf16")
    989400000000000.0
    """
    row = _TERA.get(gpu_model)
    column = _COLUMN.get(dtype.lower())
    tera = None if row is None or column is None else row[column]
    return None if tera is None else tera * 1e12
