"""The program ``pyrometer-doctor``: takes the node exporter's flags, and asks the monitoring with ``--stack``.

Exit status 0 if the alert rules have all they need, 1 if something is missing, 2 for flags that can't be used. A
comparison ends with 1 if a value differs or only nvidia-smi has it.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from pyrometer_exporters import node
from pyrometer_exporters.commands.doctor import field_report, nvidia_smi
from pyrometer_exporters.commands.doctor.examine import examine, gpus_read
from pyrometer_exporters.commands.doctor.report import render
from pyrometer_exporters.framework import service
from pyrometer_exporters.framework.collector import CollectorSpec
from pyrometer_exporters.framework.service import Exporter
from pyrometer_exporters.node.gpu import collector as gpu_collector
from pyrometer_exporters.node.main import NODE_EXPORTER
from pyrometer_kit import logs, webconfig
from pyrometer_kit.errors import UsageError, fail

DOCTOR = Exporter(
    prog="pyrometer-doctor",
    title="Report what the node exporter can and can't serve on this node, and why. Takes the node exporter's flags.",
    package=node,
    listen="127.0.0.1:9935",
    custom_group=NODE_EXPORTER.custom_group,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the report and return the exit status: 1 if something is at fault or the alert rules lack something."""
    specs, _ = service.collectors_of(DOCTOR)
    parser = service.parser(DOCTOR, specs)
    parser.add_argument("--json", dest="json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--compare-nvidia-smi", dest="compare", nargs="?", const="", metavar="FILE",
        help="only compare each value with nvidia-smi -q -x, run now or written to FILE a moment ago",
    )  # fmt: skip
    parser.add_argument(
        "--field-report", dest="field_report", type=Path, metavar="FILE.tar.gz",
        help="write everything that a bug report needs into one archive, in less than a minute; every word that is not "
             "our programs' or the driver's is replaced. Shows what is in it, and asks before it writes",
    )  # fmt: skip
    parser.add_argument(
        "--yes",
        dest="yes",
        action="store_true",
        help="write the field report without a question; as without a terminal",
    )
    parser.add_argument(
        "--no-redact", dest="redact", action="store_false", help="don't replace names in the field report"
    )
    parser.add_argument("--read", dest="read", type=Path, metavar="FILE.tar.gz", help="print a field report's summary")
    _add_stack(parser)
    flags = parser.parse_args(argv)
    # The report lists each part that is down, so its log line is not needed.
    logs.set_up("error", getattr(flags, "log.format"))
    try:
        if flags.compare is not None:
            return _compare(flags, specs)
        if flags.stack:
            return _stack(flags)
        if flags.read is not None:
            sys.stdout.write(field_report.summary_of(flags.read))
            return 0
        if flags.field_report is not None:
            return _field_report(flags, specs)
        webconfig.load(getattr(flags, "web.config.file"))  # the exporter with these flags would not start
        report = examine(flags, specs)
    except UsageError as error:
        return fail(DOCTOR.prog, error)
    sys.stdout.write(_json(report) if flags.json else render(report))
    sys.stdout.flush()
    return 1 if report.problems or report.faults else 0


def _add_stack(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--stack", dest="stack", action="store_true",
        help="check with Prometheus, Alertmanager, Grafana and the alerting service whether everything "
             "arrives; needs no GPU",
    )  # fmt: skip
    for flag, what in {
        "prometheus.url": "Prometheus, or any server with its API",
        "rules.url": "what evaluates the rules, where Prometheus does not: vmalert",
        "alertmanager.url": "Alertmanager",
        "grafana.url": "Grafana; a user and a password may be in the address",
        "alerting.url": "the alerting service",
    }.items():
        parser.add_argument(f"--{flag}", dest=flag, default="", metavar="URL", help=f"with --stack: address of {what}")
    parser.add_argument(
        "--grafana.token-file", dest="grafana.token-file", type=Path, metavar="FILE",
        help="with --stack: file with the token of a Grafana service account with role Viewer",
    )  # fmt: skip
    for job in ("node", "batches", "cluster", "host", "alerting"):
        parser.add_argument(
            f"--job-{job}", dest=f"job-{job}", default=job, metavar="NAME",
            help=f"with --stack: the name that your Prometheus has for our job {job} (default: %(default)s)",
        )  # fmt: skip


def _stack(flags: argparse.Namespace) -> int:
    chosen = vars(flags)
    for flag in ("prometheus.url", "rules.url", "alertmanager.url", "grafana.url", "alerting.url"):
        if chosen[flag] and not chosen[flag].startswith(("http://", "https://")):
            raise UsageError(f"--{flag}: expected an address such as http://127.0.0.1:9090")
    if not chosen["prometheus.url"]:
        raise UsageError("--stack needs --prometheus.url, such as http://127.0.0.1:9090")
    from pyrometer_exporters.commands.doctor import stack  # noqa: PLC0415  the HTTP client: 10 MB that no node needs

    findings = []
    for finding in stack.check(
        stack.Stack(
            chosen["prometheus.url"],
            chosen["alertmanager.url"],
            chosen["grafana.url"],
            _token(chosen["grafana.token-file"]),
            chosen["alerting.url"],
            chosen["job-node"],
            chosen["job-batches"],
            chosen["rules.url"],
            {job: chosen[f"job-{job}"] for job in stack.OTHER_JOBS},
        )
    ):
        findings.append(finding)
        if not flags.json:
            sys.stdout.write(f"{finding}\n")
            sys.stdout.flush()
    sys.stdout.write(stack.as_json(findings) if flags.json else "")
    return int(any(finding.level == "missing" for finding in findings))


def _token(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise UsageError(f"--grafana.token-file={path}: {error}") from None


def _field_report(flags: argparse.Namespace, specs: Sequence[CollectorSpec]) -> int:
    path, written = flags.field_report, []

    def agrees(files: Mapping[str, str]) -> bool:
        sys.stdout.write(field_report.contents(files, redacted=flags.redact))
        sys.stdout.flush()
        if flags.yes or not sys.stdin.isatty() or _says_yes(files):
            written.append(path)
        return bool(written)

    report = field_report.write(path, flags, specs, redact=flags.redact, agrees=agrees)
    if not written:
        sys.stdout.write("nothing is written\n")
        return 1
    sys.stdout.write(f"{path}: for you alone to read; see it with pyrometer-doctor --read {path}\n")
    sys.stdout.flush()
    return 1 if report is None or report.problems or report.faults else 0


def _says_yes(files: Mapping[str, str]) -> bool:
    while True:
        try:
            answer = input("Write it? [y]es, [s]how all of it, [N]o: ").strip().lower()
        except EOFError:
            return False
        if answer[:1] != "s":
            return answer[:1] == "y"
        for name, content in files.items():
            sys.stdout.write(f"==> {name}\n{content}\n")


def _compare(flags: argparse.Namespace, specs: Sequence[CollectorSpec]) -> int:
    file = Path(flags.compare) if flags.compare else None
    with gpus_read(flags, specs) as read:
        # Read before and after nvidia-smi, which takes seconds; with a file, only once.
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
