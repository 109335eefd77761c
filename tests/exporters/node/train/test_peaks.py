"""Peaks by exact name: a wrong one is a wrong MFU, sold as a number."""

from __future__ import annotations

import pytest

from pyrometer_exporters.node.train.peaks import PEAKS, Peak, peak_flops


@pytest.mark.parametrize(
    ("name", "dtype", "tera"),
    [("NVIDIA H100 80GB HBM3", "bf16", 989.4), ("NVIDIA H100 80GB HBM3", "FP8", 1979),
     ("NVIDIA A100-SXM4-80GB", "", 312), ("NVIDIA A100-SXM-64GB", "bf16", 358), ("NVIDIA A800 80GB PCIe", "bf16", 312),
     ("NVIDIA A100-SXM4-80GB", "tf32", 156), ("NVIDIA H200", "float16", 989), ("NVIDIA L40S", "bf16", 362),
     ("Tesla V100-SXM2-32GB", "fp16", 125), ("Tesla V100-SXM2-32GB", "", 125), ("NVIDIA H800 PCIe", "bf16", 756),
     ("NVIDIA GH200 144G HBM3e", "bf16", 989.4), ("NVIDIA GB300", "mxfp4", 15000), ("NVIDIA B200", "NVFP4", 9000),
     ("NVIDIA B200", "mxfp8", 4500), ("AMD Instinct MI355X", "mxfp4", 10066.3), ("AMD Instinct MI250X", "bf16", 191.5),
     ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "bf16", 480)],
)  # fmt: skip
def test_known(name: str, dtype: str, tera: float) -> None:
    assert peak_flops(name, dtype) == pytest.approx(tera * 1e12)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("", "bf16"), ("NVIDIA H100 SXM", "bf16"), ("nvidia h100 80gb hbm3", "bf16"), ("NVIDIA L40S-48Q", "bf16"),
     ("NVIDIA A100-SXM4-80GB", "fp8"), ("NVIDIA H100 80GB HBM3", "fp32"), ("NVIDIA H100 80GB HBM3", "mxfp4"),
     ("NVIDIA H100 80GB HBM3", "mxfp8"), ("Tesla V100-SXM2-32GB", "bf16"), ("Tesla T4", "bfloat16"),
     ("AMD Instinct MI355X", "nvfp4"), ("AMD Instinct MI355X", "tf32"), ("NVIDIA B300 SXM6 AC", "mxfp4"),
     ("NVIDIA GB10", "bf16"), ("NVIDIA GeForce RTX 4090", "bf16")],
)  # fmt: skip
def test_unknown_is_none_not_a_guess(name: str, dtype: str) -> None:
    assert peak_flops(name, dtype) is None


@pytest.mark.parametrize(("name", "peak"), PEAKS.items(), ids=PEAKS)
def test_columns_stand_in_their_usual_ratio(name: str, peak: Peak) -> None:
    """Tensor cores do TF32 at half, FP8 at twice, FP4 at four times the rate of BF16: typing errors stand out."""
    half = peak.fp16
    assert half
    assert peak.bf16 in (half, None) or name == "AMD Instinct MI100"
    assert peak.tf32 is None or peak.tf32 / half == pytest.approx(0.5, abs=0.02)
    assert peak.fp8 is None or peak.fp8 / half == pytest.approx(2, abs=0.05)
    assert peak.fp4 is None or peak.fp4 / half == pytest.approx(6 if name == "NVIDIA GB300" else 4, abs=0.05)
    assert peak.source


@pytest.mark.parametrize(
    ("name", "units", "megahertz", "per_clock"),
    [("NVIDIA A100-SXM4-80GB", 108, 1410, 2048), ("NVIDIA A100-SXM-64GB", 124, 1410, 2048),
     ("NVIDIA A800 40GB Active", 108, 1410, 2048), ("NVIDIA A30", 56, 1440, 2048),
     ("NVIDIA H100 80GB HBM3", 132, 1830, 4096), ("NVIDIA H100 PCIe", 114, 1620, 4096),
     ("Tesla V100-SXM2-16GB", 80, 1530, 1024), ("Tesla V100S-PCIE-32GB", 80, 1597, 1024),
     ("Tesla T4", 40, 1590, 1024), ("Quadro RTX 8000", 72, 1770, 1024), ("Quadro RTX 5000", 48, 1815, 1024),
     ("NVIDIA A40", 84, 1740, 1024), ("NVIDIA A10", 72, 1695, 1024), ("NVIDIA A2", 10, 1770, 1024),
     ("NVIDIA RTX A6000", 84, 1800, 1024), ("NVIDIA RTX A5500", 80, 1665, 1024),
     ("NVIDIA RTX A5000", 64, 1695, 1024), ("NVIDIA RTX A4500", 56, 1650, 1024),
     ("NVIDIA RTX A4000", 48, 1560, 1024), ("NVIDIA RTX A2000", 26, 1200, 1024),
     ("NVIDIA L4", 58, 2040, 1024), ("NVIDIA L20", 92, 2520, 512), ("NVIDIA L40", 142, 2490, 512),
     ("NVIDIA RTX 6000 Ada Generation", 142, 2505, 1024), ("NVIDIA RTX 5880 Ada Generation", 110, 2460, 1024),
     ("NVIDIA RTX 5000 Ada Generation", 100, 2550, 1024), ("NVIDIA RTX 4500 Ada Generation", 60, 2580, 1024),
     ("NVIDIA RTX 4000 Ada Generation", 48, 2175, 1024), ("NVIDIA RTX 4000 SFF Ada Generation", 48, 1560, 1024),
     ("NVIDIA RTX 2000 Ada Generation", 22, 2130, 1024),
     ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 188, 2617, 1024),
     ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", 188, 2288, 1024),
     ("NVIDIA RTX PRO 5000 72GB Blackwell", 110, 2377, 1024), ("NVIDIA RTX PRO 2000 Blackwell", 34, 1950, 1024),
     ("AMD Instinct MI100", 120, 1502, 1024), ("AMD Instinct MI210", 104, 1700, 1024),
     ("AMD Instinct MI250", 104, 1700, 1024), ("AMD Instinct MI250X", 110, 1700, 1024),
     ("AMD Instinct MI300A", 228, 2100, 2048), ("AMD Instinct MI300X", 304, 2100, 2048),
     ("AMD Instinct MI325X", 304, 2100, 2048),
     ("AMD Instinct MI350X", 256, 2200, 4096), ("AMD Instinct MI355X", 256, 2400, 4096)],
)  # fmt: skip
def test_a_peak_is_units_times_clock_times_operations(name: str, units: int, megahertz: int, per_clock: int) -> None:
    """SMs or CUs, boost clock, dense FP16 operations of each per clock with FP32 accumulation, as others print them.

    From Volta to Blackwell an SM does 1,024, of A100 and A30 2,048, of Hopper 4,096, of L20 and L40 half of their
    chip's. Datasheets round clocks by up to 0.8 %.
    """
    assert PEAKS[name].fp16 == pytest.approx(units * megahertz * per_clock / 1e6, rel=0.008)


# Tables of others, who give dense figures or say that they are half of the sparse ones, as they print them.
ENGINEERING = "stas00/ml-engineering, compute/accelerator/README.md, TFLOPS comparison table"
PUBLIC = [
    ("NVIDIA GB200", {"tf32": 1250, "fp16": 2500, "bf16": 2500, "fp8": 5000, "fp4": 10000}, ENGINEERING),
    ("NVIDIA B200", {"tf32": 1125, "fp16": 2250, "bf16": 2250, "fp8": 4500, "fp4": 9000}, ENGINEERING),
    ("NVIDIA H200", {"tf32": 494.5, "fp16": 989, "bf16": 989, "fp8": 1979}, ENGINEERING),
    ("NVIDIA H100 80GB HBM3", {"tf32": 494.5, "fp16": 989, "bf16": 989, "fp8": 1979}, ENGINEERING),
    ("NVIDIA H100 80GB HBM3", {"tf32": 494.7, "fp16": 989.4, "bf16": 989.4, "fp8": 1978.9}, "glennklockwood.com, h100"),
    ("NVIDIA H100 PCIe", {"tf32": 378, "fp16": 756, "bf16": 756, "fp8": 1513}, ENGINEERING),
    ("NVIDIA A100-SXM4-80GB", {"tf32": 156, "fp16": 312, "bf16": 312}, ENGINEERING),
    ("NVIDIA L40S", {"tf32": 183, "fp16": 362, "bf16": 362, "fp8": 733}, ENGINEERING),
    ("NVIDIA L40S", {"tf32": 183, "bf16": 362.05, "fp8": 733}, "datasheet as printed by mullet.se"),
    ("NVIDIA L40", {"tf32": 90.5, "bf16": 181.05, "fp8": 362}, "datasheet as printed by mullet.se"),
    ("NVIDIA H20", {"tf32": 74, "fp16": 148}, "zangshuxian.com"),
    ("NVIDIA A40", {"tf32": 74.8, "bf16": 149.7, "fp16": 149.7}, "datasheet as printed by ecer.com"),
    ("NVIDIA A2", {"tf32": 9.06, "fp16": 18.13, "bf16": 18.13}, "hmc-tech.com"),
    ("NVIDIA RTX 5000 Ada Generation", {"tf32": 130.56, "fp16": 261.12, "fp8": 522.24}, "hmc-tech.com"),
    ("NVIDIA RTX 4000 Ada Generation", {"tf32": 53.45, "fp16": 106.91, "fp8": 213.81}, "hmc-tech.com"),
    ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
     {"tf32": 251.9, "fp16": 503.8, "bf16": 503.8, "fp8": 1010, "fp4": 2020}, "hmc-tech.com"),
    ("NVIDIA RTX PRO 2000 Blackwell", {"tf32": 33.95, "bf16": 67.89, "fp8": 135.78, "fp4": 271.57}, "hmc-tech.com"),
    ("NVIDIA B300 SXM6 AC", {"tf32": 1125, "fp16": 2250, "bf16": 2250, "fp8": 4500}, "glennklockwood.com, b300"),
    ("NVIDIA GB300", {"fp4": 1.1e6 / 72, "fp8": 360e3 / 72}, "GB300 NVL72 by glennklockwood.com, dense"),
    ("AMD Instinct MI300X", {"tf32": 653.7, "fp16": 1300, "bf16": 1300, "fp8": 2600}, ENGINEERING),
    ("AMD Instinct MI250", {"fp16": 362 / 2, "bf16": 362 / 2}, f"{ENGINEERING}; a device is half"),
    ("AMD Instinct MI250X", {"fp16": 383 / 2, "bf16": 383 / 2}, f"{ENGINEERING}; a device is half"),
    ("NVIDIA GB200", {"tf32": 2500 / 2, "bf16": 5000 / 2, "fp8": 10000 / 2, "fp4": 20000 / 2}, "GB200 NVL72, sparse"),
    ("NVIDIA B200", {"tf32": 2200 / 2, "bf16": 4500 / 2, "fp8": 9000 / 2, "fp4": 18000 / 2}, "HGX B200, sparse"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "figures", "source"), PUBLIC)
def test_public_tables_have_the_same_peaks(name: str, figures: dict[str, float], source: str) -> None:
    """Within 2.5 %: some round to two digits."""
    ours = {dtype: getattr(PEAKS[name], dtype) for dtype in figures}
    assert ours == pytest.approx(figures, rel=0.025), source
