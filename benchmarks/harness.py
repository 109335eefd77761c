"""Helpers of the benchmarks: a node exporter as a process of its own, orderly exit, budgets, generated tables."""

from __future__ import annotations

import importlib
import math
import os
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from pyrometer_exporters.commands.gpu_check.exporter import node_exporter  # noqa: F401  for the benchmarks

# Benchmarks are started as files: what they import from tools/ is found because they import this module first.
sys.path.append(str(Path(__file__).resolve().parents[1]))


def need_pytorch() -> ModuleType:
    """Return torch; end with one line where it is not installed."""
    try:
        return importlib.import_module("torch")
    except ImportError:
        sys.exit("no PyTorch here: make test-integrations makes .venv-integrations, which has it")


def exit_on_signals() -> None:
    """Let SIGTERM and Ctrl-C end this process so that child processes end and temporary folders are removed.

    A shell starts what it runs in the background with SIGINT ignored, and Python then leaves it so.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    signal.signal(signal.SIGINT, signal.default_int_handler)


def rss_megabytes(pid: int) -> float:
    """Return the resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of all threads of a process, ended ones included, to the nanosecond."""
    return time.clock_gettime(~pid << 3 | 2)  # its CPU-time clock, with the number of clock_getcpuclockid(3)


def within_budget(what: str, value: float, budget: float, unit: str) -> bool:
    """Print a measured value beside its budget (docs/design.md); return whether the budget is met."""
    met = value <= budget
    print(f"  {what:42} {value:8.3f} {unit}, budget {budget:g} {unit}: {'met' if met else 'NOT MET'}")
    return met


def p99(values: Iterable[float]) -> float:
    """Return the smallest of the values that 99 % of them do not exceed."""
    ordered = sorted(values)
    return ordered[math.ceil(0.99 * len(ordered)) - 1]


def replace_between_marks(page: Path, begin: str, end: str, text: str) -> None:
    """Replace the text between two marks of a page."""
    before, _, rest = page.read_text(encoding="utf-8").partition(begin)
    page.write_text(before + begin + text + end + rest.partition(end)[2], encoding="utf-8")
