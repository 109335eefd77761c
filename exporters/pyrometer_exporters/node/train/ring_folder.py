"""The folder of the rings: list it when it has changed, and limit their number."""

from __future__ import annotations

import os
import time
from pathlib import Path

from pyrometer import ring
from pyrometer_exporters.node.train.rings import MAX_RINGS

# A folder that changed less than this before it was listed may change again without a new time: file systems' clocks
# tick every 10 ms or faster.
SETTLED_SECONDS = 1.0


class RingFolder:
    """Lists the folder when it has changed.

    Attributes:
        left_out: Number of rings beyond the limit.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._listed_state: tuple[int, int] | None = None  # inode and modification time when it was listed
        self._names: frozenset[str] = frozenset()
        self.left_out = 0

    def names(self) -> frozenset[str]:
        """Return the names of the rings to read, the newest where there are too many.

        Raises:
            OSError: the folder can't be listed.
        """
        status = os.stat(self._path)  # noqa: PTH116
        state, settled = (status.st_ino, status.st_mtime_ns), time.time() - status.st_mtime > SETTLED_SECONDS
        if state != self._listed_state:
            self._names = self._list()
            # With too many rings, the files' own times decide: list them every time.
            self._listed_state = state if settled and not self.left_out else None
        return self._names

    def _list(self) -> frozenset[str]:
        with os.scandir(self._path) as entries:
            rings = [e for e in entries if e.name.endswith(ring.SUFFIX) and not e.name.startswith(".")]
            if len(rings) > MAX_RINGS:  # a job that crashes in a loop leaves many; the live ones are the newest
                rings.sort(key=_modified, reverse=True)
        self.left_out = max(0, len(rings) - MAX_RINGS)
        return frozenset([entry.name for entry in rings[:MAX_RINGS]])


def _modified(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_mtime_ns
    except OSError:  # removed meanwhile
        return 0
