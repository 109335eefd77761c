"""Measure whom the blame falls on in 200 hung jobs, and what an answer of NCCL RAS of some 20 MB costs.

Run: ``python benchmarks/bench_collectives.py``. Faults are random: a rank that is late, one that is dead, two at once,
one that is stuck before it joins a communicator, in jobs of 32, 1,024 and 4,096 ranks in eight kinds of groups. A
fault counts only if the rank came to it.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from pyrometer_exporters.node.nccl import json_answer
from pyrometer_kit.collectives import NOT_READY, Communicator, culprits
from pyrometer_simulator.nccl import report
from pyrometer_simulator.nccl.job import Job, layouts
from pyrometer_simulator.nccl.ras_server import RasJob

SIZES = (32,) * 120 + (1024,) * 60 + (4096,) * 20
CHUNK_BYTES = 64 * 1024
FAULTS = ("late", "dead", "two at once", "stuck before it joins")


def play(number: int, size: int, chance: random.Random) -> Counter[str]:
    """Play one fault; return which of the claims on it hold."""
    job, fault = Job(layouts(size)[number % 8]), FAULTS[number // 8 % 4]
    steps = 0 if fault == "stuck before it joins" else 2
    job.run(steps)
    before, two = job.counts(), fault == "two at once"
    faulty, dead = set(chance.sample(range(size), 2 if two else 1)), set()
    for rank in faulty:
        places = [at for at, op in enumerate(job.programs[rank]) if op.do in ("compute", "launch")]
        job.stop(rank, steps * len(job.programs[rank]) + (chance.choice(places) if steps else 0))
        if fault == "dead" or (two and chance.random() < 0.5):
            dead.add(rank)
    job.run(2)
    faulty = {rank for rank in faulty if rank in dead or job.has_stopped(rank)}
    found: Counter[str] = Counter(faults=1)
    evidence = {rank: job.waits(rank) for rank in range(size) if rank not in dead}
    seen = job.communicators(dead, before) if steps else [*joined(job.communicators(dead, before))]
    for name, waits in (("counts alone", None), ("with the ranks' parts", evidence)):
        suspects = culprits(seen, waits)
        named, certain = {one.rank for one in suspects}, {one.rank for one in suspects if one.certain}
        right = bool(named & faulty) and certain <= faulty
        found[f"{name}: a culprit named, nobody else as certain"] += right
        found[f"{name}: {fault}"] += right
        found[f"{name}: all culprits named"] += faulty <= named
        found[f"{name}: exactly the culprits"] += named == faulty
        found[f"{name}: somebody else as certain"] += not certain <= faulty
    return found


def joined(communicators: Iterable[Communicator]) -> Iterator[Communicator]:
    """Yield communicators as they are while ranks have not come: PyTorch sets each up with its first collective."""
    for one in communicators:
        come = {rank: count for rank, count in one.launched.items() if count}
        if come and len(come) < len(one.launched):
            missing = dict.fromkeys(one.launched.keys() - come.keys(), "missing")
            yield Communicator(one.name, dict.fromkeys(come, NOT_READY), missing)
        elif come:
            yield one


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
    of_fault = Counter(FAULTS[number // 8 % 4] for number in range(len(SIZES)))
    for name, count in total.items():
        print(f"{count:4d} of {of_fault[name.partition(': ')[2]] or total['faults']}  {name}", file=sys.stdout)


if __name__ == "__main__":
    main()
