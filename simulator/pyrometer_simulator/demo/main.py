"""The program ``pyrometer-demo``: a simulated cluster end to end, on real programs, on one machine."""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn

from pyrometer_kit.command_line import add_version_flag
from pyrometer_simulator.demo import own_machine
from pyrometer_simulator.demo.director import Director
from pyrometer_simulator.demo.hardware import Node
from pyrometer_simulator.demo.observe import Prometheus
from pyrometer_simulator.demo.processes import DemoError, Processes
from pyrometer_simulator.demo.programs import CHANNEL, GPUS_PER_NODE, NODES, TOKEN, Programs, run_nccl_processes
from pyrometer_simulator.demo.verdict import Report
from pyrometer_simulator.slack import FakeSlack
from pyrometer_simulator.stack import StackError, find_stack

# Ctrl-C, kill, and a terminal that is closed.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _Flags(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo; return 0 if the channel was right, 1 if it was not, 2 if the demo can't run here."""
    parser = _Flags(prog="pyrometer-demo", description=__doc__, allow_abbrev=False)
    add_version_flag(parser, "pyrometer-simulator")
    parser.add_argument("--exit-after-scenario", action="store_true", help="play once, then say whether all was right")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write what was measured there, as JSON")
    parser.add_argument("--keep", action="store_true", help="keep logs and data after the end")
    flags = parser.parse_args(argv)
    for number in _SIGNALS:
        signal.signal(number, _interrupt)
    try:
        return _run(flags)
    except (DemoError, StackError) as error:
        sys.stderr.write(f"pyrometer-demo: {error}\n")
        return 2
    except KeyboardInterrupt:
        _say("stopped")
        return 130


def _run(flags: argparse.Namespace) -> int:
    if flags.report is not None:
        _try_to_write(flags.report)
    stack = find_stack(_say)
    with contextlib.ExitStack() as opened:
        folder = Path(tempfile.mkdtemp(prefix="pyrometer-demo-"))
        if not flags.keep:
            opened.push(partial(_clear, folder))
        logs = folder / "logs"
        logs.mkdir()
        slack = opened.enter_context(FakeSlack(channel_names=(CHANNEL,), token=TOKEN))
        processes = opened.enter_context(Processes(logs))
        opened.callback(_ignore_signals)
        programs = Programs(folder, processes, stack, slack)
        _say("making eight simulated nodes with 8 GPUs and 8 HCAs each, and starting a real node exporter for each")
        nodes = {
            node: Node(programs.node_folder(node), number, GPUS_PER_NODE) for number, node in enumerate(NODES, start=1)
        }
        run_nccl_processes(nodes)
        programs.start_all()
        _where_to_look(programs, slack, logs)
        programs.start_training()
        where = programs.addresses
        prometheus = Prometheus(where.url(where.prometheus))
        return _play(flags, Director(nodes, prometheus, slack, where.url(where.alerting), processes, _say))


def _play(flags: argparse.Namespace, director: Director) -> int:
    report = director.play()
    if flags.report is not None:
        flags.report.write_text(json.dumps(report.to_json(), indent=2) + "\n")
    tell(report)
    if not flags.exit_after_scenario:
        _say("the cluster stays up for you to look around; Ctrl-C ends it")
        while True:
            director.idle()
    return 1 if report.problems else 0


def _where_to_look(programs: Programs, slack: FakeSlack, logs: Path) -> None:
    where = programs.addresses
    _say("everything is up. Where to look (all simulated parts say so):")
    for what, url in (
        ("the Slack channel (a stand-in)", slack.page_url),
        ("the alerting service's own page", where.url(where.alerting)),
        ("Prometheus", where.url(where.prometheus)),
        ("Alertmanager", where.url(where.alertmanager)),
        (f"the exporter of {NODES[0]}", where.url(where.nodes[NODES[0]])),
        ("the exporter of this machine's own links", where.url(where.own_node)),
        ("logs", str(logs)),
    ):
        print(f"    {what:<42} {url}", flush=True)
    gaps = own_machine.describe_gaps(f"{where.url(where.own_node)}/metrics")
    if gaps:
        _say(gaps)


def tell(report: Report) -> None:
    """Print the report for people."""
    for finding in report.findings:
        seconds = "never" if finding.seconds is None else f"{finding.seconds:.1f} s"
        resolved = "resolved" if finding.resolved_at else "NOT resolved"
        _say(f"{finding.alertname}: {finding.culprit} named {seconds} after the {finding.fault}, {resolved}")
    for name, value in report.measured.items():
        _say(f"{name}: {'unknown' if value is None else round(value, 3)}")
    for line in report.own_machine:
        _say(f"of this machine, which is no part of the scenario: {line}")
    for problem in report.problems:
        _say(f"WRONG: {problem}")
    if not report.problems:
        _say("one message per fault, of the hot GPU and the MFU drop together: each named its culprit and was resolved")


def _try_to_write(path: Path) -> None:
    """Fail before the scenario instead of after it."""
    try:
        path.touch()
    except OSError as error:
        raise DemoError(f"--report={path}: {error.strerror}") from None


def _clear(folder: Path, kind: type[BaseException] | None, _error: object, _traceback: object) -> None:
    """Remove the demo's files, but not the logs that an error has just named."""
    if kind is None or not issubclass(kind, DemoError):
        shutil.rmtree(folder, ignore_errors=True)


def _ignore_signals() -> None:
    """From here on the demo only ends what it started, within seconds: a second signal would leave the rest running."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)


def _interrupt(_number: int, _frame: object) -> None:
    _ignore_signals()  # make passes on a signal that the whole process group got already
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
