"""The latest collectives of this node's ranks, from the dumps that PyTorch's Flight Recorder writes when a job hangs.

A dump is a pickle from a job: a process of its own reads it, which builds plain values only and ends on its own. All
ranks' dumps are joined where all are known, in the alerting service. A sample line::

    pyrometer_train_flight_recorder_collective{run="llama",job_id="4711",attempt="0",rank="2",group="2",
        group_name="tensor",group_ranks="2",group_members="2-3",collective="nccl:all_reduce",state="finished",
        place="train.py:21 in train",shape=""} 5
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pyrometer_exporters.framework.metrics import Down, Families, Sample
from pyrometer_exporters.framework.outcome import reason_of
from pyrometer_exporters.framework.shared_folder import SharedFolder

POLL_SECONDS = 10.0
# A dump of megabytes takes a moment to be written.
SETTLED_SECONDS = 2.0
READ_SECONDS = 120.0
"""How long the reading of a node's dumps may take; that of 8 ranks with 2,000 collectives each takes a few seconds."""
MOST_DUMPS = 64
MOST_ANSWER_BYTES = 8 * 1024 * 1024
MOST_DOWNS = 8
_NAME = re.compile(r"(\d{1,7})(?:\.json)?$")

# fmt: off
FLIGHT_RECORDER_FAMILIES = Families("run", "job_id", "attempt", "rank")
DUMP = FLIGHT_RECORDER_FAMILIES.gauge("pyrometer_train_flight_recorder_dump_timestamp_seconds",
    "When PyTorch's Flight Recorder wrote the rank's dump, in --collector.train.flight-recorder-directory.")
COLLECTIVE = FLIGHT_RECORDER_FAMILIES.gauge("pyrometer_train_flight_recorder_collective",
    "Number of the first collective of a group that the rank has not finished (state waiting), or of its latest "
    "(finished), from its Flight Recorder dump; and of the last one launched beyond it (launched). Sends and receives "
    "likewise; place is where in the job's code. Without a group: the dump holds none, or not all (partial).",
    "group", "group_name", "group_ranks", "group_members", "collective", "state", "place", "shape")
# fmt: on


class Writer(NamedTuple):
    """A rank of this node: the labels of its series, its user, and when it began, in Unix seconds."""

    labels: tuple[str, ...]
    uid: int
    began: float


class _Dump(NamedTuple):
    path: str
    writer: Writer
    written: float
    size: int


Describe = Callable[[Sequence[str]], Iterable[str]]
"""Return the lines that ``pyrometer._describe_dumps`` prints of some files."""


def describe(paths: Sequence[str]) -> Iterable[str]:
    """Read dumps in a process of its own.

    Raises:
        OSError: it can't be started.
        TimeoutError: it took too long.
    """
    command = [sys.executable, "-m", "pyrometer._describe_dumps", *paths]
    try:
        # From the root folder: whatever Python finds in the current one, it imports.
        done = subprocess.run(
            command, cwd="/", stdin=subprocess.DEVNULL, capture_output=True, timeout=READ_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"reading {len(paths)} dumps took more than {READ_SECONDS:.0f} s") from None
    return done.stdout[:MOST_ANSWER_BYTES].decode("utf-8", "replace").splitlines()


class FlightRecorder:
    """Follows the dumps in some directories. :meth:`poll` is for one thread, :meth:`samples` for any."""

    def __init__(self, directories: Sequence[Path], wall: Callable[[], float], describe: Describe = describe) -> None:
        self._directories = [(path, SharedFolder(path, MOST_DUMPS)) for path in dict.fromkeys(directories)]
        self._wall = wall
        self._describe = describe
        self._known: dict[_Dump, dict[str, Any]] = {}
        self._downs: list[Down] = []

    def poll(self, writers: Iterable[Writer]) -> None:
        """Read the dumps that these ranks have written since they began, each once."""
        self._downs = []
        by_rank: dict[str, list[Writer]] = {}
        for writer in writers:
            by_rank.setdefault(writer.labels[-1], []).append(writer)
        dumps = [dump for at in self._directories for dump in self._find(*at, by_rank)]
        dumps = sorted(dumps, key=lambda dump: -dump.written)[:MOST_DUMPS]
        read = {dump: self._known[dump] for dump in dumps if dump in self._known}
        new = {dump.path: dump for dump in dumps if dump not in read}
        if new:
            read.update(self._read(new))
        self._known = read

    def samples(self) -> Iterator[Sample | Down]:
        """Yield what the dumps hold."""
        downs = list(self._downs)
        seen: set[tuple[str, ...]] = set()
        for dump, described in self._known.items():
            if "error" in described:
                downs.append(Down(dump.path, "malformed", str(described["error"])))
            elif dump.writer.labels not in seen:
                seen.add(dump.writer.labels)
                yield DUMP.sample(dump.written, *dump.writer.labels)
                yield from _collectives(dump.writer.labels, described)
        yield from downs[:MOST_DOWNS]

    def _find(self, directory: Path, folder: SharedFolder, by_rank: Mapping[str, Sequence[Writer]]) -> Iterator[_Dump]:
        def writers_of(name: str) -> Sequence[Writer]:
            number = _NAME.search(name)
            return by_rank.get(str(int(number[1])), ()) if number else ()

        now = self._wall()
        try:
            listed = folder.files(lambda name: bool(writers_of(name)), now)
        except OSError as error:
            self._downs.append(Down(str(directory), reason_of(error), str(error)))
            return
        for entry in listed:
            writers = writers_of(entry.name)
            mine = [writer for writer in writers if writer.uid == entry.uid and writer.began <= entry.written]
            if mine and now - entry.written >= SETTLED_SECONDS:
                writer = max(mine, key=lambda writer: writer.began)
                yield _Dump(str(directory / entry.name), writer, entry.written, entry.size)

    def _read(self, new: Mapping[str, _Dump]) -> dict[_Dump, dict[str, Any]]:
        """Return what was read, or an error for each file that was not: none is read again before it changes."""
        read = {dump: {"error": "reading it was given up"} for dump in new.values()}
        try:
            lines = self._describe(list(new))
        except OSError as error:
            return {dump: {"error": str(error)} for dump in new.values()}
        for line in lines:
            with contextlib.suppress(ValueError, KeyError, TypeError):
                described = json.loads(line)
                read[new[described["file"]]] = described
        return read


def _collectives(labels: tuple[str, ...], described: Mapping[str, Any]) -> Iterator[Sample]:
    for latest in described["latest"]:
        group = latest["group"], latest["name"], str(latest["ranks"] or ""), latest["members"]
        state = "finished" if latest["finished"] else "waiting"
        of = latest["collective"], state, latest["place"], latest["shape"]
        yield COLLECTIVE.sample(latest["sequence"], *labels, *group, *of)
        if latest["launched"] > latest["sequence"]:
            yield COLLECTIVE.sample(latest["launched"], *labels, *group, "", "launched", "", "")
    if not described["whole"]:
        yield COLLECTIVE.sample(0, *labels, "", "", "", "", "", "partial", "", "")
    elif not described["latest"]:
        yield COLLECTIVE.sample(0, *labels, "", "", "", "", "", "finished", "", "")
