"""The summary of a field report: what a person reads first."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median, quantiles

from pyrometer_exporters.commands.doctor.problems import NEXT
from pyrometer_exporters.commands.doctor.report import Report, render
from pyrometer_exporters.commands.doctor.tape import Recorder


@dataclass
class Parts:
    """The files of a report by name, and why a part is missing or short."""

    files: dict[str, str] = field(default_factory=dict)
    gaps: list[str] = field(default_factory=list)
    report: Report | None = None
    verdicts: Mapping[str, int] = field(default_factory=dict)
    differing: list[str] = field(default_factory=list)
    sampler_cpu: float | None = None
    """The sampler's share of a core, 0 to 1."""


def summary(parts: Parts, recorder: Recorder | None) -> str:
    """Return the page that a person reads first."""
    sections = [
        ("Faults and problems", _found(parts)),
        ("Not in this report", [f"- {gap}" for gap in parts.gaps]),
        ("The doctor's report", ["```", *(render(parts.report).splitlines() if parts.report else []), "```"]),
        ("Against nvidia-smi", _against(parts)),
        ("Calls of the driver", _calls(recorder)),
        ("Sampler", _sampler(parts, recorder)),
        ("Machine", ["```", *parts.files["environment.txt"].splitlines(), "```"]),
        ("Log, its last lines", ["```", *_log_lines(parts.files["exporter.log"]), "```"]),
    ]
    body = [line for title, lines in sections if lines for line in ("", f"## {title}", "", *lines)]
    stamp = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    head = " ".join([f"{_verdict(parts)}.", *_node(parts.report), f"Made {stamp}."])
    return "\n".join(["# Pyrometer field report", "", head, *body]) + "\n"


def _node(report: Report | None) -> Iterator[str]:
    """Yield a sentence about the node's GPUs and driver, where it could be examined."""
    if report is not None:
        on_bus, read = report.present.get("pci"), sum(not gpu.down for gpu in report.gpus)
        driver = report.driver["driver"]
        yield (
            f"GPUs: {'an unknown number' if on_bus is None else on_bus} on the PCI bus, {read} of them are readable;"
            f" {f'driver {driver}' if driver else 'no driver answers'}."
        )


def _verdict(parts: Parts) -> str:
    if parts.report is None:
        return "The node could not be examined"
    faults, problems, gaps = len(parts.report.faults), len(parts.report.problems), len(parts.gaps)
    if faults + problems == 0:
        return "No fault found" + (f", {gaps} parts could not be written" if gaps else "")
    return f"Faults: {faults}; metrics that alerts need and lack: {problems}"


def _found(parts: Parts) -> list[str]:
    if parts.report is None:
        return []
    faults = [
        f"- **{fault.what}**\n  Next: {fault.next_step}. Runbook: {fault.alert}." for fault in parts.report.faults
    ]
    return [*faults, *map(_problem, parts.report.problems)] or ["None."]


def _problem(text: str) -> str:
    what, _, step = text.partition(NEXT)
    return f"- **{what}**" + (f"\n  Next: {step}." if step else "")


def _against(parts: Parts) -> list[str]:
    counts = ", ".join(f"{count} {verdict}" for verdict, count in parts.verdicts.items())
    return [f"{counts}.", "", *(parts.differing if len(parts.differing) > 2 else [])] if counts else []


def _calls(recorder: Recorder | None) -> list[str]:
    if recorder is None:
        return ["No libnvidia-ml.so.1 on this machine, or not in this container: no tape and no latencies."]
    now = time.monotonic()
    since: dict[str, list[float]] = {}
    for key, start in recorder.still_under_way():
        since.setdefault(key, []).append(now - start)
    hanging = [
        f"- `{key}` has not returned for {max(all_of):.0f} s" + (f" ({len(all_of)} calls)" if len(all_of) > 1 else "")
        for key, all_of in since.items()
    ]
    slowest = sorted(recorder.seconds.items(), key=lambda item: -max(item[1]))[:15]
    rows = [f"| {name} | {len(took)} | {milliseconds(took).replace(',', ' | ')} |" for name, took in slowest if took]
    head = ["| function | calls | p50 ms | p99 ms | max ms |", "|---|---|---|---|---|"]
    return [*hanging, "", *head, *rows, "", "The slowest 15; all are in latency.csv."]


def _log_lines(log: str) -> list[str]:
    """Return the last different lines; a repeated one only once, with its count."""
    counts = Counter(line.partition(" ")[2] for line in log.splitlines())
    return [line + (f"  ({count} times)" if count > 1 else "") for line, count in counts.items()][-30:]


def _sampler(parts: Parts, recorder: Recorder | None) -> list[str]:
    lines = []
    for key, at in sorted(recorder.reads.items()) if recorder is not None else ():
        gaps = [after - before for before, after in pairwise(at)]
        if gaps and median(gaps) > 0:  # the median: the sampler ends and begins again with each collector
            lines.append(f"- `{key}`: {1 / median(gaps):.1f} reads a second")
    if parts.sampler_cpu is not None and lines:
        lines.append(f"- CPU of the sampler: {100 * parts.sampler_cpu:.2f} % of a core")
    return lines


def milliseconds(took: Sequence[float]) -> str:
    """Return p50, p99 and the maximum of seconds, as milliseconds between commas."""
    cuts = quantiles(took, n=100, method="inclusive") if len(took) > 1 else [took[0]] * 99
    return ",".join(f"{1000 * value:.3f}" for value in (cuts[49], cuts[98], max(took)))
