"""What a benchmark starts, for as long as it needs it: the real node exporter as a process of its own, and the end."""

from __future__ import annotations

import contextlib
import re
import signal
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
                found = re.search(r"listening on [^ ]*?:(\d+)", line)
                if found:
                    yield process.pid, int(found[1])
                    return
        finally:
            process.terminate()


def end_in_order() -> None:
    """From now on SIGTERM ends this process as Ctrl-C does: what it has started ends too, folders are removed."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
