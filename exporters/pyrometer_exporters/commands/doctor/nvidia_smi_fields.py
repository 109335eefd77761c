"""Map nvidia-smi's fields to our series.

Names that changed between drivers are listed in all spellings, the newest first. A value that nvidia-smi splits into
several elements is written with ``+`` between them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Field:
    """One of nvidia-smi's numbers and the series that it must agree with."""

    paths: tuple[str, ...]
    """Where it is below ``<gpu>`` or ``<mig_device>``, in one of these spellings."""
    family: str
    labels: Mapping[str, str]
    scale: float = 1.0
    """The factor from nvidia-smi's number to ours."""
    slack: float = 0.0
    """How far apart two readings a second apart may be, in our unit."""
    share: float = 0.0
    """The same as a share of the larger one."""
    words: Mapping[str, float] | None = None
    """The numbers for its words in lower case; None for yes, no and the like."""
    bit: int = 0
    """Its bit in our bitmask, or 0 if ours is none."""


@dataclass(frozen=True)
class Text:
    """One of nvidia-smi's texts and the label that it must be the value of."""

    path: str
    family: str
    label: str


def _field(paths: str, family: str, scale: float = 1.0, slack: float = 0.0, share: float = 0.0, **labels: str) -> Field:
    return Field(tuple(paths.split()), family, labels, scale, slack, share)


def _power(name: str) -> str:
    return f"gpu_power_readings/{name} power_readings/{name}"


_ACTIONS = {"none": 0.0, "reset": 1.0, "reboot": 2.0, "drain p2p": 3.0, "drain and reset": 4.0}
_FABRIC_STATES = {"not started": 1.0, "in progress": 2.0, "completed": 3.0}
_PROBLEMS = {
    "bandwidth": "degraded_bandwidth",
    "route_recovery_in_progress": "route_recovery",
    "route_unhealthy": "route_unhealthy",
    "access_timeout_recovery": "access_timeout_recovery",
}
_PROBLEM_WORDS = {"false": 0.0, "true": 1.0, "full": 0.0, "degraded": 1.0}
_REPAIR, _RETIRED = "pyrometer_gpu_repair_pending", "retired_pages"
_INACTIVE = "pyrometer_gpu_inactive_row_remappings"
_SECONDS, _MASK = "pyrometer_gpu_clock_event_seconds_total", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS"
_COUNTERS = "clocks_event_reasons_counters/clocks_event_reasons_counters"
_ECC, _HISTOGRAM = "pyrometer_gpu_ecc_errors_total", "remapped_rows/row_remapper_histogram/row_remapper_histogram"
_LINK = "pci/pci_gpu_link_info"
_LIVES = (("volatile", "VOL"), ("aggregate", "AGG"))
# nvml.h, nvmlClocksEventReason*.
_REASONS = {
    "gpu_idle": 0x1, "applications_clocks_setting": 0x2, "sw_power_cap": 0x4, "hw_slowdown": 0x8, "sync_boost": 0x10,
    "sw_thermal_slowdown": 0x20, "hw_thermal_slowdown": 0x40, "hw_power_brake_slowdown": 0x80,
    "display_clocks_setting": 0x100,
}  # fmt: skip


def _reason(name: str, bit: int) -> Field:
    paths = tuple(f"clocks_{word}_reasons/clocks_{word}_reason_{name}" for word in ("event", "throttle"))
    # A state of two different moments: shown side by side, never a fault.
    return Field(paths, _MASK, {}, slack=1, bit=bit)


def _ecc_by_place(life: str) -> list[Field]:
    """Return fields of errors by location: GPUs since Turing have DRAM and SRAM, older ones each location."""
    at = f"ecc_errors/{life}"
    newer = [
        (f"{at}/dram_correctable {at}/single_bit/device_memory", "device_memory", "corrected"),
        (f"{at}/dram_uncorrectable {at}/double_bit/device_memory", "device_memory", "uncorrected"),
        (f"{at}/sram_correctable", "sram", "corrected"),
        (
            f"{at}/sram_uncorrectable_parity+{at}/sram_uncorrectable_secded {at}/sram_uncorrectable",
            "sram",
            "uncorrected",
        ),
    ]
    older = [
        (f"{at}/{bits}_bit/{place}", place, error)
        for bits, error in (("single", "corrected"), ("double", "uncorrected"))
        for place in ("register_file", "l1_cache", "l2_cache", "texture_memory", "cbu")
        if (bits, place) != ("single", "cbu")
    ]
    return [_field(paths, _ECC, counter=life, location=place, error=error) for paths, place, error in (*newer, *older)]


def _ecc_totals(life: str, short: str) -> list[Field]:
    at = f"ecc_errors/{life}"
    corrected = f"{at}/sram_correctable+{at}/dram_correctable {at}/single_bit/total"
    both = f"{at}/sram_uncorrectable_parity+{at}/sram_uncorrectable_secded+{at}/dram_uncorrectable"
    uncorrected = f"{both} {at}/sram_uncorrectable+{at}/dram_uncorrectable {at}/double_bit/total"
    return [
        _field(corrected, f"DCGM_FI_DEV_ECC_SBE_{short}_TOTAL"),
        _field(uncorrected, f"DCGM_FI_DEV_ECC_DBE_{short}_TOTAL"),
    ]


_MEMORY = (
    # nvidia-smi rounds sizes to the next MiB, DCGM and we cut them.
    _field("fb_memory_usage/reserved", "DCGM_FI_DEV_FB_RESERVED", slack=1),
    _field("fb_memory_usage/used", "DCGM_FI_DEV_FB_USED", slack=2, share=0.02),
    _field("fb_memory_usage/free", "DCGM_FI_DEV_FB_FREE", slack=2, share=0.02),
)
FIELDS = (
    _field("clocks/sm_clock", "DCGM_FI_DEV_SM_CLOCK", slack=30, share=0.1),
    _field("clocks/mem_clock", "DCGM_FI_DEV_MEM_CLOCK", slack=30, share=0.1),
    _field("clocks/video_clock", "DCGM_FI_DEV_VIDEO_CLOCK", slack=30, share=0.1),
    _field("max_clocks/sm_clock", "DCGM_FI_DEV_MAX_SM_CLOCK"),
    _field("max_clocks/mem_clock", "DCGM_FI_DEV_MAX_MEM_CLOCK"),
    *(_reason(name, bit) for name, bit in _REASONS.items()),
    _field("performance_state", "DCGM_FI_DEV_PSTATE"),
    _field("fan_speed", "DCGM_FI_DEV_FAN_SPEED", slack=5),
    _field("temperature/gpu_temp", "DCGM_FI_DEV_GPU_TEMP", slack=3),
    _field("temperature/memory_temp", "DCGM_FI_DEV_MEMORY_TEMP", slack=3),
    _field("temperature/gpu_temp_tlimit", "DCGM_FI_DEV_GPU_TEMP_LIMIT", slack=3),
    _field("temperature/gpu_temp_max_threshold", "DCGM_FI_DEV_SHUTDOWN_TEMP"),
    _field("temperature/gpu_temp_slow_threshold", "DCGM_FI_DEV_SLOWDOWN_TEMP"),
    _field(_power("average_power_draw") + " " + _power("power_draw"), "DCGM_FI_DEV_POWER_USAGE", slack=5, share=0.15),
    _field(_power("instant_power_draw"), "DCGM_FI_DEV_POWER_USAGE_INSTANT", slack=10, share=0.3),
    # Before 535 power_limit is what was asked for.
    _field(f"{_power('current_power_limit')} power_readings/enforced_power_limit", "DCGM_FI_DEV_ENFORCED_POWER_LIMIT"),
    _field(f"{_power('requested_power_limit')} power_readings/power_limit", "DCGM_FI_DEV_POWER_MGMT_LIMIT"),
    _field(_power("default_power_limit"), "DCGM_FI_DEV_POWER_MGMT_LIMIT_DEF"),
    _field(_power("min_power_limit"), "DCGM_FI_DEV_POWER_MGMT_LIMIT_MIN"),
    _field(_power("max_power_limit"), "DCGM_FI_DEV_POWER_MGMT_LIMIT_MAX"),
    _field("utilization/gpu_util", "DCGM_FI_DEV_GPU_UTIL", slack=20),
    _field("utilization/memory_util", "DCGM_FI_DEV_MEM_COPY_UTIL", slack=20),
    _field("utilization/encoder_util", "DCGM_FI_DEV_ENC_UTIL", slack=20),
    _field("utilization/decoder_util", "DCGM_FI_DEV_DEC_UTIL", slack=20),
    _field("fb_memory_usage/total", "DCGM_FI_DEV_FB_TOTAL", slack=1),
    *_MEMORY,
    _field(f"{_LINK}/pcie_gen/current_link_gen", "DCGM_FI_DEV_PCIE_LINK_GEN"),
    _field(f"{_LINK}/pcie_gen/max_link_gen", "DCGM_FI_DEV_PCIE_MAX_LINK_GEN"),
    _field(f"{_LINK}/link_widths/current_link_width", "DCGM_FI_DEV_PCIE_LINK_WIDTH"),
    _field(f"{_LINK}/link_widths/max_link_width", "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH"),
    _field("pci/replay_counter", "DCGM_FI_DEV_PCIE_REPLAY_COUNTER"),
    _field("mig_mode/current_mig", "DCGM_FI_DEV_MIG_MODE"),
    _field("ecc_mode/current_ecc", "DCGM_FI_DEV_ECC_CURRENT"),
    _field("ecc_mode/pending_ecc", "DCGM_FI_DEV_ECC_PENDING"),
    *(field for life, short in _LIVES for field in (*_ecc_totals(life, short), *_ecc_by_place(life))),
    _field("ecc_errors/aggregate/sram_threshold_exceeded", "pyrometer_gpu_sram_ecc_threshold_exceeded"),
    _field("ecc_errors/channel_repair_pending", _REPAIR, repair="channel"),
    _field("ecc_errors/tpc_repair_pending", _REPAIR, repair="tpc"),
    _field("ecc_errors/unrepairable_memory", "pyrometer_gpu_unrepairable_memory"),
    Field(("gpu_recovery_action",), "pyrometer_gpu_recovery_action", {}, words=_ACTIONS),
    Field(("fabric/state",), "pyrometer_gpu_fabric_state", {}, words=_FABRIC_STATES),
    Field(("fabric/status",), "pyrometer_gpu_fabric_status", {}, words={"success": 0.0}),
    *(
        Field((f"fabric/health/{name}",), "pyrometer_gpu_fabric_problem", {"problem": ours}, words=_PROBLEM_WORDS)
        for name, ours in _PROBLEMS.items()
    ),
    _field(f"{_RETIRED}/multiple_single_bit_retirement/retired_count", "DCGM_FI_DEV_RETIRED_SBE"),
    _field(f"{_RETIRED}/double_bit_retirement/retired_count", "DCGM_FI_DEV_RETIRED_DBE"),
    _field(f"{_RETIRED}/pending_retirement", "DCGM_FI_DEV_RETIRED_PENDING"),
    _field("remapped_rows/remapped_row_corr", "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS"),
    _field("remapped_rows/remapped_row_unc", "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS"),
    _field("remapped_rows/remapped_row_corr_inactive", _INACTIVE, error="corrected"),
    _field("remapped_rows/remapped_row_unc_inactive", _INACTIVE, error="uncorrected"),
    _field("remapped_rows/remapped_row_pending", "DCGM_FI_DEV_ROW_REMAP_PENDING"),
    _field("remapped_rows/remapped_row_failure", "DCGM_FI_DEV_ROW_REMAP_FAILURE"),
    *(
        _field(f"{_HISTOGRAM}_{level}", f"DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_{level.upper()}")
        for level in ("max", "high", "partial", "low", "none")
    ),
    # Microseconds.
    _field(f"{_COUNTERS}_sw_power_cap", _SECONDS, 1e-6, 5, reason="power_cap"),
    _field(f"{_COUNTERS}_sync_boost", _SECONDS, 1e-6, 5, reason="sync_boost"),
    _field(f"{_COUNTERS}_sw_therm_slowdown", _SECONDS, 1e-6, 5, reason="sw_thermal"),
    _field(f"{_COUNTERS}_hw_therm_slowdown", _SECONDS, 1e-6, 5, reason="hw_thermal"),
    _field(f"{_COUNTERS}_hw_power_brake", _SECONDS, 1e-6, 5, reason="hw_power_brake"),
)
INSTANCE_FIELDS = _MEMORY
"""Fields of a MIG device, for its GPU instance."""

_INFO, _VERSIONS, _FABRIC = "pyrometer_gpu_info", "pyrometer_gpu_versions_info", "pyrometer_gpu_fabric_info"
TEXTS = (
    Text("product_name", _INFO, "model"),
    Text("serial", _INFO, "serial"),
    Text("vbios_version", _INFO, "vbios"),
    Text("driver_version", _INFO, "driver"),
    Text("pci/pci_bus_id", _INFO, "pci_bus_id"),
    Text("product_brand", _VERSIONS, "brand"),
    Text("inforom_version/img_version", _VERSIONS, "inforom_image"),
    Text("inforom_version/oem_object", _VERSIONS, "inforom_oem"),
    Text("inforom_version/ecc_object", _VERSIONS, "inforom_ecc"),
    Text("inforom_version/pwr_object", _VERSIONS, "inforom_power"),
    Text("fabric/cliqueId", _FABRIC, "clique"),
    Text("fabric/clusterUuid", _FABRIC, "cluster_uuid"),
)
