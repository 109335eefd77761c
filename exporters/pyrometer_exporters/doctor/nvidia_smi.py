"""What nvidia-smi says of the same GPUs, field by field beside what the exporter serves.

Source: ``nvidia-smi -q -x``, whose elements look like ``<gpu_temp>41 C</gpu_temp>`` or ``<current_link_width>16x``;
names that changed between drivers are given with all their spellings, the newest first.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pyrometer_exporters.doctor.readout import Readings
from pyrometer_exporters.framework.flags import UsageError

SECONDS = 60.0  # a sick GPU makes it slow; one that hangs would make it wait for ever
KILL_SECONDS = 1.0
Verdict = Literal["same", "close", "differs", "only nvidia-smi", "only Pyrometer"]
_WORDS = {"yes": 1.0, "no": 0.0, "active": 1.0, "not active": 0.0, "enabled": 1.0, "disabled": 0.0}
_ACTIONS = {"none": 0.0, "reset": 1.0, "reboot": 2.0, "drain p2p": 3.0, "drain and reset": 4.0}
_FABRIC_STATES = {"not started": 1.0, "in progress": 2.0, "completed": 3.0}
_NUMBER = re.compile(r"P?(-?\d+(?:\.\d+)?)(?:x|\b)")


@dataclass(frozen=True)
class Field:
    """One of nvidia-smi's fields and the series that it must agree with."""

    paths: tuple[str, ...]
    """Where it is below ``<gpu>``, in one of these spellings."""
    family: str
    labels: Mapping[str, str]
    scale: float = 1.0
    """What nvidia-smi's number is to be multiplied with."""
    slack: float = 0.0
    """How far apart two readings a second apart may be, in our unit."""
    share: float = 0.0
    """The same as a share of the larger one."""
    words: Mapping[str, float] | None = None
    """The numbers that its words, in lower case, stand for; None for yes, no and the like."""


@dataclass(frozen=True)
class Compared:
    """A field of one GPU, as both have it; None where it isn't to be had."""

    gpu: str
    field: str
    theirs: float | None
    ours: float | None
    verdict: Verdict


def _field(paths: str, family: str, scale: float = 1.0, slack: float = 0.0, share: float = 0.0, **labels: str) -> Field:
    return Field(tuple(paths.split()), family, labels, scale, slack, share)


def _power(name: str) -> str:
    return f"gpu_power_readings/{name} power_readings/{name}"


_REPAIR, _RETIRED = "pyrometer_gpu_repair_pending", "retired_pages"
_REASON = "pyrometer_gpu_clock_event_seconds_total"
_COUNTERS = "clocks_event_reasons_counters/clocks_event_reasons_counters"
_ECC, _HISTOGRAM = "pyrometer_gpu_ecc_errors_total", "remapped_rows/row_remapper_histogram/row_remapper_histogram"
_LINK = "pci/pci_gpu_link_info"

FIELDS = (
    _field("clocks/sm_clock", "DCGM_FI_DEV_SM_CLOCK", slack=30, share=0.1),
    _field("clocks/mem_clock", "DCGM_FI_DEV_MEM_CLOCK", slack=30, share=0.1),
    _field("clocks/video_clock", "DCGM_FI_DEV_VIDEO_CLOCK", slack=30, share=0.1),
    _field("max_clocks/sm_clock", "DCGM_FI_DEV_MAX_SM_CLOCK"),
    _field("max_clocks/mem_clock", "DCGM_FI_DEV_MAX_MEM_CLOCK"),
    _field("performance_state", "DCGM_FI_DEV_PSTATE"),
    _field("fan_speed", "DCGM_FI_DEV_FAN_SPEED", slack=5),
    _field("temperature/gpu_temp", "DCGM_FI_DEV_GPU_TEMP", slack=3),
    _field("temperature/memory_temp", "DCGM_FI_DEV_MEMORY_TEMP", slack=3),
    _field("temperature/gpu_temp_tlimit", "DCGM_FI_DEV_GPU_TEMP_LIMIT", slack=3),
    _field(_power("average_power_draw") + " " + _power("power_draw"), "DCGM_FI_DEV_POWER_USAGE", slack=5, share=0.15),
    _field(_power("instant_power_draw"), "DCGM_FI_DEV_POWER_USAGE_INSTANT", slack=10, share=0.3),
    _field(_power("current_power_limit") + " " + _power("power_limit"), "DCGM_FI_DEV_ENFORCED_POWER_LIMIT"),
    _field(_power("requested_power_limit"), "DCGM_FI_DEV_POWER_MGMT_LIMIT"),
    _field(_power("default_power_limit"), "DCGM_FI_DEV_POWER_MGMT_LIMIT_DEF"),
    _field(_power("min_power_limit"), "DCGM_FI_DEV_POWER_MGMT_LIMIT_MIN"),
    _field(_power("max_power_limit"), "DCGM_FI_DEV_POWER_MGMT_LIMIT_MAX"),
    _field("utilization/gpu_util", "DCGM_FI_DEV_GPU_UTIL", slack=20),
    _field("utilization/memory_util", "DCGM_FI_DEV_MEM_COPY_UTIL", slack=20),
    _field("utilization/encoder_util", "DCGM_FI_DEV_ENC_UTIL", slack=20),
    _field("utilization/decoder_util", "DCGM_FI_DEV_DEC_UTIL", slack=20),
    # nvidia-smi rounds sizes to the next MiB, DCGM and we cut them.
    _field("fb_memory_usage/total", "DCGM_FI_DEV_FB_TOTAL", slack=1),
    _field("fb_memory_usage/reserved", "DCGM_FI_DEV_FB_RESERVED", slack=1),
    _field("fb_memory_usage/used", "DCGM_FI_DEV_FB_USED", slack=2, share=0.02, GPU_I_ID=""),
    _field("fb_memory_usage/free", "DCGM_FI_DEV_FB_FREE", slack=2, share=0.02, GPU_I_ID=""),
    _field(f"{_LINK}/pcie_gen/current_link_gen", "DCGM_FI_DEV_PCIE_LINK_GEN"),
    _field(f"{_LINK}/pcie_gen/max_link_gen", "DCGM_FI_DEV_PCIE_MAX_LINK_GEN"),
    _field(f"{_LINK}/link_widths/current_link_width", "DCGM_FI_DEV_PCIE_LINK_WIDTH"),
    _field(f"{_LINK}/link_widths/max_link_width", "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH"),
    _field("pci/replay_counter", "DCGM_FI_DEV_PCIE_REPLAY_COUNTER"),
    _field("mig_mode/current_mig", "DCGM_FI_DEV_MIG_MODE"),
    _field("ecc_mode/current_ecc", "DCGM_FI_DEV_ECC_CURRENT"),
    _field("ecc_mode/pending_ecc", "DCGM_FI_DEV_ECC_PENDING"),
    *(
        _field(f"ecc_errors/{life}/dram_{kind}", _ECC, counter=life, location="device_memory", error=error)
        for life in ("volatile", "aggregate")
        for kind, error in (("correctable", "corrected"), ("uncorrectable", "uncorrected"))
    ),
    *(
        _field(f"ecc_errors/{life}/sram_correctable", _ECC, counter=life, location="sram", error="corrected")
        for life in ("volatile", "aggregate")
    ),
    _field("ecc_errors/aggregate/sram_threshold_exceeded", "pyrometer_gpu_sram_ecc_threshold_exceeded"),
    _field("ecc_errors/channel_repair_pending", _REPAIR, repair="channel"),
    _field("ecc_errors/tpc_repair_pending", _REPAIR, repair="tpc"),
    Field(("gpu_recovery_action",), "pyrometer_gpu_recovery_action", {}, words=_ACTIONS),
    Field(("fabric/state",), "pyrometer_gpu_fabric_state", {}, words=_FABRIC_STATES),
    _field(f"{_RETIRED}/multiple_single_bit_retirement/retired_count", "DCGM_FI_DEV_RETIRED_SBE"),
    _field(f"{_RETIRED}/double_bit_retirement/retired_count", "DCGM_FI_DEV_RETIRED_DBE"),
    _field(f"{_RETIRED}/pending_retirement", "DCGM_FI_DEV_RETIRED_PENDING"),
    _field("remapped_rows/remapped_row_corr", "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS"),
    _field("remapped_rows/remapped_row_unc", "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS"),
    _field("remapped_rows/remapped_row_pending", "DCGM_FI_DEV_ROW_REMAP_PENDING"),
    _field("remapped_rows/remapped_row_failure", "DCGM_FI_DEV_ROW_REMAP_FAILURE"),
    *(
        _field(f"{_HISTOGRAM}_{level}", f"DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_{level.upper()}")
        for level in ("max", "high", "partial", "low", "none")
    ),
    # Microseconds; a few of our scrapes lie between the two readings.
    _field(f"{_COUNTERS}_sw_power_cap", _REASON, 1e-6, 5, reason="power_cap"),
    _field(f"{_COUNTERS}_sync_boost", _REASON, 1e-6, 5, reason="sync_boost"),
    _field(f"{_COUNTERS}_sw_therm_slowdown", _REASON, 1e-6, 5, reason="sw_thermal"),
    _field(f"{_COUNTERS}_hw_therm_slowdown", _REASON, 1e-6, 5, reason="hw_thermal"),
    _field(f"{_COUNTERS}_hw_power_brake", _REASON, 1e-6, 5, reason="hw_power_brake"),
)


def read(path: Path | None) -> dict[str, ET.Element]:
    """The GPUs of nvidia-smi's report by UUID; it is asked now unless ``path`` has what it said. Errors: UsageError."""
    text = _said(path)
    # It writes a plain line before the document where a GPU has fallen off the bus.
    start = text.find("<?xml")
    try:
        log = ET.fromstring(text[max(start, 0) :])  # noqa: S314  the node's own program, or this user's file
    except ET.ParseError as error:
        raise UsageError(_not_a_report(path, text, str(error) if start >= 0 else "")) from None
    if log.tag != "nvidia_smi_log":
        raise UsageError(_not_a_report(path, text, f"its root is {log.tag}"))
    return {gpu.findtext("uuid", "").strip(): gpu for gpu in log.findall("gpu")}


def _not_a_report(path: Path | None, text: str, why: str) -> str:
    # What it says in place of a report is the reason: "Failed to initialize NVML: Driver/library version mismatch".
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    said = why or (f"it says {first[:200]!r}" if first else "it is empty")
    return f"{path or 'nvidia-smi'}: not what nvidia-smi -q -x writes: {said}"


def _said(path: Path | None) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace") if path is not None else _asked()
    except OSError as error:
        msg = f"{path or 'nvidia-smi'}: {error.strerror}; give a file with what nvidia-smi -q -x wrote"
        raise UsageError(msg) from None


def _asked() -> str:
    command = ["nvidia-smi", "-q", "-x"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, encoding="utf-8", errors="replace"
    )
    try:
        return process.communicate(timeout=SECONDS)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        # Not waited for without a limit: one that hangs inside the driver can't be killed.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=KILL_SECONDS)
        msg = f"nvidia-smi -q -x gave no answer in {SECONDS:.0f} s"
        raise UsageError(msg) from None


def compared(readings: Readings, theirs: Mapping[str, ET.Element]) -> list[Compared]:
    """Every field of every GPU that either of the two knows. Errors: UsageError where they have no GPU in common."""
    ours_up = readings.of("pyrometer_gpu_up")
    missing = theirs.keys() - {labels["uuid"] for labels, _up in ours_up}
    if len(missing) == len(theirs):
        msg = f"none of the {len(theirs)} GPUs that nvidia-smi tells of is read here"
        raise UsageError(msg)
    found = [Compared(uuid, "uuid = pyrometer_gpu_up", 1, None, "only nvidia-smi") for uuid in sorted(missing)]
    for labels, _up in ours_up:
        gpu = theirs.get(labels["uuid"])
        for field in FIELDS:
            number = None if gpu is None else _number(gpu, field)
            ours = _of(readings, labels["gpu"], field)
            if number is not None or ours is not None:
                verdict = _verdict(number, ours, field)
                found.append(Compared(labels["gpu"], _title(field), number, ours, verdict))
    return found


def _number(gpu: ET.Element, field: Field) -> float | None:
    """The field's value in our unit; None where it is missing or ``N/A``."""
    for path in field.paths:
        text = gpu.findtext(path, "").strip()
        words = _WORDS if field.words is None else field.words
        if text.lower() in words:
            return words[text.lower()]
        if number := _NUMBER.match(text):
            return float(number.group(1)) * field.scale
    return None


def _of(readings: Readings, gpu: str, field: Field) -> float | None:
    wanted = {name: value for name, value in field.labels.items() if value}
    for labels, value in readings.of(field.family, gpu=gpu, **wanted):
        if "GPU_I_ID" not in labels:  # a MIG instance's own
            return value
    return None


def _verdict(theirs: float | None, ours: float | None, field: Field) -> Verdict:
    if theirs is None:
        return "only Pyrometer"
    if ours is None:
        return "only nvidia-smi"
    apart = abs(theirs - ours)
    # nvidia-smi writes two decimals at most, and microseconds.
    if apart <= 0.005:
        return "same"
    return "close" if apart <= max(field.slack, field.share * max(abs(theirs), abs(ours))) else "differs"


def _title(field: Field) -> str:
    labels = ",".join(f'{name}="{value}"' for name, value in field.labels.items() if value)
    return f"{field.paths[0]} = {field.family}{f'{{{labels}}}' if labels else ''}"


def table(rows: Iterable[Compared]) -> Iterator[str]:
    """The comparison as a Markdown table, GPUs with the same numbers in one row; last, how often each verdict came."""
    by_line: dict[tuple[str, ...], list[str]] = {}
    counts: dict[str, int] = {}
    for row in rows:
        name, _, family = row.field.partition(" = ")
        cells: tuple[str, ...] = f"`{name}`", f"`{family}`", _text(row.theirs), _text(row.ours), row.verdict
        by_line.setdefault(cells, []).append(row.gpu)
        counts[row.verdict] = counts.get(row.verdict, 0) + 1
    yield "| GPU | nvidia-smi -q -x | Pyrometer | it says | we say | verdict |"
    yield "|---|---|---|---|---|---|"
    for cells, gpus in by_line.items():
        yield f"| {','.join(gpus)} | {' | '.join(cells)} |"
    yield ""
    yield ", ".join(f"{count} {verdict}" for verdict, count in counts.items()) or "no GPU to compare"


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:.6f}".rstrip("0").rstrip(".")
