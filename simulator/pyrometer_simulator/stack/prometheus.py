"""A real Prometheus of one's own, for a test or a measurement."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pyrometer_simulator.ports import serving


@contextlib.contextmanager
def running(binary: Path, flags: Callable[[int], Sequence[str]], log: Path) -> Iterator[str]:
    """The address of one that is ready; ended at the end.

    Args:
        binary: from ``find_stack``.
        flags: for this port; may write the configuration, where that names it.
        log: what it says is added there.

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
