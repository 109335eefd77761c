"""Stack traces of stalled ranks, requested from those that allow it (``stacks=True``), grouped over ranks.

The signal makes faulthandler write the stacks of all threads beside the ring, even while Python hangs in NCCL. It would
end a process that is not prepared for it, and the number of one that is gone may belong to anybody's by now. So the
process is held by a pidfd first, and the signal goes through that only if this process then runs as the ring's owner,
began before the ring did, has the ring open, and catches the signal.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pyrometer import ring
from pyrometer_exporters.framework.metrics import Family, Sample
from pyrometer_exporters.node.train.batches import RunKey
from pyrometer_exporters.node.train.rank import Rank
from pyrometer_exporters.node.train.rank_exit import lock_holder
from pyrometer_kit.clock import Clock
from pyrometer_kit.proc_stat import read_stat

log = logging.getLogger(__name__)

# A rank without a step for three usual ones, or for 5 s more than one, has stalled. At most one request in five
# minutes, as a dump stops the rank for a moment.
SLOW_STEPS = 3.0
SLOW_SECONDS = 5.0
EVERY_SECONDS = 300.0
# Earlier steps compile, which takes minutes.
MIN_STEPS = 10
# Parts of any length, and places where the rank may be done.
QUIET_PARTS = ("checkpoint", "eval", "between", "between_ticks")
_CLOCK_TICK_SECONDS = 0.02
MAX_DUMP_BYTES = 256 * 1024

_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$')
# Frames of Python's library and of installed packages say where in PyTorch a rank is, not where in the job.
_INSTALLED = re.compile(r"/lib(?:64)?/python3|/(?:site|dist)-packages/|^<")
_PLACE = re.compile(r"^.* \((.*):(\d+)\)$")

STACK_INFO = Family(
    "pyrometer_train_stack_info",
    "gauge",
    "1; file and line in the job's own code where a stalled rank is, from its stack trace; only of ranks that allow it "
    "(stacks=True), while they have stalled.",
    ("run", "job_id", "attempt", "rank", "place"),
)


@dataclass
class _Request:
    """A request to a rank: when it was sent, and the size of the dump file before."""

    at: float
    wall: float
    size: int
    place: str = ""


class Stacks:
    """Requests the stacks of stalled ranks. Not thread-safe: the collector locks around it."""

    def __init__(self, procfs: Path, clock: Clock) -> None:
        self._procfs = procfs
        self._clock = clock
        self._requests: dict[str, _Request] = {}

    def poll(self, ranks: list[Rank]) -> None:
        """Send a request to those ranks that have stalled, allow it, and had none lately."""
        now = self._clock.monotonic()
        present = {rank.file.path for rank in ranks}
        self._requests = {path: request for path, request in self._requests.items() if path in present}
        for rank in ranks:
            request = self._requests.get(rank.file.path)
            recent = request is not None and now - request.at < EVERY_SECONDS
            if rank.ended_at is None and rank.header.stack_signal > 0 and not recent and _has_stalled(rank, now):
                self._requests[rank.file.path] = _Request(now, self._clock.wall(), _size(_dump_path(rank)))
                self._send(rank)

    def samples(self, ranks: list[Rank]) -> Iterator[Sample]:
        """Yield where in the job's code stalled ranks are."""
        now = self._clock.monotonic()
        for rank in ranks:
            request = self._requests.get(rank.file.path)
            if request is not None and rank.ended_at is None and _has_stalled(rank, now):
                request.place = request.place or place_of(main_thread(self._read(rank)))
                if request.place:
                    yield STACK_INFO.sample(1, *rank.labels, request.place)

    def report(self, ranks: list[Rank]) -> str:
        """Return the latest stacks: for each run the ranks with identical stacks, the smallest group first."""
        by_run: dict[RunKey, list[Rank]] = {}
        for rank in ranks:
            if rank.file.path in self._requests:
                by_run.setdefault(rank.key, []).append(rank)
        blocks = [self._block(key, of) for key, of in sorted(by_run.items())]
        return "\n".join(blocks) or "No rank with stacks=True has stalled.\n"

    def _block(self, key: RunKey, ranks: list[Rank]) -> str:
        latest = max(self._requests[rank.file.path].wall for rank in ranks)
        at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(latest))
        dumps = {rank.meta.rank: self._read(rank) for rank in ranks}
        name = f"{key[0]} ({key[1]})" if key[1] else key[0]
        return f"run {name}, attempt {key[2]}, {at}\n\n{fold(dumps)}"

    def _send(self, rank: Rank) -> None:
        number, name = rank.header.stack_signal, f"run {rank.meta.run} rank {rank.meta.rank}"
        try:
            pid = lock_holder(self._procfs, rank.file.identity)
            if pid is None:
                log.warning("%s has stalled; its process can't be found", name)
                return
            process = os.pidfd_open(pid)
            try:
                refusal = self._refusal(pid, rank, number)
                if refusal:
                    log.warning("%s has stalled; no stacks requested of process %d: %s", name, pid, refusal)
                    return
                signal.pidfd_send_signal(process, number)
            finally:
                os.close(process)
            log.warning("%s has stalled; stack traces are at /stacks", name)
        except OSError as error:
            log.warning("%s has stalled; requesting its stacks failed: %s", name, error.strerror)

    def _refusal(self, pid: int, rank: Rank, number: int) -> str:
        """Return why this process must not get the signal; empty where it is the ring's writer and awaits it."""
        status = (self._procfs / str(pid) / "status").read_text(encoding="utf-8", errors="replace")
        uids = re.search(r"^Uid:\s*(.*)$", status, re.MULTILINE)
        if uids is None or set(uids[1].split()) != {str(rank.file.uid)}:
            return f"it doesn't run as uid {rank.file.uid}, whose ring it is"
        if not self._began_before(pid, rank):
            return "it began later than the ring"
        if not self._has_open(pid, rank):
            return "it doesn't have the ring open"
        caught = re.search(r"^SigCgt:\s*([0-9a-f]+)$", status, re.MULTILINE)
        if caught is None or not int(caught[1], 16) >> (number - 1) & 1:
            return f"it doesn't catch signal {number}"
        return ""

    def _began_before(self, pid: int, rank: Rank) -> bool:
        began = read_stat(self._procfs, pid).started / os.sysconf("SC_CLK_TCK") - self._suspended()
        return began <= rank.header.created / 1e9 + _CLOCK_TICK_SECONDS

    @staticmethod
    def _suspended() -> float:
        """Return the seconds that CLOCK_BOOTTIME, of processes' starts, is ahead of CLOCK_MONOTONIC, of rings."""
        return time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)

    def _has_open(self, pid: int, rank: Rank) -> bool:
        for entry in (self._procfs / str(pid) / "fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                status = entry.stat()
                if (status.st_dev, status.st_ino) == rank.file.identity:
                    return True
        return False

    def _read(self, rank: Rank) -> str:
        """Return what the rank has written since the request."""
        with contextlib.suppress(OSError):
            fd = os.open(_dump_path(rank), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                if stat.S_ISREG(os.fstat(fd).st_mode):
                    data = os.pread(fd, MAX_DUMP_BYTES, self._requests[rank.file.path].size)
                    return data.decode("utf-8", errors="replace")
            finally:
                os.close(fd)
        return ""


def _has_stalled(rank: Rank, now: float) -> bool:
    header, (part, since) = rank.header, rank.position()
    if header.count < MIN_STEPS or part in QUIET_PARTS:
        return False
    began = max(header.step_started, rank.last_end, since if part == "step" else 0)
    usual = header.step_total / header.count / 1e9
    return now - began / 1e9 > max(SLOW_STEPS * usual, usual + SLOW_SECONDS)


def _dump_path(rank: Rank) -> str:
    return rank.file.path.removesuffix(ring.SUFFIX) + ring.STACKS_SUFFIX


def _size(path: str) -> int:
    try:
        return Path(path).lstat().st_size
    except OSError:
        return 0


def fold(dumps: Mapping[str, str]) -> str:
    """Group ranks by the stacks of their main threads, the smallest group first: the outlier is the suspect."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for rank, dump in dumps.items():
        groups.setdefault(main_thread(dump), []).append(int(rank))
    lines = []
    for frames, ranks in sorted(groups.items(), key=lambda item: (len(item[1]), item[1])):
        name = f"{'rank' if len(ranks) == 1 else 'ranks'} {ranges(ranks)}"
        lines += [f"{name}:", *(f"  {frame}" for frame in frames or ("no answer",)), ""]
    return "\n".join(lines)


def main_thread(dump: str) -> tuple[str, ...]:
    """Return the frames of the thread that took the signal, Python's main thread; the innermost first."""
    blocks = re.split(r"^(?=(?:Thread|Current thread) 0x)", dump, flags=re.MULTILINE)
    current = [block for block in blocks if block.startswith("Current thread")]
    return tuple(_frames((current or blocks)[-1]))


def _frames(block: str) -> Iterator[str]:
    for line in block.splitlines():
        frame = _FRAME.match(line)
        if frame:
            yield f"{frame[3]} ({frame[1]}:{frame[2]})"


def place_of(frames: tuple[str, ...]) -> str:
    """Return file and line of the innermost frame of the job's own; of the innermost where all are installed ones.

    >>> place_of(("read (/usr/lib/python3.12/socket.py:717)", "fetch (/job/dataloader.py:88)"))
    'dataloader.py:88'
    """
    places = [place for frame in frames if (place := _PLACE.match(frame))]
    in_job = [place for place in places if not _INSTALLED.search(place[1])]
    return "".join(f"{os.path.basename(place[1])}:{place[2]}"[:128] for place in (in_job or places)[:1])  # noqa: PTH119


def ranges(numbers: list[int]) -> str:
    """Format numbers as ranges: 0-2,7.

    >>> ranges([7, 1, 0, 2])
    '0-2,7'
    """
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)
