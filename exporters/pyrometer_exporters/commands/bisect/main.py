r"""The program ``pyrometer-bisect``: which hosts, pairs of hosts or switches make a test fail?

    pyrometer-bisect --hosts 'gpu-[001-512]' --state bisect.json \
        --command 'srun --nodes={count} --nodelist={hosts} all_reduce_perf -b 8G -e 8G -g 8' --min-bandwidth 380

Each round runs the command on groups that share no host, side by side. Exit status 0: nothing is bad; 1: something is;
3: not known, as the rounds were used up.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from pyrometer_exporters.commands.bisect.belief import Noise, Outcome
from pyrometer_exporters.commands.bisect.plan import METHODS, Group
from pyrometer_exporters.commands.bisect.record import Record
from pyrometer_exporters.commands.bisect.run import Runner
from pyrometer_exporters.commands.bisect.search import LARGEST_FOR_PAIRS, Answer, Search, Settings
from pyrometer_exporters.commands.targets.hostlist import expand
from pyrometer_kit.command_line import add_version_flag
from pyrometer_kit.errors import UsageError, fail
from pyrometer_kit.flags import Flags, number_between

PROG = "pyrometer-bisect"
NOTHING, FOUND, UNFINISHED = 0, 1, 3
# Where so many tests of the first round fail, and none passes, it is the command and not the hosts. A few large
# groups may well have a bad host each.
ENOUGH_TO_BLAME_THE_COMMAND = 4
# All of a few pairs may cross one bad switch.
ENOUGH_ACROSS_SWITCHES = 16
# topology.conf(5): "SwitchName=leaf01 Nodes=gpu-[001-032]".
_SWITCH = re.compile(r"SwitchName=(\S+)\s.*?\bNodes=(\S+)", re.IGNORECASE)


def main(argv: Sequence[str] | None = None) -> int:
    """Search; return the exit status."""
    flags = make_parser().parse_args(argv)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return _search(flags)
    except UsageError as error:
        return fail(PROG, error)
    except KeyboardInterrupt:
        rest = f"; the same command continues from {flags.state}" if flags.state else ""
        sys.stderr.write(f"{PROG}: interrupted{rest}\n")
        return UNFINISHED


def _search(flags: argparse.Namespace) -> int:
    settings = _settings(flags)
    runner = Runner(flags.command, flags.timeout, getattr(flags, "min-bandwidth"), flags.parallel)
    record = Record(flags.state, settings, runner)
    record.load()
    search = _continued(settings, record, flags.state)
    while (groups := search.plan()) and search.rounds < flags.rounds:
        if not _round(search, groups, record, runner):
            break
    answer = search.answer()
    sys.stdout.write(_as_json(answer, search.rounds) if flags.json else _lines(answer, search.rounds))
    if answer.hosts or answer.pairs or answer.switches:
        return FOUND
    return NOTHING if answer.finished else UNFINISHED


def _continued(settings: Settings, record: Record, state: Path) -> Search:
    """Return the search with the conclusions from what an earlier call has tested."""
    search = Search(settings)
    for tests in record.rounds:
        search.record(tests)
    if record.rounds and not search.plan():
        _progress(f"nothing was run: {state} already has the answer of {record.written}; remove it to test again")
    elif record.rounds or record.current:
        _progress(f"continues after round {len(record.rounds)} from {state}")
    return search


def _round(search: Search, groups: Sequence[Group], record: Record, runner: Runner) -> bool:
    """Run the tests of a round that an interrupted one has not run yet, and conclude; return whether any answered."""
    done = {test.hosts for test in record.current}
    left = [group for group in groups if group not in done]
    _progress(
        f"round {search.rounds + 1}: {len(left)} tests of {min(map(len, groups))} to {max(map(len, groups))} hosts"
    )

    def keep(test: Outcome | None) -> None:
        if test is not None:
            record.add(test)

    if left:
        runner.run(left, keep)
    for problem in dict.fromkeys(runner.problems):
        _progress(f"no answer of some tests: {problem}")
    if not record.current and record.rounds:
        return False
    if not record.current:
        default = "--command: no test of this round returned a result; run the command by hand"
        raise UsageError(runner.problems[0] if runner.problems else default)
    _blame_the_command(search, record)
    tests = record.end_round()
    search.record(tests)
    failed = sum(not test.passed for test in tests)
    _progress(f"round {search.rounds}: {failed} of {len(tests)} failed; {len(search.answer().open)} open questions")
    return True


def _blame_the_command(search: Search, record: Record) -> None:
    """Stop a search whose tests say nothing about hosts: none has passed yet, and all of this round failed.

    Raises:
        UsageError: It is so; the round is forgotten.
    """
    if any(test.passed for tests in (*record.rounds, record.current) for test in tests):
        return
    failed = len(record.current)
    enough = ENOUGH_ACROSS_SWITCHES if search.knows_switches else ENOUGH_TO_BLAME_THE_COMMAND
    if not record.rounds and failed >= enough:
        record.drop_round()
        raise UsageError(f"--command: every test failed ({failed} of {failed}): run the command by hand")


def _progress(text: str) -> None:
    sys.stderr.write(f"{PROG}: {text}\n")


def _settings(flags: argparse.Namespace) -> Settings:
    hosts = tuple(dict.fromkeys(expand(flags.hosts)))
    least = max(2, flags.size)
    if len(hosts) < least:
        raise UsageError(f"--hosts: {len(hosts)} hosts; at least {least} are needed")
    if "{hosts}" not in flags.command:
        raise UsageError("--command: it has no {hosts}, which is replaced by the names of a group")
    if flags.pairs and flags.size > LARGEST_FOR_PAIRS:
        raise UsageError(f"--size: {flags.size} is too large to look for bad pairs, which are tested as two hosts; add "
                         "--no-pairs")  # fmt: skip
    noise = Noise(getattr(flags, "false-alarms"), flags.missed)
    switches = {host: name for host, name in _switches(flags.topology).items() if host in set(hosts)}
    return Settings(hosts, switches, flags.method, flags.size, noise, flags.sure, flags.pairs, flags.seed)


def _switches(path: Path | None) -> Mapping[str, str]:
    """Return the leaf switch of each host in Slurm's topology.conf."""
    if path is None:
        return {}
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--topology: can't read {path}: {getattr(error, 'strerror', None) or 'not text'}") from None
    switch_of = {host: name for name, nodes in _SWITCH.findall(text) for host in expand(nodes)}
    if not switch_of:
        raise UsageError(f"--topology: no line such as SwitchName=leaf01 Nodes=gpu-[001-032] in {path}")
    return switch_of


def _lines(answer: Answer, rounds: int) -> str:
    """Return the answer for people."""
    lines = [f"BAD HOST {host} ({p:.1%})" for host, p in sorted(answer.hosts.items())]
    lines += [f"BAD PAIR {first} {second} ({p:.1%}): each passes with other hosts" for (first, second), p in
              sorted(answer.pairs.items())]  # fmt: skip
    lines += [f"BAD SWITCH {name} ({p:.1%}): its hosts pass among themselves" for name, p in
              sorted(answer.switches.items())]  # fmt: skip
    if not lines and answer.finished:
        lines = ["OK: nothing is bad"]
    if not answer.finished:
        lines.append(f"UNFINISHED: all rounds are used up; {len(answer.open)} hosts or switches are open: "
                     f"{', '.join(answer.open[:8])}{' ...' if len(answer.open) > 8 else ''}")  # fmt: skip
    if answer.untested:
        lines.append(f"NOTE {len(answer.untested)} hosts behind a bad switch were tested only among themselves")
    lines.append(f"{rounds} rounds; {answer.sure:.1%} probability that this answer is complete and correct")
    return "".join(f"{line}\n" for line in lines)


def _as_json(answer: Answer, rounds: int) -> str:
    pairs = [{"hosts": list(pair), "probability": p} for pair, p in sorted(answer.pairs.items())]
    data = {
        "hosts": answer.hosts, "pairs": pairs, "switches": answer.switches, "open": answer.open,
        "untested": answer.untested, "rounds": rounds, "sure": round(answer.sure, 6), "finished": answer.finished,
    }  # fmt: skip
    return json.dumps(data) + "\n"


def _chance(text: str) -> float:
    return number_between(1e-6, 0.3, "a probability from 1e-6 to 0.3")(text)


def make_parser() -> Flags:
    """Return the parser of the command's flags."""
    flags = Flags(
        PROG, "Find the hosts, pairs or switches that make a test fail. Exit status: 0 none found, 1 found, 3 unknown."
    )
    add_version_flag(flags, "pyrometer-exporters")
    add = flags.add_argument
    add("--hosts", required=True, metavar="LIST", help="the hosts, such as gpu-[001-512]; they must be idle")
    add("--command", required=True, metavar="TEXT",
        help="the command that tests a group, run without a shell: {hosts} is replaced by the host names, separated "
        "by commas, {count} by their number; exit status 0 means passed; 75, 126, 127, a signal, or a launcher's word "
        "that it could not start, such as srun's, no result; any other failed")  # fmt: skip
    add("--min-bandwidth", dest="min-bandwidth", type=number_between(0, 1e6, "a number of GB/s"), metavar="GB/S",
        help="a test also fails if nccl-tests' line 'Avg bus bandwidth' is below this; without the line, or with 0, it "
             "has no result")  # fmt: skip
    add("--timeout", type=number_between(1, 86400, "a number of seconds from 1 to 86400"), default=600.0,
        metavar="SECONDS", help="a test that takes longer is killed and counts as failed (default: "
                                "%(default)g)")  # fmt: skip
    add("--rounds", type=int, default=50, metavar="N", help="the maximum number of rounds (default: %(default)s)")
    add("--parallel", type=int, default=256, metavar="N", choices=range(1, 1025),
        help="the maximum number of tests at once, 1 to 1024 (default: %(default)s)")  # fmt: skip
    add("--method", choices=METHODS, default="pairs",
        help="pairs: fewest rounds; grid: fewer tests; halve: fewest tests (default: %(default)s)")  # fmt: skip
    add("--size", type=int, choices=range(1, 65), default=2, metavar="N",
        help="number of hosts in the smallest test, 1 to 64; more than 2 needs --no-pairs (default: "
             "%(default)s)")  # fmt: skip
    add(
        "--no-pairs",
        dest="pairs",
        action="store_false",
        help="don't look for pairs of good hosts that fail together",
    )
    add("--topology", type=Path, metavar="FILE", help="Slurm's topology.conf, to find bad leaf switches")
    add("--false-alarms", dest="false-alarms", type=_chance, default=0.01, metavar="P",
        help="how often a test of good hosts fails (default: %(default)g)")  # fmt: skip
    add("--missed", type=_chance, default=0.02, metavar="P",
        help="how often a test with a bad host passes (default: %(default)g)")  # fmt: skip
    add("--sure", type=number_between(0.5, 0.9999, "a probability from 0.5 to 0.9999"), default=0.99, metavar="P",
        help="stop when the answer is correct with this probability (default: %(default)g)")  # fmt: skip
    add("--seed", type=int, default=0, help="seed for the choice of groups (default: %(default)s)")
    add("--state", type=Path, default=Path("pyrometer-bisect.json"), metavar="FILE",
        help="the record of the tests, from which an interrupted search continues (default: %(default)s)")  # fmt: skip
    add("--json", action="store_true", help="print the answer as one JSON object")
    return flags


if __name__ == "__main__":
    sys.exit(main())
