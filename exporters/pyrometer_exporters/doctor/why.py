"""Why a metric is absent: from what its own help text names as its source, and from what failed there."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pynvml

from pyrometer_exporters.doctor.recording import NO_VALUE, Failures
from pyrometer_exporters.framework.metrics import Family
from pyrometer_exporters.node.gpu.clock_events import version_numbers

_CALL = re.compile(r"\bnvml[A-Z]\w+?(?=_v\d+\b|\b)")
_FIELDS = re.compile(r"\bfields? ((?:\d+(?:-\d+)?(?:, | and | or )?)+)")
_SINCE = re.compile(r"\bdriver (\d{3}) and newer|\bR(\d{3}) and newer")
_GPM = "nvmlGpm"

# As nvml.h defines the codes: NOT_SUPPORTED speaks of the device, the next two of driver and library.
_WORDS = {
    "not_supported": "not supported by this GPU model, or not as it is set up",
    "invalid_argument": "not known to this driver: a newer one may have it",
    "function_not_found": "not in this driver's library: a newer driver may have it",
    "no_permission": "only root may read it",
    NO_VALUE: "the driver gives no value, as while ECC is off",
    "corrupted_inforom": "the GPU's InfoROM is corrupted",
    "no_data": "the driver has no data yet",
    "argument_version_mismatch": "the installed nvidia-ml-py and the driver's library differ",
}
NOT_IN_BINDING = "not in the installed nvidia-ml-py: a newer one may have it"
NOTHING = "nothing to tell on this node at present"
NO_NVLINK = "the driver tells of no NVLink on this GPU"
DIVIDED = "not while the GPU is divided (MIG)"
# What NVML gives of a whole GPU only while it is whole.
NOT_IN_MIG = frozenset(
    {"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_MEM_COPY_UTIL", "DCGM_FI_DEV_ENC_UTIL", "DCGM_FI_DEV_DEC_UTIL"}
)


def why_absent(family: Family, driver: str, failures: Failures, *, divided: bool = False) -> str:
    """In a few words why a GPU, ``divided`` or not, has no sample of ``family``."""
    if divided and family.name in NOT_IN_MIG:
        return DIVIDED
    if since := needs_driver(family, driver):
        return f"needs driver {since} or newer"
    sources = list(_sources(family))
    if not failures.answered.isdisjoint(sources):
        return NOTHING
    for source in sources:
        for failed, reason in failures.why.items():
            if failed == source or (source.startswith("nvml") and failed.startswith(source)):
                return f"{_words(reason, failed)} ({failed})"
    return NOTHING


def needs_driver(family: Family, driver: str) -> int:
    """The first driver that has the family, where that is newer than this one; else 0."""
    since, version = _first_driver(family.help), version_numbers(driver)
    return since if version and version[0] < since else 0


def _words(reason: str, failed: str) -> str:
    if reason == "function_not_found" and not hasattr(pynvml, failed):
        return NOT_IN_BINDING
    return _WORDS.get(reason, reason)


def _first_driver(text: str) -> int:
    """The first driver that has one of the ways to a value that a help text names; 0 where that isn't said of all."""
    since = [_SINCE.search(way) for way in text.split(", else ")]
    return min(int(found.group(1) or found.group(2)) if found else 0 for found in since)


def _sources(family: Family) -> Iterator[str]:
    yield from _CALL.findall(family.help)
    for numbers in _FIELDS.findall(family.help):
        for first, last in re.findall(r"(\d+)(?:-(\d+))?", numbers):
            for number in range(int(first), int(last or first) + 1):
                yield f"field {number}"
    if "GPM metric" in family.help:
        yield _GPM
