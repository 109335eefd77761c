"""The program ``pyrometer-test``: put load on idle GPUs, links and disks with the tools that are installed.

    pyrometer-test --list
    pyrometer-test --run dcgm,nvbandwidth,nccl,burn --budget 3600

Nothing runs unless it is named, and no test of GPUs runs while somebody uses them. Exit status 0: all passed; 2: one
failed; 3: none failed, but one could not be run or measured nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pyrometer_exporters.commands.test import pairs
from pyrometer_exporters.commands.test.run import gpus_of_both, program_of, tried
from pyrometer_exporters.commands.test.tools import TOOLS, Asked, Tool
from pyrometer_exporters.node.active import kept
from pyrometer_exporters.node.active.kept import Tried
from pyrometer_kit.command_line import add_version_flag
from pyrometer_kit.errors import UsageError, fail
from pyrometer_kit.flags import Flags, number_between

PROG = "pyrometer-test"
DEFAULT_STATE = "/var/lib/pyrometer"
PASSED, FAILED, NOT_RUN = 0, 2, 3


def main(argv: Sequence[str] | None = None) -> int:
    """Run the named tests; return the exit status."""
    flags = make_parser().parse_args(argv)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if flags.list:
            sys.stdout.write("".join(f"{tool.name:12} {program_of(tool) or 'not installed'}\n" for tool in TOOLS))
            return PASSED
        return _run(flags)
    except UsageError as error:
        return fail(PROG, error)
    except KeyboardInterrupt:
        sys.stderr.write(f"{PROG}: interrupted; finished results are kept\n")
        return NOT_RUN


def _run(flags: argparse.Namespace) -> int:
    tools = _tools(flags)
    state = Path(getattr(flags, "path.state") or os.environ.get("STATE_DIRECTORY") or DEFAULT_STATE)
    limits = dict(flags.limit)
    until = time.monotonic() + flags.budget
    found: dict[str, Tried | str] = {}
    for number, tool in enumerate(tools, 1):
        sys.stderr.write(f"{PROG}: {number} of {len(tools)}: {tool.name}\n")
        outcome = _try(tool, flags, limits, until - time.monotonic())
        if isinstance(outcome, Tried):
            outcome = replace(outcome, peer=flags.peer if tool.peer else "")
            _keep(state, tool.name, outcome)
        found[tool.name] = outcome
    sys.stdout.write(_as_json(found) if flags.json else "".join(_line(name, each) for name, each in found.items()))
    states = {each.state if isinstance(each, Tried) else "not_run" for each in found.values()}
    if kept.FAILED in states:
        return FAILED
    return PASSED if states == {kept.OK} else NOT_RUN


def _try(tool: Tool, flags: argparse.Namespace, limits: Mapping[str, float], left: float) -> Tried | str:
    """Run a test; return why it was not run where it can't be."""
    program = program_of(tool)
    if program is None:
        return f"not installed: {' or '.join(tool.programs)}"
    asked = Asked(0, flags.level, int(getattr(flags, "burn-seconds")), flags.peer, flags.device, flags.directory,
                  flags.host or socket.gethostname().partition(".")[0], flags.command)  # fmt: skip
    seen = gpus_of_both(tool, asked)
    if seen.busy:
        return f"GPUs are not idle: {seen.busy}"
    asked = replace(asked, gpus=len(seen.models))
    seconds = tool.seconds(asked)
    if seconds > left:
        return f"it may take {seconds:.0f} s, and {max(0, left):.0f} s of --budget are left"
    sysfs: Path = getattr(flags, "path.sysfs")
    return tried(tool, program, asked, models=seen.models, limits=limits, seconds=seconds, sysfs=sysfs, wall=time.time)


def _tools(flags: argparse.Namespace) -> list[Tool]:
    known = {tool.name: tool for tool in TOOLS}
    names = [name for name in flags.run.split(",") if name]
    if not names:
        raise UsageError(f"--run: name the tests to run, of {', '.join(known)}; nothing runs by default")
    for name in names:
        if name not in known:
            raise UsageError(f"--run: unknown test {name}; known are {', '.join(known)}")
        for needed in known[name].needs:
            if not getattr(flags, needed):
                raise UsageError(f"--run: {name} needs --{needed}")
        if known[name].launched:
            pairs.check_command(flags.command)
    return [known[name] for name in dict.fromkeys(names)]


def _keep(state: Path, name: str, outcome: Tried) -> None:
    try:
        kept.save(state, kept.added(kept.load(state), name, outcome))
    except OSError as error:
        raise UsageError(f"--path.state: can't keep the result in {state}: {error.strerror}") from None


def _line(name: str, outcome: Tried | str) -> str:
    if isinstance(outcome, str):
        return f"NOT RUN {name}: {outcome}\n"
    word = outcome.state.replace("_", " ").upper()
    values = ", ".join(f"{result.test} {result.value:.4g} {result.unit}" for result in outcome.results)
    return (
        f"{word} {name}{': ' if outcome.reason or values else ''}{'. '.join(filter(None, (outcome.reason, values)))}\n"
    )


def _as_json(found: Mapping[str, Tried | str]) -> str:
    tests: list[dict[str, object]] = []
    for name, each in found.items():
        if isinstance(each, str):
            tests.append({"test": name, "state": "not_run", "reason": each, "results": []})
            continue
        results = [result._asdict() for result in each.results]
        tests.append({"test": name, "state": each.state, "reason": each.reason, "tool": each.tool, "part": each.part,
                      "peer": each.peer, "at": each.at, "results": results})  # fmt: skip
    return json.dumps({"tests": tests}) + "\n"


def _limit(text: str) -> tuple[str, float]:
    name, _, number = text.partition("=")
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not name or not 0 <= value < math.inf:
        msg = f"{text!r} is not TEST=NUMBER, such as nccl_all_reduce=420"
        raise argparse.ArgumentTypeError(msg)
    return name, value


def make_parser() -> Flags:
    """Return the parser of the command's flags."""
    flags = Flags(PROG, "Test idle GPUs, links and disks. Exit status: 0 passed, 2 failed, 3 not all was measured.")
    add_version_flag(flags, "pyrometer-exporters")
    add = flags.add_argument
    add("--run", default="", metavar="NAMES", help="the tests, separated by commas; --list shows them")
    add("--list", action="store_true", help="list the tests and the paths of their programs, and exit")
    add("--level", type=int, choices=(1, 2, 3, 4), default=2, help="of dcgmi diag (default: %(default)s)")
    add("--burn-seconds", dest="burn-seconds", type=number_between(10, 86400, "a number of seconds from 10 to 86400"),
        default=300.0, metavar="SECONDS", help="how long the test burn runs (default: %(default).0f)")  # fmt: skip
    add(
        "--peer",
        default="",
        metavar="HOST",
        help="the other node: where `ib_write_bw --report_gbits -F -D 10` waits, for ib; one with idle GPUs, "
        "for nccl_pair",
    )
    add("--command", default="", metavar="TEXT",
        help="the command that starts nccl_pair, run without a shell: {test} is replaced by the program and its "
        "arguments, {hosts} by the two names with a comma, {count} by their number, {tasks} by the processes "
        "on each, {slots} by a:8,b:8")  # fmt: skip
    add("--host", default="", metavar="HOST", help="this node's name for --command (default: its own, without domain)")
    add("--device", default="", metavar="NAME", help="the HCA for ib, such as mlx5_0")
    add("--directory", default="", metavar="DIR", help="folder in which fio writes 16 GB and removes them again")
    add("--budget", type=number_between(1, 1e6, "a number of seconds"), default=7200.0, metavar="SECONDS",
        help="a test that may take longer than the time left of this is not started (default: "
             "%(default).0f)")  # fmt: skip
    add("--limit", type=_limit, action="append", default=[], metavar="TEST=NUMBER",
        help="the minimum value of a result, instead of the one for this GPU model; may be repeated")  # fmt: skip
    add("--json", action="store_true", help="print the results as one JSON object")
    add("--path.sysfs", dest="path.sysfs", type=Path, default=Path("/sys"), metavar="DIR",
        help="where the rates of the HCAs' ports are (default: %(default)s)")  # fmt: skip
    add("--path.state", dest="path.state", metavar="DIR",
        help=f"the exporter's state folder (default: $STATE_DIRECTORY, else {DEFAULT_STATE})")  # fmt: skip
    return flags


if __name__ == "__main__":
    sys.exit(main())
