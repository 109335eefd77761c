"""The program ``pyrometer-demo``: a simulated cluster end to end, on real programs, on one machine."""

from __future__ import annotations

import argparse
import contextlib
import errno
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn

from pyrometer_kit.command_line import add_version_flag
from pyrometer_simulator.demo import addresses, boards, breaking, scenario
from pyrometer_simulator.demo.boards import KINDS
from pyrometer_simulator.demo.breaking import Breaker
from pyrometer_simulator.demo.cluster import Cluster
from pyrometer_simulator.demo.director import Director
from pyrometer_simulator.demo.drawn.queries import QueryPages
from pyrometer_simulator.demo.grafana import HINT
from pyrometer_simulator.demo.hardware import Node
from pyrometer_simulator.demo.observe import Prometheus
from pyrometer_simulator.demo.pictures import Pictures, find_browser
from pyrometer_simulator.demo.processes import DemoError, Processes
from pyrometer_simulator.demo.programs import Programs, run_processes
from pyrometer_simulator.demo.topology import CHANNEL, GPUS_PER_NODE, NODES
from pyrometer_simulator.demo.verdict import Report
from pyrometer_simulator.demo.visit import Visit
from pyrometer_simulator.slack import FakeSlack
from pyrometer_simulator.stack import StackError, find_stack

# Ctrl-C, kill, and a terminal that is closed.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _Flags(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo; return 0 if the channel was right, 1 if it was not, 2 if the demo can't run here."""
    arguments = sys.argv[1:] if argv is None else argv
    if arguments and arguments[0] in breaking.FAULTS:
        return breaking.main(arguments)
    flags = _parser().parse_args(arguments)
    for number in _SIGNALS:
        signal.signal(number, _interrupt)
    try:
        return _run(flags)
    except (DemoError, StackError) as error:
        sys.stderr.write(f"pyrometer-demo: {error}\n")
        return 2
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        sys.stderr.write("pyrometer-demo: another program took a port while the demo was starting: run it again\n")
        return 2
    except KeyboardInterrupt:
        _say("stopped")
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = _Flags(
        prog="pyrometer-demo",
        description=__doc__,
        allow_abbrev=False,
        epilog=f"While it runs, in another terminal: {' | '.join(breaking.FAULTS)} NODE, such as "
        "`pyrometer-demo heat gpu-003`, breaks something and prints the channel's answer.",
    )
    add_version_flag(parser, "pyrometer-simulator")
    parser.add_argument("--exit-after-scenario", action="store_true", help="play once, then say whether all was right")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write what was measured there, as JSON")
    parser.add_argument("--keep", action="store_true", help="keep logs and data after the end")
    parser.add_argument(
        "--boards",
        choices=KINDS,
        help="auto: a Grafana of GRAFANA_HOME, PATH or Docker, else drawn by the demo itself (default: auto; none with"
        " --exit-after-scenario)",
    )
    parser.add_argument(
        "--pictures",
        type=Path,
        metavar="FOLDER",
        help="write pictures of the boards there after the scenario; needs a Chromium",
    )
    addresses.add_flags(parser)
    return parser


def _run(flags: argparse.Namespace) -> int:
    where = addresses.chosen(flags)
    kind = flags.boards or ("none" if flags.exit_after_scenario and flags.pictures is None else "auto")
    if flags.report is not None:
        _try_to_write(flags.report)
    browser = _browser_for(flags.pictures, kind)
    found = boards.find(kind, dict(os.environ))
    stack = find_stack(_say)
    with contextlib.ExitStack() as opened:
        folder = Path(tempfile.mkdtemp(prefix=breaking.PREFIX))
        if not flags.keep:
            opened.push(partial(_clear, folder))
        logs = folder / "logs"
        logs.mkdir()
        slack = opened.enter_context(FakeSlack(channel_names=(CHANNEL,), port=where.slack))
        processes = opened.enter_context(Processes(logs))
        opened.callback(_ignore_signals)
        cluster = Cluster(folder)
        programs = Programs(folder, processes, stack, slack, where, cluster=cluster, grafana=kind != "none")
        _say("starting eight simulated nodes of 8 GPUs and 8 HCAs, and the real programs that watch them")
        nodes = {
            node: Node(programs.node_folder(node), number, GPUS_PER_NODE) for number, node in enumerate(NODES, start=1)
        }
        run_processes(nodes)
        programs.start_all()
        shown = opened.enter_context(boards.serving(kind, found, folder / "grafana", where, processes))
        opened.callback(_ignore_signals)  # again: what was entered last ends first, and a Grafana takes seconds
        without = set() if shown.url() else {"grafana"}
        without |= _serve_queries(programs, opened) if shown.url() else {"queries", *programs.without_pages}
        _where_to_look(where, shown, logs, without)
        programs.start_training()
        director = Director(
            nodes, Prometheus(where.url(where.prometheus)), slack, where.url(where.alerting), processes, _say,
            cluster=cluster,
        )  # fmt: skip
        director.watch(lambda: shown.look(processes, _say))
        return _play(flags, director, Visit(where, shown, browser, folder), Breaker(folder, nodes, cluster))


def _browser_for(pictures: Path | None, kind: str) -> str:
    """Return the browser that takes pictures, if any are wanted. Raises DemoError where that can't be."""
    if pictures is None:
        return ""
    if kind == "none":
        raise DemoError("--pictures: there are no boards with --boards=none")
    if not (browser := find_browser()):
        raise DemoError("--pictures: no chromium on PATH: apt-get install chromium")
    try:
        pictures.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DemoError(f"--pictures={pictures}: {error.strerror}") from None
    return browser


def _play(flags: argparse.Namespace, director: Director, visit: Visit, breaker: Breaker) -> int:
    report = director.play()
    if flags.report is not None:
        flags.report.write_text(json.dumps(report.to_json(), indent=2) + "\n")
    tell(report)
    pages = visit.pages(report)
    if flags.pictures is not None:
        pictures = Pictures(visit.browser, flags.pictures.resolve(), visit.folder, pages)
        director.watch(lambda: pictures.look(director.processes, _say))
        while flags.exit_after_scenario and pictures.left:
            director.idle()
    status = 1 if report.problems else 0
    if flags.exit_after_scenario:
        return status
    visit.tell(report, _say)
    director.watch(breaker.look)
    breaker.open(visit.where.url(visit.where.slack))
    try:
        visit.stay(director, _say)
    except KeyboardInterrupt:
        visit.leave(director, _say)
        return status


def _serve_queries(programs: Programs, opened: contextlib.ExitStack) -> set[str]:
    """Serve alerts and queries where the servers have no pages of their own; return the names of those without."""
    if not programs.without_pages:
        return {"queries"}
    where = programs.addresses
    amtool = f"{programs.stack.amtool_command[0]} --alertmanager.url={where.url(where.alertmanager)}"
    opened.enter_context(QueryPages(where.url(where.prometheus), amtool).server(where.queries))
    return set(programs.without_pages)


def _where_to_look(where: addresses.Addresses, shown: boards.Boards, logs: Path, without: Collection[str]) -> None:
    _say("everything is up. Where to look:")
    pages = {name: what for name, what in addresses.PAGES.items() if name not in without}
    if "grafana" in pages:
        pages["grafana"] = f"the boards ({shown.description})"
    for what, url in (
        *((what, where.url(getattr(where, name))) for name, what in pages.items()),
        (f"the exporter of {NODES[0]}", where.url(where.nodes[NODES[0]])),
        ("the exporter of the cluster: queue, fabric, goodput", where.url(where.cluster)),
        ("logs", str(logs)),
    ):
        print(f"    {what:<51} {url}", flush=True)
    print(
        f"    from another machine, at the same addresses:\n        {where.ssh_line(without)}",
        flush=True,
    )
    if shown.drawn:
        print(f"    for {HINT}", flush=True)


def tell(report: Report) -> None:
    """Print the report for people."""
    words = {expected.alertname: expected.words for expected in scenario.EXPECTED}
    _say("what was planted, and what the channel made of it:")
    for finding in report.findings:
        end = ", its end told" if finding.resolved_at else ""
        named = "not told" if finding.seconds is None else f"{finding.culprit} named after {finding.seconds:.0f} s"
        print(f"    {words[finding.alertname]:<44} {named}{end}", flush=True)
    measured = {name: "?" if value is None else f"{value:g}" for name, value in report.measured.items()}
    pulse = f"{scenario.PULSE_NODE} GPU {scenario.PULSE_GPU} was slowed down for 0.2 s"
    print(f"    {pulse:<44} counted: {measured['thermal_slowdown_200ms_seconds']} s", flush=True)
    batches = "batches of the last minute"
    print(f"    {batches:<44} {measured['batches_missing']} of {measured['batches_stored']} missing", flush=True)
    for problem in report.problems:
        _say(f"WRONG: {problem}")
    if not report.problems:
        _say("all as it should be: one message for each fault, with its culprit, and with its end")


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
