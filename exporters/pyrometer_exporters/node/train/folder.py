"""Which rings there are."""

from __future__ import annotations

import os
import time
from pathlib import Path

from pyrometer import ring
from pyrometer_exporters.node.train.rings import MAX_RINGS

# A folder that changed less than this before it was listed may change once more at the same time of its clock, whose
# ticks are of at most 10 ms.
SETTLED_SECONDS = 1.0


class Folder:
    """The rings' folder, listed when it has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._listed: tuple[int, int] | None = None  # how it was when it was listed
        self._names: frozenset[str] = frozenset()
        self.left_out = 0
        """How many rings are too many."""

    def names(self) -> frozenset[str]:
        """Those that are to be looked at. Raises OSError."""
        found = os.stat(self._path)  # noqa: PTH116
        state, settled = (found.st_ino, found.st_mtime_ns), time.time() - found.st_mtime > SETTLED_SECONDS
        if state != self._listed:
            self._names = self._list()
            # With too many it is the times of the files that count.
            self._listed = state if settled and not self.left_out else None
        return self._names

    def _list(self) -> frozenset[str]:
        with os.scandir(self._path) as entries:
            found = [e for e in entries if e.name.endswith(ring.SUFFIX) and not e.name.startswith(".")]
            if len(found) > MAX_RINGS:  # a job that crashes in a loop leaves many; the living are the newest
                found.sort(key=_made, reverse=True)
        self.left_out = max(0, len(found) - MAX_RINGS)
        return frozenset([entry.name for entry in found[:MAX_RINGS]])


def _made(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_mtime_ns
    except OSError:  # gone since
        return 0
