"""DCGM's profiling fields, by the GPM metric that each of them is."""

from __future__ import annotations

from pyrometer_exporters.framework.metrics import Family
from pyrometer_exporters.node.gpu.families import DCGM_LABELS


def _ratio(name: str, what: str, metric: int) -> Family:
    text = f"Share of {what}, 0 to 1, GPM metric {metric}; the average since an earlier scrape."
    return Family(name, "gauge", text, DCGM_LABELS)


def _rate(name: str, what: str, metric: int) -> Family:
    text = f"Bytes per second {what}, GPM metric {metric}; the average since an earlier scrape."
    return Family(name, "gauge", text, DCGM_LABELS)


def _engine(name: str, what: str, metric: int) -> Family:
    return Family(
        name,
        "gauge",
        f"Share of time in which {what} was busy, 0 to 1, GPM metric {metric}; the average since an earlier scrape, "
        "absent until it has worked once.",
        DCGM_LABELS,
    )


_TENSOR = "time in which the tensor cores did"

# GPM gives percent; DCGM and we divide by 100.
RATIOS = {
    1: _ratio("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "time in which a compute or graphics engine was busy", 1),
    2: _ratio("DCGM_FI_PROF_SM_ACTIVE", "time in which the streaming multiprocessors had work, averaged over them", 2),
    3: _ratio("DCGM_FI_PROF_SM_OCCUPANCY", "warps resident of those that would fit", 3),
    5: _ratio("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "time in which the tensor cores were busy", 5),
    7: _ratio("DCGM_FI_PROF_PIPE_TENSOR_HMMA_ACTIVE", f"{_TENSOR} half-precision products", 7),
    9: _ratio("DCGM_FI_PROF_PIPE_TENSOR_IMMA_ACTIVE", f"{_TENSOR} integer products", 9),
    6: _ratio("DCGM_FI_PROF_PIPE_TENSOR_DFMA_ACTIVE", f"{_TENSOR} double-precision products", 6),
    4: _ratio("DCGM_FI_PROF_PIPE_INT_ACTIVE", "time in which the integer pipes were busy", 4),
    11: _ratio("DCGM_FI_PROF_PIPE_FP64_ACTIVE", "time in which the double-precision pipes were busy", 11),
    12: _ratio("DCGM_FI_PROF_PIPE_FP32_ACTIVE", "time in which the single-precision pipes were busy", 12),
    13: _ratio("DCGM_FI_PROF_PIPE_FP16_ACTIVE", "time in which the half-precision pipes were busy", 13),
    10: _ratio("DCGM_FI_PROF_DRAM_ACTIVE", "what the device memory's interface can transfer", 10),
}
# GPM gives MiB/s.
RATES = {
    20: _rate("DCGM_FI_PROF_PCIE_TX_BYTES", "sent over PCIe, headers included", 20),
    21: _rate("DCGM_FI_PROF_PCIE_RX_BYTES", "received over PCIe, headers included", 21),
    61: _rate("DCGM_FI_PROF_NVLINK_TX_BYTES", "sent over all NVLinks, headers included", 61),
    60: _rate("DCGM_FI_PROF_NVLINK_RX_BYTES", "received over all NVLinks, headers included", 60),
}
# Few GPUs in a cluster ever use these; zeros of all 15 that an H100 has would be a tenth of its series.
ENGINES = {
    30: _engine("DCGM_FI_PROF_NVDEC0_ACTIVE", "video decoder 0", 30),
    31: _engine("DCGM_FI_PROF_NVDEC1_ACTIVE", "video decoder 1", 31),
    32: _engine("DCGM_FI_PROF_NVDEC2_ACTIVE", "video decoder 2", 32),
    33: _engine("DCGM_FI_PROF_NVDEC3_ACTIVE", "video decoder 3", 33),
    34: _engine("DCGM_FI_PROF_NVDEC4_ACTIVE", "video decoder 4", 34),
    35: _engine("DCGM_FI_PROF_NVDEC5_ACTIVE", "video decoder 5", 35),
    36: _engine("DCGM_FI_PROF_NVDEC6_ACTIVE", "video decoder 6", 36),
    37: _engine("DCGM_FI_PROF_NVDEC7_ACTIVE", "video decoder 7", 37),
    40: _engine("DCGM_FI_PROF_NVJPG0_ACTIVE", "JPEG decoder 0", 40),
    41: _engine("DCGM_FI_PROF_NVJPG1_ACTIVE", "JPEG decoder 1", 41),
    42: _engine("DCGM_FI_PROF_NVJPG2_ACTIVE", "JPEG decoder 2", 42),
    43: _engine("DCGM_FI_PROF_NVJPG3_ACTIVE", "JPEG decoder 3", 43),
    44: _engine("DCGM_FI_PROF_NVJPG4_ACTIVE", "JPEG decoder 4", 44),
    45: _engine("DCGM_FI_PROF_NVJPG5_ACTIVE", "JPEG decoder 5", 45),
    46: _engine("DCGM_FI_PROF_NVJPG6_ACTIVE", "JPEG decoder 6", 46),
    47: _engine("DCGM_FI_PROF_NVJPG7_ACTIVE", "JPEG decoder 7", 47),
    50: _engine("DCGM_FI_PROF_NVOFA0_ACTIVE", "optical flow accelerator 0", 50),
    51: _engine("DCGM_FI_PROF_NVOFA1_ACTIVE", "optical flow accelerator 1", 51),
}
