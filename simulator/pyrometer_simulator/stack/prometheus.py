"""A private Prometheus for a test or a measurement."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pyrometer_simulator.ports import serving


@contextlib.contextmanager
def running(binary: Path, flags: Callable[[int], Sequence[str]], log: Path) -> Iterator[str]:
    """Run a Prometheus and yield its address once it is ready.

    Args:
        binary: from ``find_stack``.
        flags: called with the port; may write the configuration where that names it.
        log: its output is appended there.

    Raises:
        StackError: it does not become ready.
    """

    def start(port: int) -> subprocess.Popen[bytes]:
        command = [str(binary), f"--web.listen-address=127.0.0.1:{port}", *flags(port)]
        with log.open("ab") as output:
            return subprocess.Popen(command, stdout=output, stderr=output)

    process, port = serving(start)
    with process:
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
