"""Peak dense FLOP/s of GPUs by their exact names, with sources, and of one GPU by its name and dtype.

Names are NVML's: the list of products in NVIDIA's open-gpu-kernel-modules README at 595.45.04; older ones are the
driver's own. AMD's are torch's. Dense always: vendors print twice as much "with sparsity". Where a vendor prints
nothing for a type, as NVIDIA for the custom boards of one customer, the type or the board is left out.

Nothing is guessed: a GPU that isn't listed has no peak, so its run has FLOP/s but no MFU. Substring matching would give
"NVIDIA L40S" the L4's peak, and an MFU three times too high.
"""

from __future__ import annotations

from typing import NamedTuple


class Peak(NamedTuple):
    """Peaks in TFLOP/s; None where the part has no such tensor path, or nobody states it.

    Attributes:
        bf16: bfloat16 with fp32 accumulation.
        fp16: fp16 with fp32 accumulation.
        tf32: TF32.
        fp8: FP8 of any kind; MXFP8 where the part has block scaling.
        fp4: MXFP4, and NVFP4 on NVIDIA's.
        source: Whose figures they are.
    """

    bf16: float | None
    fp16: float | None
    tf32: float | None
    fp8: float | None
    fp4: float | None
    source: str


def _row(  # noqa: PLR0917  a row of the table
    names: str, half: float, tf32: float | None, fp8: float | None, fp4: float | None, source: str,
    bf16: float | None = -1.0,
) -> dict[str, Peak]:  # fmt: skip
    """Give GPUs a peak by their names: 16-bit types in one number, as they differ on three old parts only."""
    return dict.fromkeys(names.split("|"), Peak(half if bf16 == -1.0 else bf16, half, tf32, fp8, fp4, source))


_SPARSE = "half of its figures with sparsity"
_HALVED = f"datasheet, {_SPARSE}"
_RTX_PRO = "datasheet: its AI TOPS are sparse FP4, twice the dense, four times FP8, eight times BF16"
_GCD = "datasheet, half: a device is one of the package's two dies"
_ROWS = (
    _row("Tesla V100-SXM2-16GB|Tesla V100-SXM2-32GB|Tesla V100-SXM3-32GB|Tesla V100-DGXS-16GB|Tesla V100-DGXS-32GB",
         125, None, None, None, "V100 datasheet; DGX-2 and DGX Station: 2 and 0.5 PFLOP/s", None),
    _row("Tesla V100-PCIE-16GB|Tesla V100-PCIE-32GB", 112, None, None, None, "V100 datasheet", None),
    _row("Tesla V100S-PCIE-32GB", 130, None, None, None, "V100 datasheet", None),
    _row("Tesla T4", 65, None, None, None, "T4 datasheet", None),
    _row("Quadro RTX 6000|Quadro RTX 8000", 130.5, None, None, None, "datasheet", None),
    _row("Quadro RTX 5000", 89.2, None, None, None, "datasheet", None),
    _row("NVIDIA A100-SXM4-40GB|NVIDIA A100-SXM4-80GB|NVIDIA A100-PCIE-40GB|NVIDIA A100 80GB PCIe|NVIDIA A100-PG509-200"
         "|NVIDIA PG509-210", 312, 156, None, None, "A100 datasheet; PG509 boards have the ids of the SXM4 ones"),
    _row("NVIDIA A800-SXM4-40GB|NVIDIA A800-SXM4-80GB|NVIDIA A800 80GB PCIe|NVIDIA A800 80GB PCIe LC",
         312, 156, None, None, "A800 datasheet: an A100 with less NVLink"),
    _row("NVIDIA A800 40GB Active", 311.9, 155.9, None, None, _HALVED),
    _row("NVIDIA A100-SXM-64GB", 358, 179, None, None, "Leonardo, arXiv 2307.16885: 124 SMs at 1410 MHz"),
    _row("NVIDIA A30", 165, 82, None, None, "A30 datasheet"),
    _row("NVIDIA A40", 149.7, 74.8, None, None, "A40 datasheet"),
    _row("NVIDIA A16", 17.9, 9, None, None, "A16 datasheet, one of its four GPUs"),
    _row("NVIDIA A10", 125, 62.5, None, None, "A10 datasheet"),
    _row("NVIDIA A10G", 70, 35, None, None, "A10G datasheet"),
    _row("NVIDIA A2", 18, 9, None, None, "A2 datasheet"),
    _row("NVIDIA RTX A6000", 154.8, 77.4, None, None, _HALVED),
    _row("NVIDIA RTX A5500", 136.4, 68.2, None, None, _HALVED),
    _row("NVIDIA RTX A5000", 111.1, 55.6, None, None, _HALVED),
    _row("NVIDIA RTX A4500", 94.6, 47.3, None, None, _HALVED),
    _row("NVIDIA RTX A4000", 76.7, 38.3, None, None, _HALVED),
    _row("NVIDIA RTX A2000|NVIDIA RTX A2000 12GB", 31.95, 16, None, None, _HALVED),
    _row("NVIDIA L2", 96.5, 48.3, 193, None, "L2 datasheet"),
    _row("NVIDIA L4", 121, 60, 242, None, "L4 datasheet"),
    _row("NVIDIA L20", 119.5, 59.8, 239, None, "L20 datasheet"),
    _row("NVIDIA L40", 181, 90.5, 362, None, "L40 datasheet"),
    _row("NVIDIA L40S", 362, 183, 733, None, "L40S datasheet"),
    _row("NVIDIA RTX 6000 Ada Generation", 364.2, 182.1, 728.5, None, _HALVED),
    _row("NVIDIA RTX 5880 Ada Generation", 277.1, 138.6, 554.2, None, _HALVED),
    _row("NVIDIA RTX 5000 Ada Generation", 261.1, 130.6, 522.2, None, _HALVED),
    _row("NVIDIA RTX 4500 Ada Generation", 158.5, 79.3, 317, None, _HALVED),
    _row("NVIDIA RTX 4000 Ada Generation", 106.9, 53.5, 213.8, None, _HALVED),
    _row("NVIDIA RTX 4000 SFF Ada Generation", 76.7, 38.4, 153.4, None, _HALVED),
    _row("NVIDIA RTX 2000 Ada Generation", 48, 24, 96, None, _HALVED),
    _row("NVIDIA H100 80GB HBM3", 989.4, 494.7, 1979, None, "H100 datasheet, SXM"),
    _row("NVIDIA H100", 989.4, 494.7, 1979, None, "H100 datasheet, SXM: the board of 96 GB, id 2339"),
    _row("NVIDIA H800", 989.4, 494.7, 1979, None, "H800 datasheet: an H100 SXM with less NVLink and FP64"),
    _row("NVIDIA GH200 120GB|NVIDIA GH200 480GB|NVIDIA GH200 144G HBM3e", 989.4, 494.7, 1979, None, "GH200 datasheet"),
    _row("NVIDIA H100 PCIe", 756, 378, 1513, None, "H100 datasheet, PCIe"),
    _row("NVIDIA H800 PCIe", 756, 378, 1513, None, "H800 datasheet: an H100 PCIe with less NVLink and FP64"),
    _row("NVIDIA H100 NVL", 835, 418, 1671, None, "H100 datasheet, NVL"),
    _row("NVIDIA H800 NVL", 835, 418, 1671, None, "H800 datasheet: an H100 NVL with less NVLink and FP64"),
    _row("NVIDIA H200", 989, 494.5, 1979, None, "H200 datasheet, SXM"),
    _row("NVIDIA H200 NVL", 835, 418, 1671, None, "H200 datasheet, NVL"),
    _row("NVIDIA H20|NVIDIA H20-3e", 148, 74, 296, None, "H20 datasheet; the 3e has more memory"),
    _row("NVIDIA B200", 2250, 1125, 4500, 9000, "DGX B200 datasheet: an eighth, dense"),
    _row("NVIDIA GB200", 2500, 1250, 5000, 10000, "GB200 NVL72 datasheet: a 72nd, dense"),
    _row("NVIDIA B300 SXM6 AC", 2250, 1125, 4500, None, "DGX B300 datasheet: an eighth; NVIDIA states two FP4 figures"),
    _row("NVIDIA GB300", 2500, 1250, 5000, 15000, "GB300 NVL72 datasheet: a 72nd, dense"),
    _row("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 503.8, 251.9, 1007.6, 2015.2,
         "RTX PRO Blackwell whitepaper"),
    _row("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", 438.9, 219.4, 877.8, 1755.5, _RTX_PRO),
    _row("NVIDIA RTX PRO 6000 Blackwell Server Edition", 480, 240, 960, 1920,
         "datasheet: 120 TFLOP/s in FP32, a quarter of BF16"),
    _row("NVIDIA RTX PRO 5000 Blackwell", 258, 129, 516, 1032, _RTX_PRO),
    _row("NVIDIA RTX PRO 5000 72GB Blackwell", 267.8, 133.9, 535.5, 1071, _RTX_PRO),
    _row("NVIDIA RTX PRO 4500 Blackwell", 210.9, 105.4, 421.8, 843.5, _RTX_PRO),
    _row("NVIDIA RTX PRO 4000 Blackwell", 147.3, 73.6, 294.5, 589, _RTX_PRO),
    _row("NVIDIA RTX PRO 4000 Blackwell SFF Edition", 96.3, 48.1, 192.5, 385, _RTX_PRO),
    _row("NVIDIA RTX PRO 2000 Blackwell", 68.1, 34.1, 136.3, 272.5, _RTX_PRO),
    _row("AMD Instinct MI100", 184.6, None, None, None, "MI100 datasheet", 92.3),
    _row("AMD Instinct MI210", 181, None, None, None, "MI210 datasheet"),
    _row("AMD Instinct MI250", 181, None, None, None, f"MI250 {_GCD}"),
    _row("AMD Instinct MI250X", 191.5, None, None, None, f"MI250X {_GCD}"),
    _row("AMD Instinct MI300A", 980.6, 490.3, 1961.2, None, "MI300A datasheet"),
    _row("AMD Instinct MI300X", 1307.4, 653.7, 2614.9, None, "MI300X datasheet"),
    _row("AMD Instinct MI325X", 1307.4, 653.7, 2614.9, None, "MI325X datasheet"),
    _row("AMD Instinct MI350X", 2306.9, None, 4613.7, 9227.5, "MI350X datasheet; no TF32"),
    _row("AMD Instinct MI355X", 2516.6, None, 5033.2, 10066.3, "MI355X datasheet; no TF32"),
)  # fmt: skip


PEAKS = {name: peak for row in _ROWS for name, peak in row.items()}
"""Peaks by name."""
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
