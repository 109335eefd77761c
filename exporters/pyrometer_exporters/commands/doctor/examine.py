"""Run the real collectors in this process, as the exporter does, and report on their samples."""

from __future__ import annotations

import argparse
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from pyrometer_exporters.commands.doctor import faults, problems
from pyrometer_exporters.commands.doctor import readings as reading
from pyrometer_exporters.commands.doctor.failures import Recording
from pyrometer_exporters.commands.doctor.report import Attribution, CollectorStatus, Report
from pyrometer_exporters.framework import service
from pyrometer_exporters.framework.collector import Collector, CollectorSpec, Context
from pyrometer_exporters.framework.gather import CollectorState, Gathered, Gatherer
from pyrometer_exporters.framework.metrics import Down, Sample
from pyrometer_exporters.framework.outcome import reason_of
from pyrometer_exporters.node.gpu import collector as gpu_collector
from pyrometer_exporters.node.gpu.binding import Pynvml
from pyrometer_exporters.node.gpu.driver import Driver
from pyrometer_exporters.node.gpu.inventory import PciBus
from pyrometer_exporters.node.gpu.release import REQUEST
from pyrometer_kit.clock import SystemClock
from pyrometer_kit.errors import UsageError
from pyrometer_kit.statefile import default_folder

# Together with what it takes to start, below 15 s whatever hangs.
FIRST_SECONDS, SECOND_SECONDS = 6.0, 4.0
CLOSE_SECONDS = 1.0
GPU: Final = gpu_collector.COLLECTOR.name
# Rates and the shares of GPM need two scrapes at least 100 ms apart.
PAUSE_SECONDS = 0.5


def examine(flags: argparse.Namespace, specs: Sequence[CollectorSpec]) -> Report:
    """Return a report on this node, within some 12 s.

    Raises:
        UsageError: A collector can't use a flag.
    """
    recording = Recording(Pynvml())
    context = service.context_of(flags)
    released = _released(flags)
    wanted = wanted_specs(flags, specs)
    samples, states = _scrape([(spec, _build(spec, context, recording)) for spec in wanted])
    readings = reading.Readings(samples)
    downs = {part.part: part for state in states if state.name == GPU for part in state.downs}
    whole = downs.get(Driver.PART, Down("", ""))
    report = Report(
        host=socket.gethostname(),
        driver=reading.driver(readings),
        driver_down=whole.reason,
        driver_detail=whole.detail,
        present=reading.present(readings),
        gpus=reading.gpus(readings, downs, recording.failures),
        attribution=_attribution(context.procfs, readings),
        links=reading.links(readings),
        rings=reading.rings(readings),
        collectors=[_collector(state) for state in states],
    )
    if released:
        report.notes.append(f"GPUs were not examined: the file {released} requests that every program release them")
    report.notes.extend(problems.notes(report, readings))
    if any(spec.name == GPU for spec in wanted):
        report.faults.extend(faults.faults(report, readings, PciBus(context.sysfs).gpus()))
        report.problems.extend(problems.problems(report, readings))
    report.problems.extend(problems.log_problems(report))
    report.problems.extend(f"collector {c.name} failed: {c.state}" for c in report.collectors if _failed(c))
    return report


@contextlib.contextmanager
def gpus_read(flags: argparse.Namespace, specs: Sequence[CollectorSpec]) -> Iterator[Callable[[], reading.Readings]]:
    """Yield a function that scrapes the GPU collector and returns its readings.

    Raises:
        UsageError: The collector can't use a flag, or the GPUs are released.
    """
    if released := _released(flags):
        msg = f"the file {released} requests that every program release the GPUs"
        raise UsageError(msg)
    context = service.context_of(flags)
    wanted = [spec for spec in specs if spec.name == GPU]
    gatherer = Gatherer([(spec, service.build(spec, context)) for spec in wanted], SystemClock())
    try:
        yield lambda: reading.Readings(_scraped_twice(gatherer).samples)
    finally:
        within(gatherer.close, CLOSE_SECONDS)


def wanted_specs(flags: argparse.Namespace, specs: Sequence[CollectorSpec]) -> list[CollectorSpec]:
    """Return the collectors that are switched on, without the GPUs' while those are to be let go."""
    wanted = [spec for spec in specs if getattr(flags, f"collector.{spec.name}")]
    return [spec for spec in wanted if spec.name != GPU or not _released(flags)]


def _build(spec: CollectorSpec, context: Context, recording: Recording) -> Collector:
    if spec.name == GPU:
        return gpu_collector.build(context, recording.as_nvml())
    return service.build(spec, context)


def _scrape(collectors: list[tuple[CollectorSpec, Collector]]) -> tuple[list[Sample], Iterable[CollectorState]]:
    gatherer = Gatherer(collectors, SystemClock())
    second = _scraped_twice(gatherer)
    within(gatherer.close, CLOSE_SECONDS)
    return second.samples, second.states


def _scraped_twice(gatherer: Gatherer) -> Gathered:
    """Return the second of two scrapes, which has the rates."""
    gatherer.gather(FIRST_SECONDS)
    time.sleep(PAUSE_SECONDS)
    return gatherer.gather(SECOND_SECONDS)


def within(work: Callable[[], None], seconds: float) -> bool:
    """Do the work in a thread of its own, which is left alone after so many seconds; return whether it ended."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    return not thread.is_alive()


def _released(flags: argparse.Namespace) -> str:
    request = Path(getattr(flags, "path.state") or default_folder()) / REQUEST
    try:
        age = time.time() - request.stat().st_mtime
    except OSError:
        return ""
    return str(request) if age <= getattr(flags, gpu_collector.RELEASE_FLAG) else ""


def _attribution(procfs: Path, readings: reading.Readings) -> Attribution:
    try:
        (procfs / "1" / "cgroup").read_bytes()
        cgroups = "readable"
    except OSError as error:
        cgroups = reason_of(error)
    processes = readings.summed("pyrometer_gpu_processes", "attribution")
    return Attribution(cgroups, processes)


def _collector(state: CollectorState) -> CollectorStatus:
    down = {part.part: part.reason for part in state.downs if part.part}
    word = state.failed or ("partly" if state.downs else "ok")
    return CollectorStatus(state.name, word, round(1000 * state.seconds, 1), down)


def _failed(collector: CollectorStatus) -> bool:
    return collector.state not in ("ok", "partly")
