"""Measure how long `pyrometer-hang` takes for the dumps of a large job: to its first word, CPU and memory.

    .venv/bin/python benchmarks/bench_hang_dumps.py [--ranks 1024] [--entries 2000] [--frames 25]

The dumps have the fields of PyTorch's Flight Recorder, 2,000 collectives of four groups with 25 frames each, pickled as
PyTorch does (protocol 2, equal frames once). One rank has not come to the last ones. All others' files are links to
one, so that the disk does not count. Ends with status 1 where another rank is named, the first word takes more than
10 s, all of it more than 60 s of CPU, or 1 GiB.
"""

from __future__ import annotations

import argparse
import os
import pickle
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

FIRST_WORD_SECONDS = 10.0
CPU_SECONDS = 60.0
MEMORY_BYTES = 1 << 30
GROUPS = ("default_pg", "tp", "dp", "pp")
UNFINISHED = 16
BEGAN_NS = 1_758_610_505_880_883_597


def dump(ranks: int, entries: int, frames: int, *, late: bool) -> bytes:
    """Return the dump of a rank; a late one has launched none of the last collectives."""
    pool = [
        {
            "name": f"function_{number}",
            "filename": f"/opt/venv/lib/package/module_{number % 37}.py",
            "line": 100 + number,
        }
        for number in range(300)
    ]
    made: list[dict[str, Any]] = []
    for record in range(entries - (UNFINISHED if late else 0)):
        group, number = record % len(GROUPS), 10_000 + record // len(GROUPS)
        finished = record < entries - UNFINISHED
        at = BEGAN_NS + record * 1_000_000
        made.append({
            "frames": [pool[(group * 25 + depth + record % 7) % 300] for depth in range(frames)],
            "record_id": 90_000 + record, "pg_id": group, "process_group": (str(group), GROUPS[group]),
            "thread_name": "python", "thread_id": "139628744169152", "collective_seq_id": number, "p2p_seq_id": 0,
            "op_id": number, "profiling_name": "nccl:all_reduce", "time_created_ns": at,
            "input_sizes": [[4096, 1, 5120]], "input_dtypes": ["BFloat16"], "output_sizes": [[4096, 1, 5120]],
            "output_dtypes": ["BFloat16"], "state": "completed" if finished else "scheduled",
            "time_discovered_started_ns": None, "time_discovered_completed_ns": at if finished else None,
            "retired": finished, "timeout_ms": 600_000, "is_p2p": False,
        })  # fmt: skip
    members = str(list(range(ranks)))
    config = {str(number): {"name": str(number), "desc": text, "ranks": members} for number, text in enumerate(GROUPS)}
    return pickle.dumps({"version": "2.10", "pg_config": config, "pg_status": {}, "entries": made}, protocol=2)


def main() -> int:
    parser = argparse.ArgumentParser(description="How long does pyrometer-hang take for the dumps of a large job?")
    for flag, default in (("ranks", 1024), ("entries", 2000), ("frames", 25)):
        parser.add_argument(f"--{flag}", type=int, default=default, help="(%(default)s)")
    args = parser.parse_args()
    late = args.ranks * 3 // 4
    with tempfile.TemporaryDirectory(prefix="pyrometer-bench-") as name:
        folder = Path(name)
        usual = folder / "nccl_trace_rank_0"
        usual.write_bytes(dump(args.ranks, args.entries, args.frames, late=False))
        for rank in range(1, args.ranks):
            path = folder / f"nccl_trace_rank_{rank}"
            if rank == late:
                path.write_bytes(dump(args.ranks, args.entries, args.frames, late=True))
            else:
                os.link(usual, path)
        print(f"{args.ranks:,} dumps of {args.entries:,} collectives, {usual.stat().st_size / 1e6:.1f} MB each")
        began = time.monotonic()
        command = [sys.executable, "-m", "pyrometer.hang", str(folder)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            assert process.stdout is not None
            first = process.stdout.readline()
            first_word = time.monotonic() - began
            rest = process.stdout.read()
            _, _, used = os.wait4(process.pid, 0)
            process.returncode = 0
        cpu, memory = used.ru_utime + used.ru_stime, used.ru_maxrss * 1024
    print(f"  {first.strip()}\n  {rest.strip().splitlines()[-1][:100] if rest.strip() else ''}")
    print(
        f"first word {first_word:.1f} s, all {time.monotonic() - began:.1f} s, CPU {cpu:.1f} s, {memory / 1e6:.0f} MB"
    )
    right = f"wait for rank {late};" in first + rest
    within = first_word <= FIRST_WORD_SECONDS and cpu <= CPU_SECONDS and memory <= MEMORY_BYTES
    return 0 if right and within else 1


if __name__ == "__main__":
    sys.exit(main())
