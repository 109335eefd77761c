"""The collector ``nccl``: how a job's communicators progress, and which ranks it waits for, from NCCL's RAS socket.

Every process of a job that uses NCCL 2.24 or newer answers there for the whole job, without a line in its code:
``echo status | nc localhost 28028``. A rank of the answer is shown in :mod:`json_answer`.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

from pyrometer_exporters.framework.collector import CollectorSpec, Context, Endpoint, FlagGroup, Reply
from pyrometer_exporters.framework.metrics import Down, Sample
from pyrometer_exporters.framework.outcome import PartError, reason_of
from pyrometer_exporters.node.nccl import families, json_answer, text_answer
from pyrometer_exporters.node.nccl.asker import INTERVAL_SECONDS, STATUS_PATH, Turns, probe
from pyrometer_exporters.node.nccl.inspector import INSPECTOR_FAMILIES, READ_SECONDS, Inspector
from pyrometer_exporters.node.nccl.local_node import LocalNode, local_pids
from pyrometer_exporters.node.nccl.progress import Named, Progress
from pyrometer_exporters.node.nccl.ras_client import Conversation, NobodyListensError
from pyrometer_exporters.node.nccl.snapshot import Communicator, Snapshot
from pyrometer_kit.flags import LOOPBACK, Address, address
from pyrometer_kit.http_message import Request

log = logging.getLogger(__name__)

DEFAULT_ADDRESS = "localhost:28028"
# RAS itself takes up to 10 s where processes don't answer; the rest is for an answer of tens of megabytes.
ANSWER_SECONDS = 20.0
TICK_SECONDS = 2.0
# Communicators with series of their own; what is in trouble comes first, all others are summed up.
MOST_COMMUNICATORS = 64
OTHERS = "others"
BACKGROUND_NICENESS = 10


class Watch:
    """Watches one address: asks when it is this node's turn, and keeps the samples of the latest answer."""

    def __init__(
        self, where: Address, node: LocalNode, turns: Turns, context: Context, answer_seconds: float = ANSWER_SECONDS
    ) -> None:
        self.where = where
        self._answer_seconds = answer_seconds
        self.turns = turns
        self._node = node
        self._procfs = context.procfs
        self._clock = context.clock
        self._progress = Progress()
        self._result: list[Sample | Down] = []
        self._expires = 0.0

    @property
    def name(self) -> str:
        """Return the address as it is written in flags."""
        return f"{self.where.host}:{self.where.port}"

    def tick(self) -> None:
        """Ask if it is time to. Never raises."""
        self._node.refresh()
        now = self._clock.monotonic()
        if self._node.stalled(now):
            self.turns.hasten(now)
        if not self.turns.is_due(now):
            return
        began = time.thread_time()
        try:
            snapshot = self._ask()
        except NobodyListensError:
            self._keep([], None)
        except PartError as error:
            self._fail(error.reason, error.detail)
        except Exception as error:  # noqa: BLE001  whatever listens there must not end the thread
            self._fail(reason_of(error), str(error)[:200])
        else:
            self._take(snapshot, time.thread_time() - began)

    def latest(self) -> list[Sample | Down]:
        """Return the samples of the latest answer; none once it is too old."""
        return self._result if self._clock.monotonic() < self._expires else []

    def _ask(self) -> Snapshot:
        with Conversation(self.where, time.monotonic() + self._answer_seconds) as conversation:
            form, chunks = conversation.status()
            uid = conversation.owner(self._procfs)
            snapshot = json_answer.read(chunks) if form == "json" else text_answer.read(chunks)
        snapshot.uid = uid
        return snapshot

    def _take(self, snapshot: Snapshot, cost: float) -> None:
        now = self._clock.monotonic()
        if self._progress.snapshot.communicators and _is_another(self._progress.snapshot, snapshot):
            self._progress = Progress()
        self._progress.add(snapshot, now, self._clock.wall())
        self.turns.asked(now, snapshot, self._progress.standing(), cost)
        if self.turns.asks:
            self._keep([*self._samples(), families.RAS_UP.sample(1, self.name)], snapshot)
        else:
            self._progress = Progress()
            self._result = []

    def _fail(self, reason: str, detail: str) -> None:
        self._keep([families.RAS_UP.sample(0, self.name), Down(self.name, reason, detail)], None)

    def _keep(self, result: list[Sample | Down], snapshot: Snapshot | None) -> None:
        now = self._clock.monotonic()
        if snapshot is None:
            self._progress = Progress()
            self.turns.asked(now, None)
        self._result = result
        turns = 1 if snapshot is None or snapshot.form == "json" else max(1, snapshot.nodes)
        self._expires = now + 2 * INTERVAL_SECONDS * turns + ANSWER_SECONDS

    def _samples(self) -> Iterator[Sample]:
        progress = self._progress
        snapshot = progress.snapshot
        job = self._labels(snapshot)
        sizes = [comm.size for comm in snapshot.communicators]
        number = str(len(snapshot.peers) if snapshot.form == "json" else max(sizes, default=0))
        yield families.JOB_INFO.sample(1, *job, snapshot.version, number, str(snapshot.nodes), snapshot.form)
        yield families.COMMUNICATORS.sample(len(snapshot.communicators), *job)
        suspects = progress.suspects()
        # A text has the counts of communicators whose ranks differ: a job that hangs has one, and it never changes.
        if (snapshot.form == "json" and snapshot.communicators) or any(comm.bounds for comm in snapshot.communicators):
            yield families.STANDSTILL.sample(progress.standing(), *job)
            yield families.LONGEST_STANDSTILL.sample(progress.longest, *job)
        yield from _communicator_samples(job, progress, {named.suspect.communicator for named in suspects})
        yield from _suspect_samples(job, suspects, self._ranks_of_the_job(snapshot))

    def _labels(self, snapshot: Snapshot) -> tuple[str, str]:
        """Return the run and its job, by the rings or the scheduler; without, the first process stands for the job.

        Anybody may listen at the address, and answer what they like: only rings and processes of the user who listens
        count, and the name of a job without a scheduler has the user's number.
        """
        pids = local_pids(snapshot.peers, self._node.addresses())
        runs = Counter((rank.run, rank.job_id) for rank in self._node.ranks(snapshot.uid) if rank.pid in pids)
        run, job_id = runs.most_common(1)[0][0] if runs else ("", "")
        largest = snapshot.largest()
        first = snapshot.peers[min(zip(largest.ranks, largest.peers, strict=True))[1]] if largest else None
        named = f"{first.host}:{first.pid}" if first is not None and first.host else ""
        if named and snapshot.uid is not None:
            named += f"@{snapshot.uid}"
        return run, job_id or self._node.job_id(pids, snapshot.uid) or named

    def _ranks_of_the_job(self, snapshot: Snapshot) -> dict[int, int]:
        """Return ranks by peer index; none if the rings of this node have others."""
        ranks = snapshot.ranks_of_the_job() if snapshot.form == "json" else {}
        by_pid = {rank.pid: rank.rank for rank in self._node.ranks(snapshot.uid)}
        addresses = self._node.addresses()
        agrees = all(
            by_pid.get(snapshot.peers[peer].pid, rank) == rank
            for peer, rank in ranks.items()
            if snapshot.peers[peer].host in addresses
        )
        return ranks if agrees else {}


def _is_another(before: Snapshot, now: Snapshot) -> bool:
    """Return whether two answers are of different jobs: no communicator of the earlier is left."""
    return not {comm.name for comm in before.communicators} & {comm.name for comm in now.communicators}


def _communicator_samples(job: tuple[str, str], progress: Progress, suspected: Collection[str]) -> Iterator[Sample]:
    ordered = sorted(
        progress.snapshot.communicators,
        key=lambda comm: (comm.name not in suspected, not _is_troubled(comm), -comm.size, comm.name),
    )
    for comm in ordered[:MOST_COMMUNICATORS]:
        for state, number in comm.states.items():
            yield families.COMMUNICATOR_RANKS.sample(number, *job, comm.name, state)
        for kind, (low, high) in comm.bounds.items():
            if high and progress.snapshot.form == "json":
                yield families.COMMUNICATOR_COLLECTIVES.sample(low, *job, comm.name, kind, "min")
                yield families.COMMUNICATOR_COLLECTIVES.sample(high, *job, comm.name, kind, "max")
        if comm.name in progress.last_launch and comm.bounds:
            yield families.LAST_LAUNCH.sample(progress.last_launch[comm.name], *job, comm.name)
    rest: Counter[str] = sum((comm.states for comm in ordered[MOST_COMMUNICATORS:]), Counter())
    for state, number in rest.items():
        yield families.COMMUNICATOR_RANKS.sample(number, *job, OTHERS, state)


def _is_troubled(comm: Communicator) -> bool:
    return bool(comm.absent) or comm.states["ready"] < comm.size


def _suspect_samples(job: tuple[str, str], suspects: Iterable[Named], ranks: Mapping[int, int]) -> Iterator[Sample]:
    waiting: dict[str, int] = {}
    labels: set[tuple[str, ...]] = set()
    for suspect, peer in suspects:
        rank = ranks.get(suspect.rank)
        certain = "yes" if suspect.certain else "no"
        number = "" if rank is None else str(rank)
        labels_of_suspect = (*job, suspect.communicator, number, peer.host, str(peer.gpu), suspect.state, certain)
        if labels_of_suspect not in labels:
            labels.add(labels_of_suspect)
            yield families.RANK_BEHIND.sample(max(1, suspect.expected - (suspect.launched or 0)), *labels_of_suspect)
        waiting[suspect.communicator] = suspect.waiting
    for communicator, number_waiting in waiting.items():
        yield families.WAITING_RANKS.sample(number_waiting, *job, communicator)


class Background:
    """Works in threads of their own, at a low priority, until it is told to stop."""

    def __init__(self) -> None:
        self._stop = threading.Event()

    def start(self, name: str, seconds: float, work: Callable[[], None]) -> None:
        """Do a piece of work now, and again so many seconds after its end."""
        threading.Thread(target=self._repeat, args=(seconds, work), name=name, daemon=True).start()

    def stop(self) -> None:
        """Start no further piece of work."""
        self._stop.set()

    def _repeat(self, seconds: float, work: Callable[[], None]) -> None:
        with contextlib.suppress(OSError):  # a thread has a priority of its own on Linux
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), BACKGROUND_NICENESS)
        while not self._stop.is_set():
            work()
            self._stop.wait(seconds)


class NcclCollector:
    """Watches each address in a thread of its own; a scrape reads the latest samples."""

    def __init__(self, context: Context) -> None:
        self._node = LocalNode(context)
        listens = getattr(context.flags, "web.listen-address", None)
        reachable = isinstance(listens, Address) and listens.host not in LOOPBACK
        ask = partial(_probe_at, listens.port) if isinstance(listens, Address) and reachable else None
        self.watches = [
            Watch(where, self._node, Turns(self._node, ask), context)
            for where in getattr(context.flags, "collector.nccl.address", None) or [address(DEFAULT_ADDRESS)]
        ]
        directories = getattr(context.flags, "collector.nccl.inspector-directory", None) or []
        self._inspector = Inspector([Path(directory) for directory in directories], self._node)
        self._inspected: list[Sample | Down] = []
        self._clock = context.clock
        self._background = Background()
        for watch in self.watches:
            self._background.start(f"nccl-{watch.name}", TICK_SECONDS, watch.tick)
        if directories:
            self._background.start("nccl-inspector", READ_SECONDS, self.inspect)

    def inspect(self) -> None:
        """Read the files of NCCL's Inspector. Never raises."""
        try:
            self._inspected = self._inspector.read(self._clock.wall())
        except Exception as error:  # noqa: BLE001  whatever is in a job's files must not end the thread
            self._inspected = [Down("inspector", reason_of(error), str(error)[:200])]

    def collect(self, until: float) -> Iterable[Sample | Down]:  # noqa: ARG002  nothing here waits
        """See :class:`Collector`."""
        seen: set[tuple[str, tuple[str, ...]]] = set()
        for watch in self.watches:
            for sample in watch.latest():
                key = (sample.family.name, sample.labels) if isinstance(sample, Sample) else ("", (sample.part,))
                if key not in seen:  # two addresses may be of one job
                    seen.add(key)
                    yield sample
        yield from self._inspected
        for text in sorted(self._node.addresses()):
            yield families.ADDRESS_INFO.sample(1, text)

    def endpoints(self) -> Mapping[str, Endpoint]:
        """See :class:`ServesEndpoints`."""
        return {STATUS_PATH: self.status}

    def status(self, _request: Request) -> Reply:
        """Serve the jobs that this exporter asks, for exporters that would take over."""
        jobs = [watch.turns.job for watch in self.watches if watch.turns.asks and watch.latest()]
        return Reply("application/json", json.dumps({"communicators": jobs}).encode() + b"\n")

    def close(self) -> None:
        """See :class:`Collector`."""
        self._background.stop()
        self._node.close()


def _probe_at(port: int, host: str, job: str) -> bool:
    return probe(host, port, job)


def _add_flags(parser: FlagGroup) -> None:
    parser.add_argument(
        "--collector.nccl.address",
        dest="collector.nccl.address",
        action="append",
        type=address,
        default=None,
        metavar="HOST:PORT",
        help=f"RAS socket of the jobs, as in NCCL_RAS_ADDR; may be given several times (default: {DEFAULT_ADDRESS})",
    )
    parser.add_argument(
        "--collector.nccl.inspector-directory",
        dest="collector.nccl.inspector-directory",
        action="append",
        default=None,
        metavar="DIRECTORY",
        help="folder of NCCL Inspector's files, as in NCCL_INSPECTOR_DUMP_DIR; may be given several times",
    )


COLLECTOR = CollectorSpec(
    name="nccl",
    help="Progress of collectives, from NCCL's RAS socket; their bandwidth, from the files of NCCL's Inspector.",
    families=(*families.FAMILIES, *INSPECTOR_FAMILIES),
    build=NcclCollector,
    add_flags=_add_flags,
)
