"""Experiment h: which process and job we say holds the GPU, while it does and after it has ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from pyrometer_exporters.commands.gpu_check.check import Check, Experiment, Report
from pyrometer_exporters.commands.gpu_check.exporter import Page, exporter
from pyrometer_exporters.commands.gpu_check.load import IDLE
from pyrometer_exporters.commands.gpu_check.place import Place
from pyrometer_exporters.node.gpu.jobs import job_of_cgroup

_PROCESSES, _INFO = "pyrometer_gpu_processes", "pyrometer_gpu_job_info"
_GONE_SECONDS = 10.0
CHECKS = (
    Check("process", "processes on the GPU while a program of ours holds it", "one more, attributed as its cgroup is"),
    Check("job", "the job that holds it", "the job of its cgroup, none where it has none"),
    Check("ended", "processes after it has ended", "as before, within 10 s"),
)


def run(place: Place, report: Report) -> None:
    """Look before, while and after a program holds the GPU."""
    if not place.loads:
        report.skipped_rest("no PyTorch with CUDA: no process to attribute")
        return
    with exporter(place) as ours:
        before = _counts(ours.scrape())
        with place.child("load", phases=[{"name": "hold", "kind": IDLE, "seconds": 60}]) as load:
            pid = load.line()["pid"]
            cgroup = Path(f"/proc/{pid}/cgroup").read_text()
            page = ours.scrape()
        during = _counts(page)
        jobs = sorted(labels["job_id"] for labels, _ in page.samples(_INFO))
        took, after = _until_gone(ours.scrape, before)
    expected = job_of_cgroup(cgroup)
    report.raw("processes", {"before": before, "during": during, "after": after, "pid": pid, "cgroup": cgroup})
    new = {name: during.get(name, 0) - before.get(name, 0) for name in during}
    right = {name: float(name == ("job" if expected else "none")) for name in new}
    note = "hidden: the driver reports numbers of another PID namespace" if new.get("hidden") else ""
    measured = ", ".join(f"{name} {count:+.0f}" for name, count in new.items())
    report.passed("process", measured, ok=new == right, note=note)
    report.passed("job", ", ".join(jobs) or "none", ok=(expected in jobs) if expected else not jobs)
    report.passed("ended", f"as before after {took:.1f} s" if after == before else str(after), ok=after == before)


def _counts(page: Page) -> dict[str, float]:
    return page.by(_PROCESSES, "attribution")


def _until_gone(scrape: Callable[[], Page], before: dict[str, float]) -> tuple[float, dict[str, float]]:
    begin = time.monotonic()
    while True:
        counts, took = _counts(scrape()), time.monotonic() - begin
        if counts == before or took > _GONE_SECONDS:
            return took, counts
        time.sleep(0.25)


EXPERIMENT = Experiment("h", "Jobs", 40, CHECKS, run)
