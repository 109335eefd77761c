"""A private Prometheus for a test or a measurement."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from pyrometer_simulator.ports import served
from pyrometer_simulator.stack import Stack


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

    with served(start) as (_, port):
        yield f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def holding(stack: Stack, folder: Path, *histories: Iterable[str]) -> Iterator[str]:
    """Run a Prometheus that holds these samples, however old they are, and yield its address once it is ready.

    Args:
        stack: from ``find_stack``.
        folder: gets its configuration, its data and its log.
        histories: each the lines of OpenMetrics, without the `# EOF`.

    Raises:
        StackError: it does not become ready.
    """
    text, data, configuration = folder / "samples.txt", folder / "data", folder / "prometheus.yml"
    for lines in histories:
        text.write_text("\n".join((*lines, "# EOF", "")))
        command = [str(stack.promtool), "tsdb", "create-blocks-from", "openmetrics", str(text), str(data)]
        subprocess.run(command, check=True, capture_output=True)
    configuration.write_text("global: {}\n")
    flags = [f"--config.file={configuration}", f"--storage.tsdb.path={data}", "--storage.tsdb.retention.time=10y"]
    with running(stack.prometheus, lambda _port: flags, folder / "log") as url:
        yield url
