"""Measure what hostile or careless users of /dev/shm/pyrometer cost the node exporter, which may open 1,024 files.

Beside an honest job of 8 ranks that goes on throughout: 5,000 runs that come and go, 256 rings that are fed, 256 empty
rings with a modification time in the future, 100,000 files. Printed for each: the slowest scrape (by the
clock, and by the exporter's CPU time, which other programs do not stretch), resident memory, open
descriptors, series of the attack, what was left out, and whether every one of the honest ranks was served.
Run: .venv/bin/python benchmarks/bench_train_attacks.py   (about two minutes)
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import resource
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from harness import exit_on_signals

from pyrometer import ring
from pyrometer_kit.http_client import get

RANKS = 8
MEMORY_MIB, SCRAPE_SECONDS, DESCRIPTORS = 128, 1.0, 1024
# Listing 100,000 files may take 2 % of the time: with 1.2 s for it, a new ring is found a minute later.
LATE_SECONDS = 120.0
META = {
    "attempt": 0, "local_rank": 0, "world_size": 8, "first_step": 1, "warmup_steps": 0, "tokens_per_step": 1_000_000,
    "flops_per_token": 6e9, "peak_flops": None, "model": "m", "convention": "palm", "dtype": "bf16",
    "gpu_model": "H100", "recompute": "none", "job_id": "1", "gpu": "0", "uuid": "GPU-1", "stage": "0", "replica": "0",
    "global_batch_size": 512, "micro_batch_size": 1, "sequence_length": 4096,
}  # fmt: skip


class FedRing:
    """A valid ring, locked as by a live rank."""

    def __init__(self, folder: Path, run: str, rank: int = 0, uid: int = 0) -> None:
        data = json.dumps({**META, "run": run, "rank": rank, "reporting": rank == 0}).encode()
        self.path, self._count = folder / f"{run}-{rank}.ring", 0
        new = folder / f".{run}-{rank}.new"
        self._fd = os.open(new, os.O_RDWR | os.O_CREAT, 0o644)
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        os.ftruncate(self._fd, ring.FILE_BYTES)
        os.pwrite(self._fd, data, ring.META_OFFSET)
        os.pwrite(self._fd, struct.pack("<4q", ring.MAGIC, time.monotonic_ns(), 1, len(data)), 0)
        os.fchown(self._fd, uid, uid)
        new.rename(self.path)

    def step(self) -> None:
        """Record a step of half a second that ends now."""
        end = time.monotonic_ns()
        begin = end - 500_000_000
        at = ring.FIRST_RECORD_SLOT + (self._count % ring.CAPACITY) * ring.RECORD_SLOTS
        self._count += 1
        for place, value in ((ring.SEQUENCE, self._count), (ring.START, begin), (ring.END, end), (ring.FLAGS, 0)):
            self._slot(at + place, value)
        for slot, value in ((ring.STEP_STARTED_SLOT, end), (ring.STEP_TOTAL_SLOT, 500_000_000 * self._count),
                            (ring.COUNT_SLOT, self._count)):  # fmt: skip
            self._slot(slot, value)

    def crash(self, *, remove: bool) -> None:
        """End the rank."""
        os.close(self._fd)
        if remove:
            self.path.unlink()

    def _slot(self, number: int, value: int) -> None:
        os.pwrite(self._fd, struct.pack("<q", value), 8 * number)


class Exporter:
    """The node exporter with the rings of one folder, limited to 1,024 descriptors."""

    def __init__(self, folder: Path) -> None:
        self.rings = folder / "pyrometer"
        self.rings.mkdir()
        self.rings.chmod(0o1777)
        log = (folder / "log").open("wb")
        flags = [f"--path.rings={self.rings}", f"--path.state={folder}/state", f"--path.sysfs={folder}/none",
                 f"--path.kmsg={folder}/none", "--web.listen-address=127.0.0.1:0"]  # fmt: skip
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pyrometer_exporters.node.main", *flags], stderr=log,
        )  # fmt: skip
        resource.prlimit(self.process.pid, resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
        while not (found := re.search(r"listening on 127\.0\.0\.1:(\d+)", (folder / "log").read_text())):
            time.sleep(0.1)
        self.port = int(found[1])

    def scrape(self) -> tuple[float, str]:
        """Return the seconds of a scrape of both pages, and the metrics."""
        started = time.monotonic()
        self._get("/batches?consumer=prometheus")
        page = self._get("/metrics")
        return time.monotonic() - started, page

    def memory(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024

    def cpu(self) -> float:
        """Return the CPU seconds that it has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def descriptors(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def _get(self, path: str) -> str:
        return get(f"http://127.0.0.1:{self.port}{path}", seconds=60).decode()


def come_and_go(exporter: Exporter, during: Callable[[], None]) -> None:
    for turn in range(50):
        runs = [FedRing(exporter.rings, f"evil-{turn}-{n}", uid=1001) for n in range(100)]
        for one in runs:
            one.step()
        during()
        for one in runs:
            one.crash(remove=True)


def well_fed(exporter: Exporter, during: Callable[[], None]) -> None:
    runs = [FedRing(exporter.rings, f"evil-{n}", uid=1001) for n in range(256)]
    for _ in range(10):
        for one in runs:
            for _ in range(40):
                one.step()
        during()
    for one in runs:
        one.crash(remove=True)


def empty_of_the_future(exporter: Exporter, during: Callable[[], None]) -> None:
    paths = [exporter.rings / f"evil-{n}.ring" for n in range(256)]
    for path in paths:
        path.touch()
        os.chown(path, 1001, 1001)
        os.utime(path, (time.time() + 1e8,) * 2)
    for _ in range(5):
        during()
    for path in paths:
        path.unlink()


def many_files(exporter: Exporter, during: Callable[[], None]) -> None:
    paths = [exporter.rings / f"evil-{n}.ring" for n in range(100_000)]
    for path in paths:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))
        os.chown(path, 1001, 1001)
    for _ in range(10):
        during()
    for path in paths:
        path.unlink()


def served_of(page: str, run: str) -> int:
    """Return how many ranks of a run the page has."""
    return len(re.findall(rf'^pyrometer_train_steps_total\{{run="{run}"', page, re.MULTILINE))


def attack(how: Callable[[Exporter, Callable[[], None]], None]) -> bool:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        exporter = Exporter(Path(name))
        honest = [FedRing(exporter.rings, "honest", rank) for rank in range(RANKS)]
        seconds: list[float] = []
        cpu: list[float] = []
        worst = {"memory": 0.0, "descriptors": 0, "series": 0, "left": 0, "served": RANKS, "new": RANKS}

        def during() -> None:
            for one in honest:
                one.step()
            before = exporter.cpu()
            took, page = exporter.scrape()
            seconds.append(took)
            cpu.append(exporter.cpu() - before)
            left = re.findall(r"^pyrometer_train_\w*left_out\w*(?:\{.*\})? (\d+)", page, re.MULTILINE)
            worst["memory"] = max(worst["memory"], exporter.memory())
            worst["descriptors"] = max(worst["descriptors"], exporter.descriptors())
            worst["series"] = max(worst["series"], len(re.findall(r'^\w+\{run="evil', page, re.MULTILINE)))
            worst["left"] = max(worst["left"], *map(int, left), 0)
            worst["served"] = min(worst["served"], served_of(page, "honest"))

        try:
            while served_of(exporter.scrape()[1], "honest") < RANKS:
                for one in honest:
                    one.step()
            how(exporter, during)
            late = [FedRing(exporter.rings, "late", rank, uid=1002) for rank in range(RANKS)]
            for one in late:
                one.step()
            started = time.monotonic()
            while time.monotonic() < started + LATE_SECONDS:
                worst["new"] = served_of(exporter.scrape()[1], "late")
                if worst["new"] == RANKS:
                    break
                time.sleep(0.5)
            delay = time.monotonic() - started
            for one in (*honest, *late):
                one.crash(remove=True)
        finally:
            exporter.process.terminate()
            exporter.process.wait(20)
    within = max(cpu) <= SCRAPE_SECONDS and worst["memory"] <= MEMORY_MIB and worst["descriptors"] < DESCRIPTORS
    good = within and worst["served"] == worst["new"] == RANKS
    print(
        f"{how.__name__:20} slowest of {len(seconds)} scrapes {max(seconds):.2f} s, {max(cpu):.2f} s of CPU;"
        f" memory {worst['memory']:.0f} MiB, {worst['descriptors']} descriptors, {worst['series']} series,"
        f" {worst['left']} left out; of {RANKS} honest ranks served {worst['served']}, of {RANKS} that came later"
        f" {worst['new']} after {delay:.0f} s: {'held' if good else 'NOT HELD'}",
        flush=True,
    )
    return good


def main() -> int:
    exit_on_signals()
    if os.geteuid() != 0:
        sys.exit("this needs root: the rings of several users are made")
    held = [attack(how) for how in (come_and_go, well_fed, empty_of_the_future, many_files)]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
