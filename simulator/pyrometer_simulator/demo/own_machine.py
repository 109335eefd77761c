"""The machine that the demo runs on: a real node beside the simulated ones, in a cluster label of its own.

Nothing that is wrong with it belongs to the scenario, and much of it may be closed to an ordinary user or a container.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from pyrometer_kit.http_client import get

CLUSTER = "this-machine"
KERNEL_LOG = Path("/dev/kmsg")

# The exporter's words for somebody who has just typed `make demo`; other reasons are shown as the exporter has them.
_PARTS = {"nvml": "GPUs", "infiniband": "InfiniBand"}
_REASONS = {"no_driver": "no NVIDIA driver", "no_device": "no device"}
# No training rank has reported here: there is nothing to show that isn't shown.
_NOT_MISSED = {"no_rings"}


def closed_kernel_log(path: Path = KERNEL_LOG) -> str:
    """Return why the kernel's log can't be read by this user, such as `Operation not permitted`; empty if it can."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
    except OSError as error:
        return error.strerror or str(error)
    return ""


def exporter_flags(kernel_log: Path = KERNEL_LOG) -> list[str]:
    """Return the flags that suit this user: without its log the kernel collector would only raise an alert.

    Nor is this machine to be fit for training.
    """
    return ["--no-collector.checks", *(["--no-collector.kernel"] if closed_kernel_log(kernel_log) else [])]


def describe_gaps(metrics_url: str, kernel_log: Path = KERNEL_LOG) -> str:
    """Return one line with what the exporter of this machine can't show, and why; empty if that is nothing."""
    gaps = list(_gaps(_metrics(metrics_url), kernel_log))
    return f"not shown of this machine: {'; '.join(gaps)}" if gaps else ""


def _gaps(metrics: str, kernel_log: Path) -> Iterator[str]:
    reason = closed_kernel_log(kernel_log)
    if reason:
        way = "; `sysctl kernel.dmesg_restrict=0` opens it" if kernel_log.exists() else ""
        yield f"the kernel log ({kernel_log}: {reason}{way})"
    for family in text_string_to_metric_families(metrics):
        for sample in family.samples:
            why = sample.labels.get("reason", "")
            part = sample.labels.get("part", "")
            # More than one collector reads the kernel's log; its state is said already.
            if sample.name == "pyrometer_down_reason_info" and part != "kmsg" and why not in _NOT_MISSED:
                yield f"{_PARTS.get(part, part or sample.labels['collector'])} ({_REASONS.get(why, why)})"


def _metrics(url: str) -> str:
    with contextlib.suppress(OSError):
        return get(url).decode()
    return ""
