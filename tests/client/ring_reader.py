"""Reads a ring back with the exporter's own reader."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from pyrometer_exporters.node.train.rings import Header, Record, RingFile


class RingContent:
    """A ring as the exporter sees it."""

    def __init__(self, path: str | Path) -> None:
        file = RingFile(str(path))
        try:
            self.meta = file.meta
            self.header: Header = file.header()
            self.records: list[Record] = list(file.records(0, self.header.count))
            self.alive = file.alive()
            self.last_words = file.last_words()
            self.last_part = file.last_part()
        finally:
            file.close()


ReadRing = Callable[[str | Path], RingContent]
Python = Callable[..., "subprocess.CompletedProcess[str]"]
"""Runs a script in a process of its own."""
