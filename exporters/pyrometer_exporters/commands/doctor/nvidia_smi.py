"""Compare the exporter's values with nvidia-smi's, field by field.

Source: ``nvidia-smi -q -x``, whose elements look like ``<gpu_temp>41 C</gpu_temp>`` or ``<current_link_width>16x``;
``nvidia_smi_fields.py`` maps them to our series.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pyrometer_exporters.commands.doctor.failures import needs_driver
from pyrometer_exporters.commands.doctor.nvidia_smi_fields import FIELDS, INSTANCE_FIELDS, TEXTS, Field, Text
from pyrometer_exporters.commands.doctor.readings import Readings, driver
from pyrometer_exporters.node.gpu.collector import COLLECTOR
from pyrometer_exporters.node.gpu.inventory import Selection, kernel_pci_id
from pyrometer_kit.errors import UsageError

SECONDS = 60.0  # a sick GPU makes it slow; a hung one would block it forever
KILL_SECONDS = 1.0
Verdict = Literal["same", "close", "differs", "only nvidia-smi", "only Pyrometer", "needs a newer driver"]
FAULTS: frozenset[Verdict] = frozenset({"differs", "only nvidia-smi"})
_WORDS = {"yes": 1.0, "no": 0.0, "active": 1.0, "not active": 0.0, "enabled": 1.0, "disabled": 0.0}
_NUMBER = re.compile(r"P?(-?\d+(?:\.\d+)?)(?:x|\b)")
_NOTHING = re.compile(r"N/A$|\[|Requested functionality|Unknown Error|GPU is lost|ERR!", re.IGNORECASE)
_INSTANCE = "GPU_I_ID"
_FAMILIES = {family.name: family for family in COLLECTOR.families}
_UP = "uuid = pyrometer_gpu_up"


@dataclass(frozen=True)
class Compared:
    """A field of one GPU in both programs; empty where one does not have it."""

    gpu: str
    """The GPU's number; a MIG device's also has its GPU instance, ``0 MIG 2``."""
    field: str
    theirs: str
    ours: str
    verdict: Verdict


def read(path: Path | None) -> dict[str, ET.Element]:
    """Return the GPUs of nvidia-smi's report by UUID, from a file or, without ``path``, by running it now.

    Raises:
        UsageError: nvidia-smi can't be run or does not end, or its output is no report.
    """
    text = _report(path)
    # It writes a plain line before the document if a GPU has fallen off the bus.
    start = text.find("<?xml")
    try:
        log = ET.fromstring(text[max(start, 0) :])  # noqa: S314  the node's own program, or this user's file
    except ET.ParseError as error:
        raise UsageError(_not_a_report(path, text, str(error) if start >= 0 else "")) from None
    if log.tag != "nvidia_smi_log":
        raise UsageError(_not_a_report(path, text, f"its root is {log.tag}"))
    gpus = {gpu.findtext("uuid", "").strip(): gpu for gpu in log.findall("gpu")}
    for gpu in gpus.values():
        gpu.extend(log.findall("driver_version"))  # one for all GPUs, but compared for each
    return gpus


def _not_a_report(path: Path | None, text: str, why: str) -> str:
    # Its output in place of a report is the reason: "Failed to initialize NVML: Driver/library version mismatch".
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    reason = why or (f"it says {first[:200]!r}" if first else "it is empty")
    return f"{path or 'nvidia-smi'}: not the output of nvidia-smi -q -x: {reason}"


def _report(path: Path | None) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace") if path is not None else _asked()
    except OSError as error:
        msg = f"{path or 'nvidia-smi'}: {error.strerror}; give a file with the output of nvidia-smi -q -x"
        raise UsageError(msg) from None


def _asked() -> str:
    command = ["nvidia-smi", "-q", "-x"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, encoding="utf-8", errors="replace"
    )
    try:
        return process.communicate(timeout=SECONDS)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        # With a limit: a process that hangs inside the driver can't be killed.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=KILL_SECONDS)
        msg = f"nvidia-smi -q -x did not finish within {SECONDS:.0f} s"
        raise UsageError(msg) from None


def selected(theirs: Mapping[str, ET.Element], selection: Selection) -> dict[str, ET.Element]:
    """Return the GPUs that the exporter's flags select; nvidia-smi lists them in the order of their numbers."""
    return {
        uuid: gpu
        for number, (uuid, gpu) in enumerate(theirs.items())
        if selection.takes(number, gpu.findtext("pci/pci_bus_id", "").strip() or None, uuid)
    }


def compared(readings: Sequence[Readings], theirs: Mapping[str, ET.Element]) -> list[Compared]:
    """Compare every field that nvidia-smi knows, for every GPU that either of the two has.

    Args:
        readings: ours, taken before and after nvidia-smi ran: a changing value lies between the two.
        theirs: nvidia-smi's GPUs by UUID.

    Raises:
        UsageError: They have no GPU in common.
    """
    ours_up = readings[0].of("pyrometer_gpu_up")
    missing = theirs.keys() - {labels["uuid"] for labels, _up in ours_up}
    if len(missing) == len(theirs):
        msg = f"none of the {len(theirs)} GPUs that nvidia-smi reports is read here"
        raise UsageError(msg)
    rows = [Compared(uuid, _UP, "1", "", "only nvidia-smi") for uuid in sorted(missing)]
    for labels, up in ours_up:
        rows.extend(_of_gpu(readings, labels["gpu"], up, theirs.get(labels["uuid"])))
    return rows


def _of_gpu(readings: Sequence[Readings], number: str, up: float, gpu: ET.Element | None) -> Iterator[Compared]:
    if gpu is None:
        yield Compared(number, _UP, "", _text(up), "only Pyrometer")
        return
    yield Compared(number, _UP, "1", _text(up), "same" if up else "differs")
    yield from (row for text in TEXTS if (row := _text_row(readings[0], number, gpu, text)))
    yield from _number_rows(readings, number, gpu, FIELDS, {"gpu": number})
    for name, device in _instances(gpu).items():
        labels = {"gpu": number, _INSTANCE: name}
        yield from _number_rows(readings, f"{number} MIG {name}", device, INSTANCE_FIELDS, labels)


def _instances(gpu: ET.Element) -> dict[str, ET.Element]:
    """Return the GPU instances, each as its first MIG device, since its devices share its memory."""
    instances: dict[str, ET.Element] = {}
    for device in gpu.findall("mig_devices/mig_device"):
        instances.setdefault(device.findtext("gpu_instance_id", "").strip(), device)
    return instances


def _text_row(readings: Readings, number: str, gpu: ET.Element, field: Text) -> Compared | None:
    if gpu.find(field.path) is None:
        return None
    theirs = gpu.findtext(field.path, "").strip()
    theirs = "" if _NOTHING.match(theirs) else theirs
    if field.label == "pci_bus_id" and theirs:
        theirs = kernel_pci_id(theirs)
    ours = next((labels[field.label] for labels, _ in readings.of(field.family, gpu=number)), "")
    if not theirs and not ours:
        return None
    verdict: Verdict = "only Pyrometer" if not theirs else "only nvidia-smi" if not ours else "differs"
    title = f"{field.path} = {field.family}.{field.label}"
    return Compared(number, title, theirs, ours, "same" if theirs == ours else verdict)


def _number_rows(
    readings: Sequence[Readings], name: str, theirs: ET.Element, fields: Iterable[Field], labels: Mapping[str, str]
) -> Iterator[Compared]:
    for field in fields:
        if not _has(theirs, field):
            continue
        path, number = _number(theirs, field)
        values = [value for reading in readings if (value := _of(reading, field, labels)) is not None]
        if number is not None or values:
            ours = min(values, key=lambda value: abs(value - (number or 0.0))) if values else None
            verdict = _verdict(number, values, field)
            if verdict == "only nvidia-smi" and needs_driver(_FAMILIES[field.family], driver(readings[0])["driver"]):
                verdict = "needs a newer driver"
            yield Compared(name, f"{path} = {_title(field)}", _text(number), _text(ours), verdict)


def _has(gpu: ET.Element, field: Field) -> bool:
    """Return whether this driver's nvidia-smi knows the field, even as ``N/A``."""
    return any(gpu.find(part) is not None for path in field.paths for part in path.split("+"))


def _number(gpu: ET.Element, field: Field) -> tuple[str, float | None]:
    """Return the field's path in this driver, and its value in our unit, or None if missing or ``N/A``."""
    for path in field.paths:
        numbers = [_one_number(gpu.findtext(part, "").strip(), field) for part in path.split("+")]
        readable = [number for number in numbers if number is not None]
        if len(readable) == len(numbers):
            return path, sum(readable)
    return field.paths[0], None


def _one_number(text: str, field: Field) -> float | None:
    words = _WORDS if field.words is None else field.words
    if text.lower() in words:
        return words[text.lower()]
    number = _NUMBER.match(text)
    return float(number.group(1)) * field.scale if number else None


def _of(readings: Readings, field: Field, wanted: Mapping[str, str]) -> float | None:
    for labels, value in readings.of(field.family, **wanted, **field.labels):
        if (_INSTANCE in labels) == (_INSTANCE in wanted):
            return float(bool(int(value) & field.bit)) if field.bit else value
    return None


def _verdict(theirs: float | None, ours: Sequence[float], field: Field) -> Verdict:
    if theirs is None:
        return "only Pyrometer"
    if not ours:
        return "only nvidia-smi"
    # nvidia-smi writes at most two decimals, and microseconds.
    if any(abs(theirs - value) <= 0.005 for value in ours):
        return "same"
    least, most = min(ours), max(ours)
    slack = max(field.slack, field.share * max(abs(theirs), abs(least), abs(most)))
    return "close" if least - slack <= theirs <= most + slack else "differs"


def _title(field: Field) -> str:
    labels = ",".join(f'{name}="{value}"' for name, value in field.labels.items())
    return f"{field.family}{f'{{{labels}}}' if labels else ''}{f' & {field.bit:#x}' if field.bit else ''}"


def table(rows: Iterable[Compared]) -> Iterator[str]:
    """Return the lines of the comparison as a Markdown table, and last the count of each verdict.

    Rows are grouped by field, and GPUs with the same values share one.
    """
    by_field: dict[str, dict[tuple[str, ...], list[str]]] = {}
    counts: dict[str, int] = {}
    for row in rows:
        lines = by_field.setdefault(row.field, {})
        lines.setdefault((row.theirs, row.ours, row.verdict), []).append(row.gpu)
        counts[row.verdict] = counts.get(row.verdict, 0) + 1
    yield "| GPU | nvidia-smi -q -x | Pyrometer | nvidia-smi's value | our value | verdict |"
    yield "|---|---|---|---|---|---|"
    for field, lines in by_field.items():
        names = [f"`{name}`" for name in field.split(" = ")]
        for cells, gpus in lines.items():
            yield f"| {','.join(gpus)} | {' | '.join((*names, *cells))} |"
    yield ""
    yield ", ".join(f"{count} {verdict}" for verdict, count in counts.items()) or "no GPU to compare"


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:.6f}".rstrip("0").rstrip(".")
