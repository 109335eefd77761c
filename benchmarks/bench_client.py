"""Measure what the client costs a training loop: one step, one part, one import.

All in one run, because only ratios within a run mean much on a shared machine. Rows: the client; a wait that it
detects, beside the call as it is; a step timed by CUDA events, whose own cost is left out. Alternatives:
bench_trackers.py.

Run: .venv/bin/python benchmarks/bench_client.py
"""

from __future__ import annotations

import gc
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Callable, Iterator

import pyrometer

STEPS, ROUNDS = 20_000, 5
MILLION = 1_000_000


def each(body: Callable[[], object], steps: int = STEPS) -> tuple[float, float]:
    """Return median and 99th percentile of single calls in microseconds, less the clock's own reading."""
    clock = time.perf_counter_ns
    times, empty = [], []
    for _ in range(steps):
        begin = clock()
        body()
        times.append(clock() - begin)
        begin = clock()
        empty.append(clock() - begin)
    own = statistics.median(empty)
    return (statistics.median(times) - own) / 1e3, (sorted(times)[int(0.99 * steps)] - own) / 1e3


def client(folder: str) -> Iterator[tuple[str, Callable[[], object]]]:
    run = pyrometer.start(run="bench", flops_per_token=1.0, tokens_per_step=1, rings=folder)
    changed = pyrometer.start(run="changed", flops_per_token=1.0, tokens_per_step=1, global_batch_size=1, rings=folder)
    assert run.disabled is None, run.disabled
    changed.record(global_batch_size=2)

    def step() -> None:
        with run.step():
            pass

    def part() -> None:
        with run.part("data"):
            pass

    def record() -> None:
        with run.step():
            run.record(loss=1.0, grad_norm=2.0)

    def full() -> None:
        with run.step():
            for name in ("data", "forward", "backward", "optimizer"):
                with run.part(name):
                    pass
            run.record(loss=1.0, grad_norm=2.0)

    def ramp() -> None:
        with changed.step():
            pass

    yield "pyrometer: a step", step
    yield "pyrometer: a tick", run.tick
    yield "pyrometer: a part", part
    yield "pyrometer: a step with loss and grad norm", record
    yield "pyrometer: a step with four parts, loss and grad norm", full
    yield "pyrometer: a step after the batch size changed", ramp


def waits(folder: str) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield a call that waits for other ranks, as PyTorch has it and with the detection of waits, on a stand-in."""
    name = "torch.distributed.distributed_c10d"
    plain, watched = (type("Work", (), {"wait": lambda _self: None}) for _ in range(2))
    sys.modules[name] = module = types.ModuleType(name)
    module.__dict__["Work"] = watched
    run = pyrometer.start(run="waits", rings=folder, world_size=2)
    run.step().__enter__()
    before, after = plain().wait, watched().wait
    assert before.__func__ is not after.__func__

    def detected() -> None:
        after()
        run.tag("")  # holds the run

    yield "a wait of torch.distributed as it is", before
    yield "a wait of torch.distributed, detected", detected


def device_times(folder: str) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield a step that the client times on the GPU, on a stand-in that costs nothing: what is left is the client's."""

    class Event:
        def __init__(self, enable_timing: bool) -> None: ...
        def record(self) -> None: ...
        def query(self) -> bool:
            return True

        def elapsed_time(self, _other: object) -> float:
            return 1.0

    before = sys.modules.get("torch")
    sys.modules["torch"] = torch = types.ModuleType("torch")
    torch.__dict__["cuda"] = types.SimpleNamespace(
        is_initialized=lambda: True, is_current_stream_capturing=lambda: False, get_device_name=str, Event=Event
    )
    run = pyrometer.start(run="timed", rings=folder)
    if before is None:
        del sys.modules["torch"]
    else:
        sys.modules["torch"] = before

    def timed() -> None:
        with run.step():
            pass

    yield "pyrometer: a step timed on the GPU", timed


def import_ms(module: str) -> float:
    code = f"import time; t = time.perf_counter(); import {module}; print((time.perf_counter() - t) * 1e3)"
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(15)]
    return statistics.median(float(run.stdout) for run in runs)


def a_million_steps(folder: str) -> None:
    """Compare memory and live objects after a million steps with those after ten thousand."""
    run = pyrometer.start(run="million", rings=folder)

    def steps(count: int) -> None:
        for number in range(count):
            with run.step():
                with run.part("data"):
                    pass
                run.record(loss=1.0, global_batch_size=1 + number % 7)

    steps(10_000)
    gc.collect()
    objects, memory = len(gc.get_objects()), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    steps(MILLION)
    gc.collect()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory
    print(f"a million steps: {grown} kB more memory, {len(gc.get_objects()) - objects} more objects")


def main() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        rows = [*client(folder), *waits(folder), *device_times(folder)]
        measured: dict[str, list[tuple[float, float]]] = {name: [] for name, _ in rows}
        for _ in range(ROUNDS):  # in turn, so that a slow moment of the machine affects all
            for name, body in rows:
                measured[name].append(each(body))
        for name, found in measured.items():
            median, p99 = (statistics.median(column) for column in zip(*found, strict=True))
            print(f"{name}: median {median:.2f} us, p99 {p99:.2f} us")
        a_million_steps(folder)
    print(f"import pyrometer: median {import_ms('pyrometer'):.1f} ms")


if __name__ == "__main__":
    main()
