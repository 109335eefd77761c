"""The real node_exporter, which our NIC collector is compared with: by value in the tests, by cost in a benchmark.

From PATH where it is new enough, else from Debian's testing suite, unpacked into the same cache as the rest.
"""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pyrometer_kit.http_client import get
from pyrometer_simulator.ports import served
from pyrometer_simulator.stack.cache import Progress, cache_folder, fill, missing
from pyrometer_simulator.stack.errors import StackError
from pyrometer_simulator.stack.versions import Version, on_path, parse_version, version_line

PACKAGE = "prometheus-node-exporter"
# 1.11 has the hardware counters of InfiniBand, which 1.9 had not.
OLDEST: Version = (1, 11)
_HINT = "install node_exporter >= 1.11 so that it is on PATH"
START_SECONDS = 20.0


def find_node_exporter(progress: Progress = print) -> Path:
    """Return the path of node_exporter; downloads it where it is missing (5 MB, once).

    Raises:
        StackError: it can't be downloaded; one line says what to install.
    """
    found = on_path(["node_exporter", PACKAGE], OLDEST)
    if found is not None:
        return found
    folder = cache_folder()
    if missing(folder, [PACKAGE]):
        fill(folder, [PACKAGE], _check, progress)
    return folder / PACKAGE / "usr/bin" / PACKAGE


def _check(package: str, unpacked: Path) -> None:
    line = version_line([unpacked / "usr/bin" / package])
    version = parse_version(line)
    if version is None:
        raise StackError(f"{package} of Debian testing does not start on this system (too old a libc?): {_HINT}")
    if version < OLDEST:
        raise StackError(f"this archive only has {line}: {_HINT}")


@dataclass(frozen=True)
class NodeExporter:
    """A running node_exporter."""

    port: int
    pid: int

    def scrape(self) -> str:
        """Return the text of its /metrics."""
        return get(f"http://127.0.0.1:{self.port}/metrics").decode()


@contextlib.contextmanager
def running(binary: Path, sysfs: Path | None = None) -> Iterator[NodeExporter]:
    """Run node_exporter on a free port, reading InfiniBand and interfaces below ``sysfs`` and nothing else.

    Without ``sysfs`` it reads this machine, with its default collectors.
    """
    command = [os.fspath(binary), "--log.level=error"]
    if sysfs is not None:
        command += [
            f"--path.sysfs={sysfs}", "--collector.disable-defaults", "--collector.infiniband", "--collector.netclass",
            "--web.disable-exporter-metrics",
        ]  # fmt: skip

    def start(port: int) -> subprocess.Popen[bytes]:
        where = f"--web.listen-address=127.0.0.1:{port}"
        return subprocess.Popen([*command, where], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    with served(start, "/metrics", START_SECONDS) as (process, port):
        yield NodeExporter(port, process.pid)
