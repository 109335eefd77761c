"""The real node exporter as a process of its own, for as long as a benchmark needs it."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence


@contextlib.contextmanager
def node_exporter(
    flags: Sequence[str], start: Sequence[str] = ("-m", "pyrometer_exporters.node.main")
) -> Iterator[tuple[int, int]]:
    """Process id and port; ``start`` is what Python is to run in its place."""
    command = [sys.executable, *start, "--web.listen-address=127.0.0.1:0", *flags]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            for line in process.stderr:
                found = re.search(r"listens on [^ ]*?:(\d+)", line)
                if found:
                    yield process.pid, int(found[1])
                    return
        finally:
            process.terminate()
