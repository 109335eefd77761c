"""The consumers' cursors in a file, so that a restart of the exporter serves no batch twice."""

from __future__ import annotations

import errno
import json
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyrometer_exporters.node.train.batches import LOSS, RunKey
from pyrometer_exporters.node.train.points import Cursor, Cursors
from pyrometer_exporters.node.train.run_names import Holder
from pyrometer_kit.statefile import read_regular

# Larger numbers are not timestamps.
MAX_TIMESTAMP = 1 << 53

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SavedCursors:
    """Cursors by consumer and run, the wall clock less CLOCK_MONOTONIC in ms, and whose job each run belongs to."""

    cursors: Cursors = field(default_factory=dict)
    offset_ms: int | None = None
    holders: Mapping[RunKey, Holder] = field(default_factory=dict)


class CursorFile:
    """A small JSON file in the state folder; without a folder nothing is saved."""

    def __init__(self, folder: Path | None) -> None:
        self._path = None if folder is None else folder / "train.json"
        self._file, self._fresh = str(self._path), f"{self._path}.new"
        self._failed = False

    def load(self) -> SavedCursors:
        """Return what was saved, empty where nothing readable is."""
        try:
            text = read_regular(self._path) if self._path else ""
            content = json.loads(text or "{}")
            offset = content.get("offset_ms")
            # Until 0.2.0 runs had no job, and their series no such label: those of now begin with the whole ring.
            runs = content.get("runs", {})
            cursors = {
                str(name): {_key(key): _cursor(newest, rings) for *key, newest, rings in of if rings}
                for name, of in runs.get("consumers", {}).items()
            }
            owners = {_key(key): int(uid) for *key, uid in runs.get("owners", [])}
            pids = {_key(key): _pids(of) for *key, of in runs.get("pids", [])}
            holders = {key: Holder(uid, pids.get(key, {})) for key, uid in owners.items()}
            return SavedCursors(cursors, None if offset is None else int(offset), holders)
        except FileNotFoundError:
            return SavedCursors()
        except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            log.warning("can't read %s (%s): batches still in the rings may be served again", self._path, error)
            return SavedCursors()

    def save(self, cursors: Cursors, offset_ms: int | None, holders: Mapping[RunKey, Holder]) -> None:
        """Replace the file; a failure is logged once. Not synced to disk: a power loss ends the ranks as well."""
        if self._path is None:
            return
        consumers = {
            name: [[*key, cursor.newest, cursor.rings] for key, cursor in of.items()] for name, of in cursors.items()
        }
        runs = {
            "consumers": consumers,
            "owners": [[*key, holder.uid] for key, holder in holders.items()],
            "pids": [[*key, holder.pids] for key, holder in holders.items() if holder.pids],
        }
        # 0.2.0 reads the empty consumers, after a step back.
        content = {"consumers": {}, "offset_ms": offset_ms, "runs": runs}
        try:
            self._replace(json.dumps(content).encode())
            self._failed = False
        except OSError as error:
            if not self._failed:
                log.warning("can't write %s: %s", self._path, error.strerror)
            self._failed = True

    def _replace(self, data: bytes) -> None:
        # Called at every reply of /batches, so without the cost of a file object.
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        fd = os.open(self._fresh, flags, 0o666)
        try:
            if os.write(fd, data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(fd)
        os.replace(self._fresh, self._file)  # noqa: PTH105


def _key(texts: Sequence[object]) -> RunKey:
    """Return a run's key.

    Raises:
        ValueError: it has too few texts, or too many.
    """
    run, job, attempt, *role = texts
    if role not in ([], [LOSS]):
        raise ValueError(f"{role} is not a role")
    return (str(run), str(job), str(attempt), *map(str, role))


def _pids(of: Mapping[str, float]) -> dict[str, int]:
    return {str(rank): int(pid) for rank, pid in of.items()}


def _cursor(newest: float, rings: Mapping[str, float]) -> Cursor:
    return Cursor(min(int(newest), MAX_TIMESTAMP), {str(ring): int(at) for ring, at in rings.items()})
