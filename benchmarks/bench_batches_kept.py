"""Cost of a run's batches on disk: raw for 30 days, and the records of each minute for ever.

Run: VICTORIA_METRICS=victoria-metrics .venv/bin/python benchmarks/bench_batches_kept.py [--write docs/scale.md]

A day of one run with a step a second goes into a VictoriaMetrics and, as blocks, into a Prometheus: the five series of
/batches, whose values are noisy and whose times are irregular, and the records *:window1m that the rules make of them.
The rest is multiplied. Without the program the one of Debian's package victoria-metrics is taken, where it is at hand.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from harness import replace_between_marks

from pyrometer_simulator.http_call import call
from pyrometer_simulator.ports import serving
from pyrometer_simulator.stack import find_stack
from pyrometer_simulator.stack.cache import cache_folder

MARKS = "<!-- kept: begin -->", "<!-- kept: end -->"
DAY = 86_400
STATS = ("min", "p05", "p50", "p95", "max")
RUN = 'cluster="a",node="gpu-001",rack="r01",job="batches",instance="gpu-001:9935",run="llama3-70b",attempt="1"'
RAW_DAYS, YEAR_DAYS = 30, 365
RUNS = 1_000


@dataclass(frozen=True)
class Cost:
    """Bytes on disk of so many samples."""

    samples: int
    bytes: int

    @property
    def each(self) -> float:
        """Bytes a sample."""
        return self.bytes / self.samples


def raw(begin: float) -> Iterator[str]:
    """Yield a day of batches as OpenMetrics: a second each, give or take a percent."""
    noise = np.random.default_rng(1)
    seconds = np.clip(noise.normal(1.0, 0.01, DAY), 0.5, 2.0)
    at = begin + np.cumsum(seconds)
    mfu = 0.41 / seconds
    columns = {
        "step": np.arange(DAY, dtype=float), "step_seconds": seconds, "mfu_ratio": mfu,
        "flops_per_second": mfu * 989.4e12, "loss": 2.0 + noise.normal(0, 0.05, DAY),
    }  # fmt: skip
    for name, values in columns.items():
        yield f"# TYPE pyrometer_train_batch_{name} gauge"
        for when, value in zip(at, values, strict=True):
            yield f"pyrometer_train_batch_{name}{{{RUN}}} {value!r} {when:.3f}".replace("np.float64(", "").replace(
                ")", ""
            )
    yield "# EOF"


def recorded(begin: float) -> Iterator[str]:
    """Yield a day of the records of each minute."""
    noise = np.random.default_rng(2)
    names = [("mfu_ratio", stat) for stat in STATS] + [("step_seconds", "p50")]
    kind = ""
    for name, stat in names:
        if kind != name:
            kind = name
            yield f"# TYPE run:pyrometer_train_batch_{name}:window1m gauge"
        for minute, value in enumerate(noise.normal(0.41, 0.004, DAY // 60).tolist()):
            labels = f'cluster="a",run="llama3-70b",stat="{stat}"'
            yield f"run:pyrometer_train_batch_{name}:window1m{{{labels}}} {value!r} {begin + 60 * minute:.3f}"
    yield "# EOF"


def in_prometheus(text: str, promtool: Path, folder: Path) -> Cost:
    """Return what the chunks of blocks cost; their index is a matter of series, not of samples."""
    (folder / "text").write_text(text)
    command = [str(promtool), "tsdb", "create-blocks-from", "openmetrics", str(folder / "text"), str(folder / "data")]
    subprocess.run(command, check=True, capture_output=True)
    chunks = (folder / "data").glob("*/chunks/*")
    return Cost(_samples(text), sum(path.stat().st_size for path in chunks))


def in_victoria(text: str, program: str, folder: Path) -> Cost:
    """Return what parts cost once they are merged as far as the program merges a day on its own."""

    def start(port: int) -> subprocess.Popen[bytes]:
        flags = [f"-httpListenAddr=127.0.0.1:{port}", f"-storageDataPath={folder}/data", "-retentionPeriod=30d"]
        with (folder / "log").open("ab") as output:
            return subprocess.Popen([program, *flags, "-dedup.minScrapeInterval=1ms"], stdout=output, stderr=output)

    # In that program's format times are milliseconds.
    lines = [line.split(" ") for line in text.splitlines() if not line.startswith("#")]
    body = "\n".join(f"{name} {value} {round(float(at) * 1000)}" for name, value, at in lines)
    process, port = serving(start)
    with process:
        address = f"http://127.0.0.1:{port}"
        _ask(f"{address}/api/v1/import/prometheus", body.encode())
        _ask(f"{address}/internal/force_flush")
        _ask(f"{address}/internal/force_merge")
        time.sleep(5.0)
        process.terminate()
        process.wait()
    parts = [path for path in (folder / "data/data").rglob("*") if path.is_file() and "indexdb" not in str(path)]
    return Cost(_samples(text), sum(path.stat().st_size for path in parts))


def _ask(url: str, body: bytes | None = None) -> None:
    assert call(url, body, seconds=120).status < 300


def _samples(text: str) -> int:
    return sum(not line.startswith("#") for line in text.splitlines())


def table(costs: dict[str, tuple[Cost, Cost]]) -> Iterator[str]:
    """Yield the lines of the table."""
    yield "| one run, a step a second | " + " | ".join(costs) + " |"
    yield "|---" * (len(costs) + 1) + "|"
    rows = (
        ("bytes a sample, raw", lambda raw, _: f"{raw.each:.1f}"),
        ("a day raw, 5 series", lambda raw, _: f"{raw.bytes / 1e6:.1f} MB"),
        (f"{RAW_DAYS} days raw", lambda raw, _: f"{raw.bytes * RAW_DAYS / 1e6:,.0f} MB"),
        ("bytes a sample, recorded", lambda _, kept: f"{kept.each:.1f}"),
        ("a year recorded, 6 series", lambda _, kept: f"{kept.bytes * YEAR_DAYS / 1e6:.1f} MB"),
        (f"{RUNS:,} such runs at a time: raw", lambda raw, _: f"{raw.bytes * RAW_DAYS * RUNS / 1e9:,.0f} GB"),
        ("the same, recorded, each year", lambda _, kept: f"{kept.bytes * YEAR_DAYS * RUNS / 1e9:,.1f} GB"),
        ("a year raw, for comparison", lambda raw, _: f"{raw.bytes * YEAR_DAYS * RUNS / 1e12:,.1f} TB"),
    )
    for name, words in rows:
        yield f"| {name} | " + " | ".join(words(*pair) for pair in costs.values()) + " |"


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the table there, between its two marks")
    flags = parser.parse_args()
    begin = float((int(time.time()) // DAY - 1) * DAY)
    texts = ["\n".join((*lines(begin), "")) for lines in (raw, recorded)]
    victoria = os.environ.get("VICTORIA_METRICS") or shutil.which("victoria-metrics")
    victoria = victoria or str(cache_folder() / "victoria-metrics/usr/bin/victoria-metrics")
    costs = {}
    with tempfile.TemporaryDirectory(prefix="pyrometer-kept-") as name:
        folders = [Path(name, part) for part in ("0", "1", "2", "3")]
        for folder in folders:
            folder.mkdir()
        promtool = find_stack().promtool
        first, second = (in_prometheus(text, promtool, at) for text, at in zip(texts, folders[:2], strict=True))
        costs["Prometheus (and Thanos, Mimir: the same blocks)"] = first, second
        if Path(victoria).exists():
            first, second = (in_victoria(text, victoria, at) for text, at in zip(texts, folders[2:], strict=True))
            costs["VictoriaMetrics"] = first, second
    lines = list(table(costs))
    print("\n".join(lines))
    if flags.write:
        replace_between_marks(flags.write, *MARKS, "\n" + "\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
