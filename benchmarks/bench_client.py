"""What the client costs a training loop: one step, one part, one import. Medians; the machine is named by its clock.

Run: .venv/bin/python benchmarks/bench_client.py
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import pyrometer

REPEATS, BATCH = 200, 2000


def nanoseconds(body: Callable[[], object], batch: int = BATCH, repeats: int = REPEATS) -> tuple[float, float]:
    """Median and 99th percentile over ``repeats`` of the mean of ``batch`` calls, in ns."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter_ns()
        for _ in range(batch):
            body()
        times.append((time.perf_counter_ns() - start) / batch)
    return statistics.median(times), sorted(times)[int(0.99 * len(times))]


def main() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        run = pyrometer.start(run="bench", flops_per_token=1.0, tokens_per_step=1, rings=folder)
        assert run.disabled is None, run.disabled

        def step() -> None:
            with run.step():
                pass

        def part() -> None:
            with run.part("data"):
                pass

        def record() -> None:
            with run.step():
                run.record(loss=1.0, grad_norm=2.0)

        def nothing() -> None:
            pass

        call, _ = nanoseconds(nothing)
        clock, _ = nanoseconds(time.monotonic_ns)
        print(f"an empty call {call:.0f} ns, a clock read {clock:.0f} ns (both are part of the figures below)")
        for name, body in (("step", step), ("part", part), ("step with loss and grad norm", record)):
            median, p99 = nanoseconds(body)
            print(f"{name}: median {median:.0f} ns, p99 {p99:.0f} ns")
        run.close()
    code = "import time; t = time.perf_counter(); import pyrometer; print((time.perf_counter() - t) * 1e3)"
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(15)]
    print(f"import pyrometer: median {statistics.median(float(r.stdout) for r in runs):.1f} ms")


if __name__ == "__main__":
    main()
