"""The program ``pyrometer-doctor``: the node exporter's flags, and ``--json``.

Exit status 0 where the alert rules have all they need, 1 where something is missing, 2 for flags that can't be used.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence

from pyrometer_exporters import node
from pyrometer_exporters.doctor.examine import examine
from pyrometer_exporters.doctor.text import text
from pyrometer_exporters.framework import logs, service
from pyrometer_exporters.framework.collector import discover
from pyrometer_exporters.framework.flags import UsageError, fail
from pyrometer_exporters.framework.service import Exporter

DOCTOR = Exporter(
    prog="pyrometer-doctor",
    title="What the node exporter can see on this node, what it can't, and why. Takes the node exporter's flags.",
    package=node,
    listen="127.0.0.1:9935",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Look, print, and say by the exit status whether the alert rules have all they need."""
    specs = discover(DOCTOR.package)
    parser = service.parser(DOCTOR, specs)
    parser.add_argument("--json", dest="json", action="store_true", help="print one JSON object")
    flags = parser.parse_args(argv)
    # Each part that is down is in the report; its log line beside it would only be in the way.
    logs.set_up("error", getattr(flags, "log.format"))
    try:
        report = examine(flags, specs)
    except UsageError as error:
        return fail(DOCTOR.prog, error)
    sys.stdout.write(_json(report) if flags.json else text(report))
    sys.stdout.flush()
    return 1 if report.problems else 0


def _json(report: object) -> str:
    return json.dumps(dataclasses.asdict(report), indent=2, ensure_ascii=False) + "\n"  # type: ignore[call-overload]


if __name__ == "__main__":
    sys.exit(main())
