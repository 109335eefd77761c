"""The collector ``slurm``: the queue and the nodes, from ``squeue --json`` and ``sinfo --Node --json``.

A sample line: ``pyrometer_slurm_run_jobs{run="llama-8b",state="running"} 1``. A cluster without Slurm has a reason and
no series.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from pyrometer_exporters.cluster.poller import Poller, seconds
from pyrometer_exporters.cluster.slurm.command import COMMAND_SECONDS, Slurm, SlurmCommands
from pyrometer_exporters.cluster.slurm.families import ANSWERED, FAMILIES, job_samples, node_samples
from pyrometer_exporters.cluster.slurm.jobs import WatchedRun, jobs_of
from pyrometer_exporters.cluster.slurm.nodes import nodes_of
from pyrometer_exporters.framework.collector import CollectorSpec, Context, FlagGroup
from pyrometer_exporters.framework.metrics import Down, Sample
from pyrometer_kit.clock import Clock
from pyrometer_kit.errors import UsageError
from pyrometer_kit.flags import regexp

# Each question costs the controller a lock over all jobs: SchedMD asks not to put squeue into loops.
INTERVAL_SECONDS = 30.0
# The first scrape may wait this long for the first answer.
FIRST_SECONDS = 3.0

T = TypeVar("T")


class SlurmCollector:
    """Asks both commands at their own pace, side by side: one that hangs costs itself only."""

    def __init__(self, context: Context, slurm: Slurm | None = None) -> None:
        def flag(name: str) -> Any:  # noqa: ANN401  each of its own type
            return getattr(context.flags, f"collector.slurm.{name}")

        self._watched = watched_runs(flag("run") or ())
        asked = slurm or SlurmCommands(flag("squeue"), flag("sinfo"), flag("partitions"), flag("timeout"))
        pace = flag("interval"), flag("timeout")
        self._squeue = _Asked("squeue", *pace, lambda: jobs_of(asked.jobs()), context.clock)
        self._sinfo = _Asked("sinfo", *pace, lambda: nodes_of(asked.nodes()), context.clock)

    def collect(self, until: float) -> Iterable[Sample | Down]:
        """See :class:`~pyrometer_exporters.framework.collector.Collector`."""
        first = min(until, time.monotonic() + FIRST_SECONDS)
        yield from self._squeue.samples(lambda jobs: job_samples(jobs, self._watched), first)
        yield from self._sinfo.samples(node_samples, first)

    def close(self) -> None:
        """Ask no more."""
        self._squeue.close()
        self._sinfo.close()


class _Asked(Generic[T]):
    """One of the commands, and what it last said."""

    def __init__(self, command: str, interval: float, timeout: float, ask: Callable[[], list[T]], clock: Clock) -> None:
        self._command = command
        self._poller = Poller(command, interval, timeout, lambda: (clock.wall(), ask()), clock)
        self._poller.start()
        self.close = self._poller.close

    def samples(self, make: Callable[[list[T]], Iterator[Sample]], until: float) -> Iterator[Sample | Down]:
        outcome = self._poller.latest(until - time.monotonic())
        if outcome.value is None:
            yield Down(self._command, outcome.reason or "", outcome.detail)
            return
        at, entries = outcome.value
        yield ANSWERED.sample(at, self._command)
        yield from make(entries)


def watched_runs(given: Iterable[str]) -> list[WatchedRun]:
    """Runs from ``NAME`` or ``NAME=REGEXP`` of job names. Raises UsageError."""
    found: dict[str, WatchedRun] = {}
    for item in given:
        run, _, pattern = item.partition("=")
        if not run or run in found:
            why = "is given twice" if run in found else "has no name"
            msg = f"--collector.slurm.run={item}: the run {why}; give each as NAME or NAME=REGEXP of its jobs' names"
            raise UsageError(msg)
        found[run] = WatchedRun(run, _pattern(item, pattern) if pattern else re.compile(f"^{re.escape(run)}$"))
    return list(found.values())


def _pattern(item: str, pattern: str) -> re.Pattern[str]:
    try:
        return regexp(pattern)
    except argparse.ArgumentTypeError as error:
        msg = f"--collector.slurm.run={item}: {error}"
        raise UsageError(msg) from None


def _add_flags(parser: FlagGroup) -> None:
    add = parser.add_argument
    add("--collector.slurm.run", dest="collector.slurm.run", action="append", metavar="NAME[=REGEXP]",
        help="a run that should always be training or queued, and what its jobs are called (default: as the run); "
        "may be given more than once")  # fmt: skip
    add("--collector.slurm.partitions", dest="collector.slurm.partitions", default="", metavar="A,B",
        help="ask about these partitions only (default: all)")  # fmt: skip
    add("--collector.slurm.squeue", dest="collector.slurm.squeue", default="squeue", metavar="PROGRAM",
        help="the command squeue (default: as found on PATH)")  # fmt: skip
    add("--collector.slurm.sinfo", dest="collector.slurm.sinfo", default="sinfo", metavar="PROGRAM",
        help="the command sinfo (default: as found on PATH)")  # fmt: skip
    add("--collector.slurm.interval", dest="collector.slurm.interval", type=seconds, default=INTERVAL_SECONDS,
        metavar="SECONDS", help="how often to ask (default: %(default)s)")  # fmt: skip
    add("--collector.slurm.timeout", dest="collector.slurm.timeout", type=seconds, default=COMMAND_SECONDS,
        metavar="SECONDS", help="how long a command may take (default: %(default)s)")  # fmt: skip


COLLECTOR = CollectorSpec(
    name="slurm",
    help="The queue and the nodes of Slurm, from squeue and sinfo.",
    families=FAMILIES,
    build=SlurmCollector,
    add_flags=_add_flags,
)
