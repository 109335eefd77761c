"""The real node exporter as a process: latency of a scrape, CPU per scrape, memory at start and end.

Run: .venv/bin/python benchmarks/bench_node_exporter.py [scrapes] [--no-steps]
It reads this machine's own sysfs and the rings of eight ranks made for it; without a GPU that part is absent, and said.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from started import node_exporter

import pyrometer

SCRAPES = next((int(text) for text in sys.argv[1:] if text.isdecimal()), 1000)
RANKS = 8
STEPS = "--no-steps" not in sys.argv
METRICS, BATCHES = "/metrics", "/batches?consumer=bench"


@contextlib.contextmanager
def ranks(folder: str) -> Iterator[list[pyrometer.Run]]:
    runs = [
        pyrometer.start("bench", rings=folder, rank=n, local_rank=n, world_size=RANKS, tokens_per_step=4_194_304,
                        flops_per_token=5e10, gpu_model="NVIDIA H100 80GB HBM3")
        for n in range(RANKS)
    ]  # fmt: skip
    yield runs
    for run in runs:
        run.close()


def rss_megabytes(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def threads_of(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    with contextlib.ExitStack() as stack:
        rings = stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm"))
        state = stack.enter_context(tempfile.TemporaryDirectory())
        runs = stack.enter_context(ranks(rings))
        pid, port = stack.enter_context(node_exporter([f"--path.rings={rings}", f"--path.state={state}"]))
        # Prometheus has a connection for each of its jobs, and these are two.
        connections = {path: http.client.HTTPConnection("127.0.0.1", port, timeout=20) for path in (METRICS, BATCHES)}

        def get(path: str) -> bytes:
            connections[path].request("GET", path)
            return connections[path].getresponse().read()

        for _ in range(20):
            text = get(METRICS)
        rss, cpu = rss_megabytes(pid), cpu_seconds(pid)
        threads = threads_of(pid)
        scrapes, batches = [], []
        for _ in range(SCRAPES):
            for run in runs[: RANKS if STEPS else 0]:
                with run.step(), run.part("forward"):
                    run.record(loss=1.0)
            start = time.perf_counter()
            get(METRICS)
            middle = time.perf_counter()
            get(BATCHES)
            scrapes.append((middle - start) * 1e3)
            batches.append((time.perf_counter() - middle) * 1e3)
        cpu = cpu_seconds(pid) - cpu
        after, more = rss_megabytes(pid), threads_of(pid) - threads
        for connection in connections.values():
            connection.close()
    samples = sum(not line.startswith(b"#") for line in text.splitlines())
    down = sorted(set(re.findall(rb'down_reason_info\{collector="(\w+)",part="[^"]*",reason="(\w+)"', text)))
    print(f"{samples} samples, {len(text) / 1000:.0f} kB; absent here: {[b'/'.join(d).decode() for d in down]}")
    for name, times in (("/metrics", scrapes), ("/batches", batches)):
        p99 = sorted(times)[int(0.99 * len(times))]
        print(f"{name}: median {statistics.median(times):.2f} ms, p99 {p99:.2f} ms over {SCRAPES}")
    each = cpu / SCRAPES
    print(f"CPU for both: {each * 1e3:.2f} ms per scrape; at 15 s {each / 15 * 100:.3f} % of a core")
    print(f"RSS: {rss:.1f} MB after 20 scrapes, {after:.1f} MB after {SCRAPES} more; threads {more:+d}")


if __name__ == "__main__":
    main()
