"""Peaks by exact name: a wrong one is a wrong MFU, sold as a number."""

from __future__ import annotations

import pytest

from pyrometer_exporters.node.train.peaks import _TERA, peak_flops


@pytest.mark.parametrize(
    ("name", "dtype", "tera"),
    [("NVIDIA H100 80GB HBM3", "bf16", 989.4), ("NVIDIA H100 80GB HBM3", "FP8", 1979),
     ("NVIDIA A100-SXM4-80GB", "", 312),
     ("NVIDIA A100-SXM4-80GB", "tf32", 156), ("NVIDIA H200", "float16", 989), ("NVIDIA L40S", "bf16", 362)],
)  # fmt: skip
def test_known(name: str, dtype: str, tera: float) -> None:
    assert peak_flops(name, dtype) == pytest.approx(tera * 1e12)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("", "bf16"), ("NVIDIA H100", "bf16"), ("nvidia h100 80gb hbm3", "bf16"), ("NVIDIA L40S-48Q", "bf16"),
     ("NVIDIA A100-SXM4-80GB", "fp8"), ("NVIDIA H100 80GB HBM3", "fp32"), ("NVIDIA H100 80GB HBM3", "mxfp4")],
)  # fmt: skip
def test_unknown_is_none_not_a_guess(name: str, dtype: str) -> None:
    assert peak_flops(name, dtype) is None


def test_columns_stand_in_their_usual_ratio() -> None:
    """Tensor cores do TF32 at half and FP8 at twice the rate of BF16; a typing error would stand out."""
    for half, tf32, fp8 in _TERA.values():
        assert tf32 is None or tf32 / half == pytest.approx(0.5, abs=0.02)
        assert fp8 is None or fp8 / half == pytest.approx(2, abs=0.05)
