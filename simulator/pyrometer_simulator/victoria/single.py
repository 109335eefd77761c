"""A private VictoriaMetrics in one program, for a test or a measurement."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from pyrometer_simulator.ports import served
from pyrometer_simulator.stack.cache import cache_folder

HOW_TO_GET = "no VictoriaMetrics: Debian's package victoria-metrics, or VICTORIA_METRICS=path of another build"


def program() -> Path | None:
    """Return the program, where somebody has it: Debian has an old release."""
    names = [os.environ.get("VICTORIA_METRICS"), *map(shutil.which, ("victoria-metrics", "victoria-metrics-prod"))]
    unpacked = cache_folder() / "victoria-metrics/usr/bin/victoria-metrics"
    found = next(filter(None, names), unpacked if unpacked.exists() else None)
    return Path(found) if found else None


@contextlib.contextmanager
def running(binary: Path, folder: Path, *flags: str) -> Iterator[str]:
    """Run a VictoriaMetrics that shows at once what it has got, and yield its address once it is ready.

    Args:
        binary: from :func:`program`.
        folder: gets its data and its log.
        flags: more of them.

    Raises:
        StackError: it does not become ready.
    """

    def start(port: int) -> subprocess.Popen[bytes]:
        listen = [f"-httpListenAddr=127.0.0.1:{port}", f"-storageDataPath={folder}/data", "-retentionPeriod=2d"]
        with (folder / "log").open("ab") as output:
            return subprocess.Popen(
                [str(binary), *listen, "-search.disableCache", *flags], stdout=output, stderr=output
            )

    with served(start) as (_, port):
        yield f"http://127.0.0.1:{port}"
