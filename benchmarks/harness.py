"""Helpers of the benchmarks: a node exporter as a process of its own, orderly exit, budgets, generated tables."""

from __future__ import annotations

import contextlib
import importlib
import math
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType


@contextlib.contextmanager
def node_exporter(
    flags: Sequence[str], module: Sequence[str] = ("-m", "pyrometer_exporters.node.main")
) -> Iterator[tuple[int, int]]:
    """Run a node exporter for the length of the block; yield its process id and port.

    ``module`` is the start of Python's command line, for a variant of the exporter.
    """
    command = [sys.executable, *module, "--web.listen-address=127.0.0.1:0", *flags]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            for line in process.stderr:
                address = re.search(r"listening on [^ ]*?:(\d+)", line)
                if address:
                    yield process.pid, int(address[1])
                    return
        finally:
            process.terminate()


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
