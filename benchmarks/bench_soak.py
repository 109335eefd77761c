"""Run the alerting service and the node exporter for minutes with faults, and look at what they grow by and lose.

Alerting: an alert each second; in the first quarter of the time a SIGKILL each 20 s; after it a full disk for ten
seconds in each two minutes (as root: a file system of its own); Slack fails at three deliveries in ten throughout. Node
exporter, beside an honest job: runs of another user that come and go, clients that connect and say nothing, requests
that are none. Memory is compared from the third quarter, when bounded caches are full, to the last one.
Run: .venv/bin/python benchmarks/bench_soak.py [minutes] [--only exporter]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench_chaos import load
from bench_train_attacks import Exporter, FedRing, served_of
from harness import exit_on_signals

from pyrometer_simulator.slack import FakeSlack
from pyrometer_simulator.slack_channel import RateLimits

RANKS, STRANGERS = 8, 40
GROWTH, SLACK_MIB = 1.05, 4.0  # memory that counts as flat: so much more, and what allocators take at a time
DISK_MIB = 24
SAMPLE_SECONDS, KILL_SECONDS, FULL_EVERY, FULL_FOR = 5.0, 20.0, 120.0, 10.0
HOSTILE = (
    b"GET /metrics HTTP/1.1\r\nHost: x\r\n", b"\x16\x03\x01\x02\x00\x01\x00", b"POST /metrics HTTP/1.1\r\n\r\n",
    b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n", b"GET /batches?consumer=%00%ff HTTP/1.1\r\nHost: x\r\n\r\n",
    b"POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /x HTTP/1.1\r\n\r\n",
)  # fmt: skip


class Memory:
    """Samples of a program's memory in MiB, by quarters of the time."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._began = seconds, time.monotonic()
        self._quarters: list[list[float]] = [[], [], [], []]

    def add(self, mib: float) -> None:
        quarter = int(4 * (time.monotonic() - self._began) / self._seconds)
        self._quarters[min(quarter, 3)].append(mib)

    def verdict(self) -> tuple[bool, str]:
        medians = [statistics.median(quarter) for quarter in self._quarters]
        most = max(map(max, self._quarters))
        quarters = ", ".join(f"{median:.1f}" for median in medians)
        return medians[3] <= GROWTH * medians[2] + SLACK_MIB, f"{quarters} MiB by quarters, {most:.1f} at most"


def resident(pid: int) -> float:
    """Return the memory of a process in MiB that is not shared with others."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith(("Private_",))) / 1024


@contextlib.contextmanager
def disk(folder: Path) -> Iterator[bool]:
    """Mount a small file system on the folder; False where that is not allowed."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "soak", str(folder)]
    mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=False)


def soak_alerting(minutes: float, result: dict[str, bool]) -> None:
    limits = RateLimits(post_per_second=10, post_burst=10, tier3_per_minute=1200, tier3_burst=50)
    load("fakes")
    chaos = load("chaos")
    with (
        tempfile.TemporaryDirectory(prefix="pyrometer-soak-") as name,
        FakeSlack(channel_names=["gpu-alerts"], token="xoxb-test", limits=limits) as slack,  # noqa: S106 - made up
    ):
        store = Path(name) / "store"
        store.mkdir()
        with disk(store) as limited:
            result["alerting"] = _play(chaos.Chaos(Path(name), slack, 1), 60 * minutes, store if limited else None)


def _play(run: Any, seconds: float, store: Path | None) -> bool:  # noqa: ANN401 - of a module loaded by its path
    memory, began, filler = Memory(seconds), time.monotonic(), store and store / "filler"
    kills = full = 0
    killed_at = sampled_at = began
    run.start(0)
    try:
        while (now := time.monotonic()) < began + seconds:
            run.maybe_fault()
            run.deliver()
            early = now < began + seconds / 4
            if early and now > killed_at + KILL_SECONDS:
                run.tell("end")
                run.start(0)
                kills, killed_at = kills + 1, now
            phase = (now - began) % FULL_EVERY
            if filler and not early and phase > FULL_EVERY - FULL_FOR and not filler.exists():
                _fill(filler)
                full += 1
            elif filler and filler.exists() and phase <= FULL_EVERY - FULL_FOR:
                filler.unlink()
            if now > sampled_at + SAMPLE_SECONDS:
                sampled_at = now
                run.depth()
                for pid in _children(run.child.pid):
                    memory.add(resident(pid))
            time.sleep(1.0)
        if filler:
            filler.unlink(missing_ok=True)
        run.tell("end")
        verdict = run.settle(seconds=300)
    finally:
        run.close()
    flat, text = memory.verdict()
    good = not (verdict.lost or verdict.wrong or verdict.duplicates)
    bad = f"{len(verdict.lost)} lost, {len(verdict.wrong)} wrong, {len(verdict.duplicates)} twice"
    done = f"{verdict.incidents} incidents, {kills} kills, {full} times a full disk, {verdict.doubtful} doubtful calls"
    print(f"alerting: {done}; {bad}; {text}: {'flat' if flat else 'GROWS'}", flush=True)
    return flat and good


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]


def _fill(path: Path) -> None:
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def soak_exporter(minutes: float, result: dict[str, bool]) -> None:
    seconds, dice = 60 * minutes, random.Random(2)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        exporter = Exporter(Path(name))
        honest = [FedRing(exporter.rings, "honest", rank) for rank in range(RANKS)]
        memory, began, slowest, runs, sampled_at, unserved = Memory(seconds), time.monotonic(), 0.0, 0, 0.0, 0
        evil: list[FedRing] = []
        idle: list[socket.socket] = []
        try:
            while (now := time.monotonic()) < began + seconds:
                for one in (*honest, *evil):
                    one.step()
                for _ in range(5):
                    evil.append(FedRing(exporter.rings, f"evil-{runs}", uid=1001))
                    runs += 1
                while len(evil) > STRANGERS:
                    evil.pop(dice.randrange(len(evil))).crash(remove=dice.random() < 0.9)
                idle.append(socket.create_connection(("127.0.0.1", exporter.port), timeout=5))
                idle[-1].sendall(dice.choice((b"", *HOSTILE)))
                while len(idle) > STRANGERS:
                    idle.pop(0).close()
                if now > sampled_at + SAMPLE_SECONDS:
                    sampled_at = now
                    took, page = exporter.scrape()
                    slowest = max(slowest, took)
                    unserved += now > began + 60 and served_of(page, "honest") < RANKS
                    memory.add(resident(exporter.process.pid))
                time.sleep(1.0)
        finally:
            exporter.process.terminate()
            exporter.process.wait(20)
    flat, text = memory.verdict()
    done = f"{runs} runs of a stranger came and went, {unserved} scrapes without an honest rank"
    print(f"exporter: {done}, slowest {slowest:.2f} s; {text}: {'flat' if flat else 'GROWS'}", flush=True)
    result["exporter"] = flat and not unserved


def main() -> int:
    flags = argparse.ArgumentParser(description="Both services for minutes, with faults.")
    flags.add_argument("minutes", nargs="?", type=float, default=20.0, help="(%(default)s)")
    flags.add_argument("--only", choices=("alerting", "exporter"), help="one of the two")
    options = flags.parse_args()
    minutes = options.minutes
    exit_on_signals()
    if os.geteuid() != 0:
        sys.exit("this needs root: the rings of several users are made")
    print(f"{minutes:.0f} minutes; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    result: dict[str, bool] = {}
    parts = {"alerting": soak_alerting, "exporter": soak_exporter}
    chosen = {name: part for name, part in parts.items() if options.only in (None, name)}
    threads = [threading.Thread(target=part, args=(minutes, result)) for part in chosen.values()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return 0 if result == dict.fromkeys(chosen, True) else 1


if __name__ == "__main__":
    sys.exit(main())
