"""Peaks by exact name: a wrong one is a wrong MFU, sold as a number."""

from __future__ import annotations

import pytest

from pyrometer_exporters.node.train.peak_table import PEAKS, Peak
from pyrometer_exporters.node.train.peaks import peak_flops


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
    [("NVIDIA A100-SXM4-80GB", 108, 1410, 2048), ("Tesla V100-SXM2-16GB", 80, 1530, 1024),
     ("NVIDIA A100-SXM-64GB", 124, 1410, 2048), ("NVIDIA H100 80GB HBM3", 132, 1830, 4096),
     ("NVIDIA H100 PCIe", 114, 1620, 4096), ("NVIDIA RTX A6000", 84, 1800, 1024),
     ("AMD Instinct MI300X", 304, 2100, 2048),
     ("AMD Instinct MI350X", 256, 2200, 4096), ("AMD Instinct MI355X", 256, 2400, 4096)],
)  # fmt: skip
def test_a_peak_is_units_times_clock_times_operations(name: str, units: int, megahertz: int, per_clock: int) -> None:
    """SMs or CUs, boost clock, dense FP16 operations of each per clock: the whitepapers of Volta to Hopper and CDNA."""
    assert PEAKS[name].fp16 == pytest.approx(units * megahertz * per_clock / 1e6, rel=0.003)
