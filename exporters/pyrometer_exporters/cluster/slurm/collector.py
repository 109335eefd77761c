"""The collector ``slurm``: the queue and the nodes, from ``squeue --json`` and ``sinfo --Node --json``.

A sample line: ``pyrometer_slurm_run_jobs{run="llama-8b",state="running"} 1``. A cluster without Slurm has a reason and
no series.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar

from pyrometer_exporters.cluster.poller import Poller, seconds
from pyrometer_exporters.cluster.slurm.command import COMMAND_SECONDS, Slurm, SlurmCommands
from pyrometer_exporters.cluster.slurm.families import ANSWERED, FAMILIES, node_samples, queue_samples
from pyrometer_exporters.cluster.slurm.jobs import JobReader, Queue, WatchedRun
from pyrometer_exporters.cluster.slurm.nodes import nodes_of
from pyrometer_exporters.framework.collector import CollectorSpec, Context, FlagGroup
from pyrometer_exporters.framework.metrics import Down, Sample
from pyrometer_exporters.framework.outcome import LATE, PartError
from pyrometer_kit.clock import Clock
from pyrometer_kit.errors import UsageError
from pyrometer_kit.flags import regexp

# Each query costs the controller a lock over all jobs: SchedMD asks not to run squeue in loops.
INTERVAL_SECONDS = 30.0
# The first scrape may wait this long for the first answer.
FIRST_SECONDS = 3.0

# A queue that does not end, or not in time: squeue's JSON of 6,000 jobs is 60 MB, which it takes seconds to write.
_TOO_LONG = ("too_large", LATE)

T = TypeVar("T")


class SlurmCollector:
    """Polls both commands independently: one that hangs does not delay the other."""

    def __init__(self, context: Context, slurm: Slurm | None = None) -> None:
        def flag(name: str) -> Any:  # noqa: ANN401  each of its own type
            return getattr(context.flags, f"collector.slurm.{name}")

        self._watched = watched_runs(flag("run") or ())
        commands = slurm or SlurmCommands(
            flag("squeue"), flag("sinfo"), flag("partitions"), flag("users"), flag("timeout")
        )
        pace = flag("interval"), flag("timeout")
        names = [run.job_name for run in self._watched if run.job_name]
        self._squeue = _Command("squeue", *pace, lambda: _queue(commands, names), context.clock)
        self._sinfo = _Command("sinfo", *pace, lambda: nodes_of(commands.nodes()), context.clock)

    def collect(self, until: float) -> Iterable[Sample | Down]:
        """See :class:`~pyrometer_exporters.framework.collector.Collector`."""
        first = min(until, time.monotonic() + FIRST_SECONDS)
        yield from self._squeue.samples(lambda queue: queue_samples(queue, self._watched), first)
        yield from self._sinfo.samples(node_samples, first)

    def close(self) -> None:
        """Stop polling."""
        self._squeue.close()
        self._sinfo.close()


class _Command(Generic[T]):
    """One of the commands, and its latest answer."""

    def __init__(self, command: str, interval: float, timeout: float, ask: Callable[[], T], clock: Clock) -> None:
        self._command = command
        self._poller = Poller(command, interval, timeout, lambda: (clock.wall(), ask()), clock)
        self._poller.start()
        self.close = self._poller.close

    def samples(self, make: Callable[[T], Iterator[Sample | Down]], until: float) -> Iterator[Sample | Down]:
        outcome = self._poller.latest(until - time.monotonic())
        if outcome.value is None:
            yield Down(self._command, outcome.reason or "", outcome.detail)
            return
        at, answer = outcome.value
        samples = list(make(answer))
        if not any(isinstance(sample, Down) for sample in samples):
            yield ANSWERED.sample(at, self._command)
        yield from samples


def _queue(commands: Slurm, names: Sequence[str]) -> Queue:
    """Return the whole queue, or, where that is too long for one answer, the jobs of these names.

    Raises:
        PartError: Neither could be read.
    """
    try:
        return _jobs(commands)
    except PartError as error:
        if not names or error.reason not in _TOO_LONG:
            raise
        return replace(_jobs(commands, names), unread=error)


def _jobs(commands: Slurm, names: Sequence[str] = ()) -> Queue:
    reader = JobReader()
    commands.jobs(reader.feed, names)
    return Queue(reader.finish(), ends=reader.ends)


def watched_runs(given: Iterable[str]) -> list[WatchedRun]:
    """Parse runs from ``NAME`` or ``NAME=REGEXP`` of job names.

    Raises:
        UsageError: An item has no name, an invalid expression, or a name that was given before.
    """
    runs: dict[str, WatchedRun] = {}
    for item in given:
        run, _, pattern = item.partition("=")
        if not run or run in runs:
            why = "is given twice" if run in runs else "has no name"
            msg = f"--collector.slurm.run={item}: the run {why}; give each as NAME or NAME=REGEXP of its jobs' names"
            raise UsageError(msg)
        if pattern:
            runs[run] = WatchedRun(run, _pattern(item, pattern))
        else:  # squeue takes a comma for the end of a name
            runs[run] = WatchedRun(run, re.compile(f"^{re.escape(run)}$"), "" if "," in run else run)
    return list(runs.values())


def _pattern(item: str, pattern: str) -> re.Pattern[str]:
    try:
        return regexp(pattern)
    except argparse.ArgumentTypeError as error:
        msg = f"--collector.slurm.run={item}: {error}"
        raise UsageError(msg) from None


def _add_flags(parser: FlagGroup) -> None:
    add = parser.add_argument
    add("--collector.slurm.run", dest="collector.slurm.run", action="append", metavar="NAME[=REGEXP]",
        help="a run that should always be training or queued, and the names of its jobs (default: the run's name); "
        "may be repeated")  # fmt: skip
    add("--collector.slurm.partitions", dest="collector.slurm.partitions", default="", metavar="A,B",
        help="query only these partitions (default: all)")  # fmt: skip
    add("--collector.slurm.users", dest="collector.slurm.users", default="", metavar="A,B",
        help="query only jobs of these users (default: all)")  # fmt: skip
    add("--collector.slurm.squeue", dest="collector.slurm.squeue", default="squeue", metavar="PROGRAM",
        help="the squeue command (default: from PATH)")  # fmt: skip
    add("--collector.slurm.sinfo", dest="collector.slurm.sinfo", default="sinfo", metavar="PROGRAM",
        help="the sinfo command (default: from PATH)")  # fmt: skip
    add("--collector.slurm.interval", dest="collector.slurm.interval", type=seconds, default=INTERVAL_SECONDS,
        metavar="SECONDS", help="time between two queries (default: %(default)s)")  # fmt: skip
    add("--collector.slurm.timeout", dest="collector.slurm.timeout", type=seconds, default=COMMAND_SECONDS,
        metavar="SECONDS", help="time limit of a command (default: %(default)s)")  # fmt: skip


COLLECTOR = CollectorSpec(
    name="slurm",
    help="The queue and the nodes of Slurm, from squeue and sinfo.",
    families=FAMILIES,
    build=SlurmCollector,
    add_flags=_add_flags,
)
