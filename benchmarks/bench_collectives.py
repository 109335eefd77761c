"""Measure whom the blame falls on in 200 hung jobs, and what an answer of NCCL RAS of some 20 MB costs.

Run: ``python benchmarks/bench_collectives.py``. Faults are random: a rank that is late, one that is dead, two at once,
in jobs of 32, 1,024 and 4,096 ranks in eight kinds of groups. A fault counts only if the rank came to it.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from pyrometer_exporters.node.nccl import json_answer
from pyrometer_kit.collectives import culprits
from pyrometer_simulator.nccl import report
from pyrometer_simulator.nccl.job import Job, layouts
from pyrometer_simulator.nccl.ras_server import RasJob

SIZES = (32,) * 120 + (1024,) * 60 + (4096,) * 20
CHUNK_BYTES = 64 * 1024


def play(number: int, size: int, chance: random.Random) -> Counter[str]:
    """Play one fault; return which of the claims on it hold."""
    job = Job(layouts(size)[number % 8])
    job.run(2)
    before, two = job.counts(), number % 3 == 2
    faulty, dead = set(chance.sample(range(size), 2 if two else 1)), set()
    for rank in faulty:
        places = [at for at, op in enumerate(job.programs[rank]) if op.do in ("compute", "launch")]
        job.stop(rank, 2 * len(job.programs[rank]) + chance.choice(places))
        if number % 3 == 1 or (two and chance.random() < 0.5):
            dead.add(rank)
    job.run(2)
    faulty = {rank for rank in faulty if rank in dead or job.has_stopped(rank)}
    found: Counter[str] = Counter(faults=1)
    evidence = {rank: job.waits(rank) for rank in range(size) if rank not in dead}
    for name, waits in (("counts alone", None), ("with the ranks' parts", evidence)):
        suspects = culprits(job.communicators(dead, before), waits)
        named, certain = {one.rank for one in suspects}, {one.rank for one in suspects if one.certain}
        found[f"{name}: a culprit named, nobody else as certain"] += bool(named & faulty) and certain <= faulty
        found[f"{name}: all culprits named"] += faulty <= named
        found[f"{name}: exactly the culprits"] += named == faulty
        found[f"{name}: somebody else as certain"] += not certain <= faulty
    return found


def cost() -> None:
    """Print what reading one large answer takes, in a process that does nothing else."""
    job = Job(layouts(4096)[6])
    job.run(1)
    text = "".join(report.as_json(RasJob(job).answer(0))).encode()
    text = text.replace(
        b'\n  ],\n  "ras"', b",\n" + text[text.index(b"    {\n") : text.index(b'\n  ],\n  "ras"')] + b'\n  ],\n  "ras"'
    )
    with tempfile.NamedTemporaryFile() as file:
        file.write(text)
        file.flush()
        subprocess.run([sys.executable, __file__, "--read", file.name], check=True)


def read(path: Path) -> None:
    """Read an answer from a file as it comes from a socket, and print what that took."""
    before, began = peak_kilobytes(), time.process_time()
    with path.open("rb") as file:
        found = json_answer.read(iter(lambda: file.read(CHUNK_BYTES), b""))
    seconds = time.process_time() - began
    grown = (peak_kilobytes() - before) / 1024
    ranks, size = sum(len(one.ranks) for one in found.communicators), path.stat().st_size / 1e6
    print(f"answer of {size:.1f} MB, {ranks} ranks: {seconds:.2f} s of CPU, {grown:.1f} MB more", file=sys.stdout)


def peak_kilobytes() -> int:
    """Return the most memory that this program has had; getrusage's would be that of the one that started it."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0])


def main() -> None:
    """Print both tables."""
    if sys.argv[1:2] == ["--read"]:
        read(Path(sys.argv[2]))
        return
    cost()
    chance = random.Random(20)
    total: Counter[str] = Counter()
    for number, size in enumerate(SIZES):
        total += play(number, size, chance)
    for name, count in total.items():
        print(f"{count:4d} of {total['faults']}  {name}", file=sys.stdout)


if __name__ == "__main__":
    main()
