"""The program ``pyrometer-doctor``: the node exporter's flags, ``--json`` and ``--compare-nvidia-smi``.

Exit status 0 where the alert rules have all they need, 1 where something is missing, 2 for flags that can't be used. Of
a comparison: 1 where a value differs or only nvidia-smi has it.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from pyrometer_exporters import node
from pyrometer_exporters.doctor import nvidia_smi
from pyrometer_exporters.doctor.examine import examine, gpus_read
from pyrometer_exporters.doctor.text import text
from pyrometer_exporters.framework import service
from pyrometer_exporters.framework.collector import CollectorSpec
from pyrometer_exporters.framework.service import Exporter
from pyrometer_exporters.node.gpu import collector as gpu_collector
from pyrometer_exporters.node.main import NODE_EXPORTER
from pyrometer_kit import logs
from pyrometer_kit.errors import UsageError, fail

DOCTOR = Exporter(
    prog="pyrometer-doctor",
    title="What the node exporter can see on this node, what it can't, and why. Takes the node exporter's flags.",
    package=node,
    listen="127.0.0.1:9935",
    custom_group=NODE_EXPORTER.custom_group,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Look, print, and say by the exit status whether the alert rules have all they need."""
    specs, _ = service.collectors_of(DOCTOR)
    parser = service.parser(DOCTOR, specs)
    parser.add_argument("--json", dest="json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--compare-nvidia-smi", dest="compare", nargs="?", const="", metavar="FILE",
        help="only compare each value with what nvidia-smi -q -x says now, or said into FILE a moment ago",
    )  # fmt: skip
    flags = parser.parse_args(argv)
    # Each part that is down is in the report; its log line beside it would only be in the way.
    logs.set_up("error", getattr(flags, "log.format"))
    try:
        if flags.compare is not None:
            return _compare(flags, specs)
        report = examine(flags, specs)
    except UsageError as error:
        return fail(DOCTOR.prog, error)
    sys.stdout.write(_json(report) if flags.json else text(report))
    sys.stdout.flush()
    return 1 if report.problems else 0


def _compare(flags: argparse.Namespace, specs: Sequence[CollectorSpec]) -> int:
    file = Path(flags.compare) if flags.compare else None
    with gpus_read(flags, specs) as read:
        # Before and after: what nvidia-smi has to say takes it seconds. Of a file only before.
        readings = [read()]
        theirs = nvidia_smi.selected(nvidia_smi.read(file), gpu_collector.selection_of(flags))
        readings += [read()] if file is None else []
    rows = nvidia_smi.compared(readings, theirs)
    sys.stdout.write("\n".join(nvidia_smi.table(rows)) + "\n")
    sys.stdout.flush()
    return int(not rows or any(row.verdict in nvidia_smi.FAULTS for row in rows))


def _json(report: object) -> str:
    return json.dumps(dataclasses.asdict(report), indent=2, ensure_ascii=False) + "\n"  # type: ignore[call-overload]


if __name__ == "__main__":
    sys.exit(main())
