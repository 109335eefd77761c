"""The node exporter as users start it, in a process of its own, and its pages."""

from __future__ import annotations

import contextlib
import http.client
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from pyrometer_exporters.commands.gpu_check.place import Place, scratch

GPU = "0"


class Page:
    """One scrape: when it was, how long it took, and its values."""

    def __init__(self, text: str, began: float, ended: float) -> None:
        self.at = (began + ended) / 2
        """The middle of the scrape, by ``time.monotonic``."""
        self.seconds = ended - began
        self.bytes = len(text)
        self._values: dict[str, list[tuple[dict[str, str], float]]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                self._values.setdefault(sample.name, []).append((sample.labels, sample.value))

    def samples(self, name: str, **labels: str) -> list[tuple[dict[str, str], float]]:
        """Return the series of a name that have these labels."""
        wanted = labels.items()
        return [(labelled, value) for labelled, value in self._values.get(name, ()) if wanted <= labelled.items()]

    def value(self, name: str, **labels: str) -> float | None:
        """Return the first series of a name that has these labels."""
        return next((value for _, value in self.samples(name, **labels)), None)

    def by(self, name: str, label: str) -> dict[str, float]:
        """Return the first GPU's values of a name by one of its labels."""
        return {labels[label]: value for labels, value in self.samples(name, gpu=GPU)}


class Exporter:
    """A node exporter under way."""

    def __init__(self, pid: int, port: int) -> None:
        self.pid = pid
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)

    def scrape(self, path: str = "/metrics") -> Page:
        """Return a page, compressed as Prometheus asks for it where that is measured; plain here."""
        began = time.monotonic()
        self._connection.request("GET", path)
        text = self._connection.getresponse().read().decode()
        return Page(text, began, time.monotonic())

    def cpu_seconds(self) -> float:
        """Return the CPU time of all its threads."""
        return time.clock_gettime(~self.pid << 3 | 2)  # its CPU-time clock, as clock_getcpuclockid(3) numbers it

    def rss_megabytes(self) -> float:
        """Return its resident memory."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1000


@contextlib.contextmanager
def node_exporter(
    flags: Sequence[str], module: Sequence[str] = ("-m", "pyrometer_exporters.node.main")
) -> Iterator[tuple[int, int]]:
    """Run a node exporter for the length of the block; yield its process id and port.

    ``module`` is the start of Python's command line, for a variant of the exporter.
    """
    command = [sys.executable, *module, "--web.listen-address=127.0.0.1:0", *flags]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            for line in process.stderr or ():
                address = re.search(r"listening on [^ ]*?:(\d+)", line)
                if address:
                    yield process.pid, int(address[1])
                    return
        finally:
            process.terminate()


@contextlib.contextmanager
def exporter(place: Place, *flags: str, rings: Path | None = None) -> Iterator[Exporter]:
    """Run the exporter for the length of the block; its first scrape, which starts the collectors, is behind it."""
    with scratch() as folder:
        (folder / "rings").mkdir()
        paths = [f"--path.rings={rings or folder / 'rings'}", f"--path.state={folder / 'state'}", *place.node_paths()]
        with node_exporter([*paths, *flags], place.exporter_module()) as (pid, port):
            running = Exporter(pid, port)
            running.scrape()
            yield running
