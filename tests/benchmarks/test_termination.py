"""Programs that a measurement has started end with it, however it ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"

# In place of Prometheus: it says who it is, and is ready.
PROMETHEUS = """#!{python}
import http.server, os, sys
class Ready(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
(port,) = (flag.rpartition(":")[2] for flag in sys.argv if flag.startswith("--web.listen-address="))
open({pid!r}, "w").write(str(os.getpid()))
http.server.HTTPServer(("127.0.0.1", int(port)), Ready).serve_forever()
"""
MEASURE = """
import sys
sys.path.insert(0, {benchmarks!r})
import bench_scale, measure_boards, stores
from pathlib import Path
from pyrometer_simulator.stack import Stack
measure_boards.find_stack = stores.find_stack = lambda: Stack(Path({prometheus!r}), Path("/bin/true"), (), ())
bench_scale.record = lambda *_: ""  # what a node exporter says
sys.argv = ["measure", {flag!r}]
sys.exit({module}.main())
"""


@contextlib.contextmanager
def measuring(folder: Path, module: str, flag: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A measurement that has started its Prometheus, and the process id of that."""
    program, pid, temporary = folder / "prometheus", folder / "pid", folder / "temporary"
    program.write_text(PROMETHEUS.format(python=sys.executable, pid=str(pid)))
    program.chmod(0o755)
    temporary.mkdir()
    code = MEASURE.format(benchmarks=str(BENCHMARKS), prometheus=str(program), module=module, flag=flag)
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, env={**os.environ, "TMPDIR": str(temporary)}) as process:
        deadline = time.monotonic() + 60
        while not (pid.exists() and pid.read_text()):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield process, int(pid.read_text())


@pytest.mark.parametrize(("module", "flag"), [("measure_boards", "--nodes=2"), ("bench_scale", "--sizes=2")])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_measurement_that_is_ended_leaves_no_prometheus_and_no_folder(
    tmp_path: Path, module: str, flag: str, number: int
) -> None:
    with measuring(tmp_path, module, flag) as (process, prometheus):
        process.send_signal(number)
        process.wait(20)
        try:
            with pytest.raises(ProcessLookupError):
                os.kill(prometheus, 0)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(prometheus, signal.SIGKILL)
    assert process.returncode in (128 + signal.SIGTERM, -signal.SIGINT)
    assert list((tmp_path / "temporary").iterdir()) == []
