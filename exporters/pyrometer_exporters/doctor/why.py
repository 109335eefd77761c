"""Why a metric is absent: from what its own help text names as its source, and from what failed there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from pyrometer_exporters.framework.metrics import Family
from pyrometer_exporters.node.gpu.clock_events import version_numbers

_CALL = re.compile(r"\bnvml[A-Z]\w+?(?=_v\d+\b|\b)")
_FIELDS = re.compile(r"\bfields? ((?:\d+(?:-\d+)?(?:, | and | or )?)+)")
_SINCE = re.compile(r"\bdriver (\d{3}) and newer|\bR(\d{3}) and newer")
_GPM = "nvmlGpm"

_WORDS = {
    "not_supported": "not supported by this GPU or driver",
    "function_not_found": "not in this driver's library or not in the installed nvidia-ml-py",
    "no_permission": "only root may read it",
    "invalid_argument": "not known to this driver",
    "corrupted_inforom": "the GPU's InfoROM is corrupted",
    "no_data": "the driver has no data yet",
    "argument_version_mismatch": "the installed nvidia-ml-py and the driver's library differ",
}
NOTHING = "nothing to tell on this node at present"


def why_absent(family: Family, driver: str, failures: Mapping[str, str]) -> str:
    """In a few words why a GPU has no sample of ``family``; ``failures`` are reasons by call or field."""
    since = _SINCE.search(family.help)
    version = version_numbers(driver)
    only = since is not None and ", else " not in family.help  # an older driver has no other way to the same
    if since is not None and only and version and version[0] < int(since.group(1) or since.group(2)):
        return f"needs driver {since.group(1) or since.group(2)} or newer"
    for source in _sources(family):
        for failed, reason in failures.items():
            if failed == source or (source.startswith("nvml") and failed.startswith(source)):
                return f"{_WORDS.get(reason, reason)} ({failed})"
    return NOTHING


def _sources(family: Family) -> Iterator[str]:
    yield from _CALL.findall(family.help)
    for numbers in _FIELDS.findall(family.help):
        for first, last in re.findall(r"(\d+)(?:-(\d+))?", numbers):
            for number in range(int(first), int(last or first) + 1):
                yield f"field {number}"
    if "GPM metric" in family.help:
        yield _GPM
