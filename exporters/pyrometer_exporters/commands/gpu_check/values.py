"""Experiment a: our values against nvidia-smi's, idle and under load, and the field report, whose tape is a fixture."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time

from pyrometer_exporters.commands.gpu_check.check import Check, Experiment, Report
from pyrometer_exporters.commands.gpu_check.load import PRODUCTS
from pyrometer_exporters.commands.gpu_check.place import Place

FIELD_REPORT = "field-report.tar.gz"
_MOST_BYTES, _MOST_SECONDS = 5 << 20, 60.0
CHECKS = (
    Check("idle", "every value against `nvidia-smi -q -x`, idle", "nothing differs"),
    Check("load", "the same under load", "nothing differs"),
    Check("report", "field report: size and time", "below 5 MB and 60 s"),
)


def run(place: Place, report: Report) -> None:
    """Compare twice and make the field report between, while the load runs."""
    with place.nvidia_smi():
        _compare(place, report, "idle")
        phases = [{"name": "load", "kind": PRODUCTS, "seconds": place.seconds(60)}]
        if not place.loads:
            report.skipped("load", "no PyTorch with CUDA: no load")
            _field_report(place, report)
            return
        with place.child("load", phases=phases) as load:
            load.line()
            load.go()
            load.line()
            time.sleep(place.seconds(2))
            _compare(place, report, "load")
            _field_report(place, report)


def _compare(place: Place, report: Report, check: str) -> None:
    if shutil.which("nvidia-smi") is None:
        report.skipped(check, "no nvidia-smi here")
        return
    done = _doctor(place, "--compare-nvidia-smi")
    rows = done.stdout.strip().splitlines()
    report.raw(f"nvidia-smi, {check}", rows or done.stderr[-2000:])
    wrong = [row for row in rows if row.endswith(("| differs |", "| only nvidia-smi |"))]
    counts = rows[-1] if rows else done.stderr.strip()[-200:]
    report.passed(check, counts, ok=done.returncode == 0, note="; ".join(wrong)[:600])


def _field_report(place: Place, report: Report) -> None:
    path = place.folder / FIELD_REPORT
    begin = time.monotonic()
    done = _doctor(place, f"--field-report={path}")
    took = time.monotonic() - begin
    size = path.stat().st_size if path.exists() else 0
    good = 0 < size <= _MOST_BYTES and took <= _MOST_SECONDS and done.returncode in (0, 1)
    measured = f"{size / 1e6:.2f} MB, {took:.0f} s" if size else done.stderr.strip()[-200:]
    report.passed("report", measured, ok=good)


def _doctor(place: Place, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *place.doctor_module(), *place.node_paths(), *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=max(5.0, place.left()), check=False)


EXPERIMENT = Experiment("a", "Values", 90, CHECKS, run)
