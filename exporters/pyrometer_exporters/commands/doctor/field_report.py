"""Write everything that a bug report needs into one archive, and print the summary of one.

Each part is made on its own, with a deadline: a GPU that hangs, a driver that isn't there or a part that fails costs
that part alone, and the summary says so. All parts together stay below :data:`TOTAL_SECONDS`::

    examine      the doctor's report, over a recorder: the tape of the driver's answers      12 s at most
    latencies    more scrapes of the GPUs over the recorder, up to 100 calls of a function    8 s
    pages        /metrics and /batches twice, as the exporter serves them; the sampler's CPU 12 s
    nvidia-smi   the comparison, value by value                                              12 s
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import dataclasses
import getpass
import io
import json
import logging
import re
import socket
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pynvml

from pyrometer_exporters.commands.doctor import environment, nvidia_smi
from pyrometer_exporters.commands.doctor.examine import examine, gpus_read, wanted_specs, within
from pyrometer_exporters.commands.doctor.field_report_summary import Parts, milliseconds, summary
from pyrometer_exporters.commands.doctor.redaction import HARDWARE_LABELS, LABEL, Redactor
from pyrometer_exporters.commands.doctor.report import Report
from pyrometer_exporters.commands.doctor.tape import FILE_NAME, SAMPLER, Recorder, under_pynvml
from pyrometer_exporters.framework import service
from pyrometer_exporters.framework.collector import Collector, CollectorSpec, Endpoint
from pyrometer_exporters.framework.exposition import Renderer
from pyrometer_exporters.framework.gather import Gatherer
from pyrometer_exporters.node.gpu import collector as gpu_collector
from pyrometer_kit.clock import SystemClock
from pyrometer_kit.errors import UsageError
from pyrometer_kit.http_message import Request
from pyrometer_kit.logs import Logfmt

TOTAL_SECONDS = 60.0
MAX_BYTES = 5 << 20
_FOLDER = "pyrometer-field-report"
_SUMMARY = "summary.md"
_EXAMINE_SECONDS, _LATENCY_SECONDS, _PAGES_SECONDS, _COMPARE_SECONDS = 15.0, 8.0, 12.0, 12.0
_BETWEEN_PAGES_SECONDS = 5.0  # long enough to measure the sampler's share of a core to a tenth of a percent
_SCRAPE_SECONDS = 3.0
_MOST_FILE = 2 << 20  # of one file before compression, but the tape
_MOST_SUMMARY = 1 << 20
_MOST_SHOWN = 40
_HOLDS = {
    _SUMMARY: "faults, what is missing, the doctor's report, the machine",
    "report.json": "the doctor's report",
    "metrics-1.txt": "the page /metrics of the node",
    "metrics-2.txt": "the same, a moment later",
    "batches-1.txt": "the page /batches: steps of training runs, without names",
    "batches-2.txt": "the same, a moment later",
    "environment.txt": "versions, rights and limits of the process and the system",
    "exporter.log": "what the exporter would have logged",
    "latency.csv": "how long calls of the driver took",
    "nvidia-smi.md": "our values beside nvidia-smi's",
    FILE_NAME: "the driver's answers, for a replay",
}


def write(
    path: Path,
    flags: argparse.Namespace,
    specs: Sequence[CollectorSpec],
    *,
    redact: bool = True,
    agrees: Callable[[Mapping[str, str]], bool] = lambda _files: True,
) -> Report | None:
    """Write the archive, for its owner alone; return the doctor's report, None where it could not be made.

    Args:
        path: of the archive; one that exists is replaced, and no link is followed.
        flags: those of the node exporter.
        specs: of the collectors.
        redact: False to keep every name.
        agrees: whether to write these files, by their names, as they will be in it.

    Raises:
        UsageError: the file can't be written.
    """
    hidden = ""
    try:
        descriptor, hidden = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # before a minute of work
        with open(descriptor, "wb") as file:
            parts = _gathered(flags, specs)
            files = _redacted(parts, _redactor(parts) if redact else None)
            if agrees(files):
                file.write(_archive(files))
                file.flush()
                Path(hidden).replace(path)
                hidden = ""
    except OSError as error:
        msg = f"--field-report: {path}: {error.strerror}"
        raise UsageError(msg) from None
    finally:
        if hidden:
            Path(hidden).unlink(missing_ok=True)
    return parts.report


def contents(files: Mapping[str, str], *, redacted: bool) -> str:
    """Return what the files hold and what of the site is in them, for the person who sends them."""
    sizes = [
        f"  {name:16} {len(content.encode(errors='replace')):>9,} bytes  {_HOLDS.get(name, '')}"
        for name, content in files.items()
    ]
    hardware = sorted(
        {
            f"{match['name']}: {match['value']}"
            for content in files.values()
            for match in re.finditer(LABEL, content)
            if match["name"] in HARDWARE_LABELS and match["value"]
        }
    )
    said = "Every name of this site is in it: --no-redact."
    if redacted:
        said = (
            "Of this site it has numbers, names of devices, versions of the system, and the hardware below. Every word"
            " that is not our programs' or the driver's is replaced."
        )
    return (
        "\n".join(["The field report will hold:", *sizes, said, *(f"  {line}" for line in hardware[:_MOST_SHOWN])])
        + "\n"
    )


def summary_of(path: Path) -> str:
    """Return the summary in a report.

    Raises:
        UsageError: the file can't be read or is no report.
    """
    try:
        with tarfile.open(path) as archive:
            member = next((entry for entry in archive if entry.isfile() and entry.name.endswith(f"/{_SUMMARY}")), None)
            content = archive.extractfile(member) if member is not None else None
            if content is not None:
                return content.read(_MOST_SUMMARY).decode(errors="replace")
    except OSError as error:
        msg = f"--read: {path}: {error.strerror or error}"
        raise UsageError(msg) from None
    except (tarfile.TarError, EOFError, ValueError):
        pass  # as below
    msg = f"--read: {path} is not a field report: make one with pyrometer-doctor --field-report FILE.tar.gz"
    raise UsageError(msg)


def _gathered(flags: argparse.Namespace, specs: Sequence[CollectorSpec]) -> Parts:
    """Make all parts, each within its deadline."""
    parts = Parts()
    log = io.StringIO()
    recorder = _recorder()
    with _logged(log):
        with under_pynvml(recorder) if recorder is not None else contextlib.nullcontext():
            _part(parts, "examination", _EXAMINE_SECONDS, lambda: _examined(parts, flags, specs))
            if recorder is not None:
                _part(parts, "latencies", _LATENCY_SECONDS + 2, lambda: _timed(flags, specs, recorder))
        _part(parts, "pages", _PAGES_SECONDS, lambda: _pages(parts, flags, specs))
        _part(parts, "comparison with nvidia-smi", _COMPARE_SECONDS, lambda: _compared(parts, flags, specs))
    context = service.context_of(flags)
    parts.files["environment.txt"] = "".join(f"{k}: {v}\n" for k, v in environment.lines(context.procfs))
    if recorder is not None:
        parts.files[FILE_NAME] = recorder.text()
        parts.files["latency.csv"] = _latency_table(recorder)
    parts.files["exporter.log"] = log.getvalue()
    parts.files[_SUMMARY] = summary(parts, recorder)
    return parts


def _recorder() -> Recorder | None:
    library = pynvml.nvmlLib  # a stand-in, or what was loaded before
    if library is None:
        try:
            library = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            return None
    return Recorder(library)


@contextlib.contextmanager
def _logged(into: io.StringIO) -> Iterator[None]:
    """Collect the log of all collectors, as the exporter would write it."""
    handler = logging.StreamHandler(into)
    handler.setFormatter(Logfmt())
    logger = logging.getLogger("pyrometer_exporters")
    level, propagates = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False  # the terminal is for what became of the report
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagates


def _part(parts: Parts, name: str, seconds: float, make: Callable[[], None]) -> None:
    """Make one part in a thread of its own; note why it is missing where it fails or doesn't end."""
    failure: list[str] = []

    def guarded() -> None:
        try:
            make()
        except UsageError as error:
            failure.append(str(error))
        except Exception as error:  # noqa: BLE001  one part must not cost the others
            failure.append(f"{type(error).__name__}: {error}")

    if not within(guarded, seconds):
        failure.append(f"not finished within {seconds:.0f} s")
    parts.gaps.extend(f"{name}: {why}" for why in failure)


def _examined(parts: Parts, flags: argparse.Namespace, specs: Sequence[CollectorSpec]) -> None:
    report = examine(flags, specs)
    parts.report = report
    parts.files["report.json"] = json.dumps(dataclasses.asdict(report), indent=2) + "\n"


def _timed(flags: argparse.Namespace, specs: Sequence[CollectorSpec], recorder: Recorder) -> None:
    """Scrape the GPUs again and again, so that each function is called often enough for a p99."""
    end = time.monotonic() + _LATENCY_SECONDS
    while time.monotonic() < end and not recorder.under_way_for(_SCRAPE_SECONDS):
        with gpus_read(flags, specs) as read:
            read()


def _pages(parts: Parts, flags: argparse.Namespace, specs: Sequence[CollectorSpec]) -> None:
    """Take both pages twice, without the recorder, and the sampler's CPU between them."""
    context = service.context_of(flags)
    collectors = [(spec, service.build(spec, context)) for spec in wanted_specs(flags, specs)]
    gatherer = Gatherer(collectors, SystemClock())
    renderer = Renderer()
    try:
        for number in (1, 2):
            before, start = _sampler_cpu(), time.monotonic()
            if number == 2:
                time.sleep(_BETWEEN_PAGES_SECONDS)
                parts.sampler_cpu = (_sampler_cpu() - before) / (time.monotonic() - start)
            parts.files[f"metrics-{number}.txt"] = renderer.text(gatherer.gather(_SCRAPE_SECONDS).samples).decode()
            parts.files[f"batches-{number}.txt"] = _batches(collectors)
    finally:
        within(gatherer.close, 1.0)


def _batches(collectors: Sequence[tuple[CollectorSpec, Collector]]) -> str:
    for _spec, collector in collectors:
        endpoints: Mapping[str, Endpoint] = getattr(collector, "endpoints", dict)()
        if "/batches" in endpoints:
            return endpoints["/batches"](Request("GET", "/batches", {}, b"")).body.decode(errors="replace")
    return ""


def _sampler_cpu() -> float:
    """Return the CPU seconds of the sampler's threads that live."""
    seconds = 0.0
    for thread in threading.enumerate():
        if thread.name == SAMPLER and thread.ident is not None:
            with contextlib.suppress(OSError):  # it has just ended
                seconds += time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
    return seconds


def _compared(parts: Parts, flags: argparse.Namespace, specs: Sequence[CollectorSpec]) -> None:
    with gpus_read(flags, specs) as read:
        before = read()
        theirs = nvidia_smi.selected(nvidia_smi.read(None), gpu_collector.selection_of(flags))
        rows = nvidia_smi.compared([before, read()], theirs)
    parts.files["nvidia-smi.md"] = "\n".join(nvidia_smi.table(rows)) + "\n"
    verdicts = [row.verdict for row in rows]
    parts.verdicts = {verdict: verdicts.count(verdict) for verdict in dict.fromkeys(verdicts)}
    parts.differing = list(nvidia_smi.table([row for row in rows if row.verdict in nvidia_smi.FAULTS]))[:40]


def _latency_table(recorder: Recorder) -> str:
    rows = [f"{name},{len(took)},{milliseconds(took)}" for name, took in sorted(recorder.seconds.items())]
    return "\n".join(["function,calls,p50_ms,p99_ms,max_ms", *rows]) + "\n"


def _redactor(parts: Parts) -> Redactor:
    redactor = Redactor()
    redactor.learn_host(socket.gethostname())
    with contextlib.suppress(OSError, KeyError, ImportError, RuntimeError):  # a uid without a name or a home
        redactor.learn(name for name in (getpass.getuser(), Path.home().name) if name != "root")
    for name, content in parts.files.items():
        if name.endswith(".txt"):
            redactor.learn_page(content)
    # The driver's own names of its settings; their values are numbers, or texts that a site chose.
    redactor.allow(re.findall(r"^driver/nvidia/params: (\w+):", parts.files["environment.txt"], re.MULTILINE))
    if parts.report is not None:
        redactor.learn([gpu.uuid for gpu in parts.report.gpus])
    return redactor


def _redacted(parts: Parts, redactor: Redactor | None) -> dict[str, str]:
    """Return the files as they leave the site: the summary first, the tape last."""
    files = {}
    for name in sorted(parts.files, key=lambda name: (name != _SUMMARY, name == FILE_NAME, name)):
        content, is_tape = parts.files[name], name == FILE_NAME
        if redactor is not None:
            filtered = redactor.tape if is_tape else redactor.json if name.endswith(".json") else redactor.text
            content = filtered(content)
        files[name] = content if is_tape else content[:_MOST_FILE]
    return files


def _archive(files: Mapping[str, str]) -> bytes:
    """Return the archive, without the tape if it would be too large."""
    archive = _packed(files)
    if len(archive) <= MAX_BYTES:
        return archive
    said = f"\nThe tape is left out: the report would be larger than {MAX_BYTES >> 20} MB.\n"
    return _packed({name: text + said * (name == _SUMMARY) for name, text in files.items() if name != FILE_NAME})


def _packed(files: Mapping[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            data = content.encode(errors="replace")
            member = tarfile.TarInfo(f"{_FOLDER}/{name}")
            member.size, member.mtime, member.mode = len(data), int(time.time()), 0o600
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()
