"""Measure what experiment trackers cost a training loop, beside the client: a step with two values, and one import.

Each logs loss and gradient norm as its documentation has it, without a server: W&B offline, MLflow into SQLite, Aim
into its local store, TensorBoard and JSON into files, prometheus_client into gauges, the client into its ring. A
tracker that isn't installed says so; none is a dependency of Pyrometer.

Run: python -m venv /tmp/trackers
     /tmp/trackers/bin/pip install ./client wandb mlflow aim tensorboard prometheus_client
     /tmp/trackers/bin/python benchmarks/bench_trackers.py
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import count

from bench_client import each, import_ms

import pyrometer

ROUNDS, STEPS = 3, 2000
VALUES = {"loss": 1.0, "grad_norm": 2.0}
Log = Callable[[], object]


def with_pyrometer(folder: str) -> Log:
    run = pyrometer.start(run="bench", flops_per_token=1.0, tokens_per_step=1, rings=folder)

    def log() -> None:
        with run.step():
            run.record(loss=1.0, grad_norm=2.0)

    return log


def with_prometheus(_folder: str) -> Log:
    import prometheus_client  # noqa: PLC0415  perhaps not there

    seconds = prometheus_client.Histogram("step_seconds", "Step.", registry=None)
    gauges = [prometheus_client.Gauge(name, "Value.", registry=None) for name in VALUES]

    def log() -> None:
        for gauge in gauges:
            gauge.set(1.0)
        seconds.observe(1.0)

    return log


def with_json(folder: str) -> Log:
    file = open(f"{folder}/log.jsonl", "w", encoding="utf-8")  # noqa: SIM115  as long as the process

    def log() -> None:
        file.write(json.dumps({**VALUES, "seconds": 1.0}) + "\n")
        file.flush()

    return log


def with_tensorboard(folder: str) -> Log:
    from tensorboard.summary import Writer  # noqa: PLC0415  perhaps not there

    writer, numbers = Writer(folder), count()

    def log() -> None:
        step = next(numbers)
        for name, value in VALUES.items():
            writer.add_scalar(name, value, step)

    return log


def with_wandb(folder: str) -> Log:
    import wandb  # noqa: PLC0415  perhaps not there

    run = wandb.init(project="bench", mode="offline", dir=folder, settings=wandb.Settings(silent=True))
    return lambda: run.log(VALUES)


def with_mlflow(folder: str) -> Log:
    import mlflow  # noqa: PLC0415  perhaps not there

    mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
    mlflow.set_experiment("bench")
    mlflow.start_run()
    numbers = count()
    return lambda: mlflow.log_metrics(VALUES, step=next(numbers))


def with_aim(folder: str) -> Log:
    import aim  # noqa: PLC0415  perhaps not there

    run, numbers = aim.Run(repo=folder, system_tracking_interval=None), count()

    def log() -> None:
        step = next(numbers)
        for name, value in VALUES.items():
            run.track(value, name=name, step=step)

    return log


# Name, its distribution, its module, what prepares it, and steps to measure: MLflow's take milliseconds.
TRACKERS: tuple[tuple[str, str, str, Callable[[str], Log], int], ...] = (
    ("Pyrometer", "pyrometer", "pyrometer", with_pyrometer, STEPS),
    ("prometheus_client", "prometheus-client", "prometheus_client", with_prometheus, STEPS),
    ("a JSON line, flushed", "pyrometer", "json", with_json, STEPS),
    ("TensorBoard", "tensorboard", "tensorboard.summary", with_tensorboard, STEPS),
    ("W&B, offline", "wandb", "wandb", with_wandb, STEPS),
    ("Aim, local", "aim", "aim", with_aim, STEPS // 4),
    ("MLflow, SQLite", "mlflow", "mlflow", with_mlflow, STEPS // 100),
)


def measured(prepare: Callable[[str], Log], folder: str, steps: int) -> tuple[float, float]:
    """Return median and 99th percentile of a step's log in microseconds, the median of rounds."""
    log = prepare(folder)
    log()  # what is made with the first step costs no later one
    rounds = [each(log, steps) for _ in range(ROUNDS)]
    median, p99 = (statistics.median(column) for column in zip(*rounds, strict=True))
    return median, p99


def main() -> None:
    print("| tracker | version | a step with two values: median | p99 | import |\n|---|---|---|---|---|")
    folder = tempfile.mkdtemp()  # until all have ended: threads of the trackers go on writing
    for row in rows(folder):
        print(f"| {' | '.join(row)} |", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)  # they would wait for their servers


def rows(folder: str) -> Iterator[tuple[str, ...]]:
    for name, distribution, module, prepare, steps in TRACKERS:
        try:
            version = importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            print(f"{name}: not installed here", file=sys.stderr)
            continue
        with contextlib.redirect_stdout(sys.stderr):
            median, p99 = measured(prepare, tempfile.mkdtemp(dir=folder), steps)
        yield name, version, f"{median:,.1f} µs", f"{p99:,.1f} µs", f"{import_ms(module):,.0f} ms"


if __name__ == "__main__":
    main()
