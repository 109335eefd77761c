"""Measure whether and when a slow rank is named in jobs of the real PyTorch, and whether healthy jobs are left alone.

    .venv-integrations/bin/python benchmarks/bench_stragglers.py [--seeds 10] [--kinds ddp huggingface lightning]

Jobs of four processes on two nodes over Gloo report through `auto()` or the framework's callback, without a line for
waits. In each, one rank (by the seed, rank 0 included) computes 20 % longer. Real exporters read their rings, and a
real Prometheus evaluates the project's rules in real time. Then the same jobs without a slow rank, for 12 minutes, as
the longest window of the rule is 10. All seeds of a kind run at once: a step of a second is mere waiting, with a spread
of 3 %, so that dozens of processes share two cores; what the machine's load adds to a step is part of the noise. Ends
with status 1 where a slow rank was not named within 3 minutes of its job's first step, or anybody else was named.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import statistics
import sys
import tempfile
from pathlib import Path

from harness import exit_on_signals, need_pytorch

from pyrometer_simulator.demo.processes import Processes
from pyrometer_simulator.torch_jobs.jobs import Jobs, running
from pyrometer_simulator.torch_jobs.monitoring import Monitoring
from pyrometer_simulator.torch_jobs.spec import KINDS, RANKS_PER_NODE, JobSpec, node_name

NAMED_WITHIN_SECONDS = 180.0
SLOW_SECONDS = 300.0
HEALTHY_SECONDS = 720.0
# Memory: a process of Lightning or Hugging Face takes 100 to 200 MB beyond what forks share.
HEALTHY_JOBS_AT_ONCE = 15


def played(specs: list[JobSpec], seconds: float, *, until_all_named: bool) -> Jobs:
    """Run jobs under monitoring of their own; return them with what was seen."""
    with contextlib.ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="pyrometer-bench-")))
        (folder / "logs").mkdir()
        processes = opened.enter_context(Processes(folder / "logs"))
        monitoring = Monitoring.start(folder, processes, nodes=max(spec.nodes for spec in specs))
        jobs = opened.enter_context(running(specs, monitoring))
        jobs.wait_for_steps(1)
        runs = {spec.run for spec in specs}
        jobs.watch(seconds, lambda: until_all_named and {one.run for one in monitoring.first_seen} >= runs)
    return jobs


def slow(kind: str, seeds: int) -> bool:
    """Print what was said of jobs with a slow rank; return whether all were named in time and nobody else was."""
    specs = [
        JobSpec(f"{kind}-slow-{seed}", kind, seed, slow_rank=random.Random(seed).randrange(4)) for seed in range(seeds)
    ]
    jobs = played(specs, SLOW_SECONDS, until_all_named=True)
    took, wrong = [], []
    for spec in specs:
        expected = (node_name(spec.slow_rank // RANKS_PER_NODE), str(spec.slow_rank))
        for named, at in jobs.monitoring.first_seen.items():
            if named.run == spec.run and (named.node, named.rank) == expected and named.alertname == "TrainStraggler":
                took.append(at - jobs.began[spec.run])
            elif named.run == spec.run:
                wrong.append(named)
    in_time = sum(seconds <= NAMED_WITHIN_SECONDS for seconds in took)
    median = f"{statistics.median(took):.0f} s" if took else "-"
    print(
        f"{kind:12} one of 4 ranks 20 % slower: named within 3 minutes in {in_time} of {len(specs)} "
        f"(median {median}, last {max(took, default=0):.0f} s), wrongly {len(wrong)} {wrong or ''}",
        flush=True,
    )
    return in_time == len(specs) and not wrong


def healthy(kinds: list[str], seeds: int) -> bool:
    """Print what was said of jobs without a slow rank; return whether it was nothing."""
    specs = [JobSpec(f"{kind}-healthy-{seed}", kind, seed) for kind in kinds for seed in range(seeds)]
    seen = []
    for first in range(0, len(specs), HEALTHY_JOBS_AT_ONCE):
        jobs = played(specs[first : first + HEALTHY_JOBS_AT_ONCE], HEALTHY_SECONDS, until_all_named=False)
        seen += list(jobs.monitoring.first_seen)
    for kind in kinds:
        loud = [named for named in seen if named.run.startswith(f"{kind}-")]
        silent = seeds - len({named.run for named in loud})
        print(f"{kind:12} no slow rank, 12 minutes: silent in {silent} of {seeds} {loud or ''}", flush=True)
    return not seen


def main() -> int:
    parser = argparse.ArgumentParser(description="A slow rank of a real PyTorch job: is it named, and in time?")
    parser.add_argument("--seeds", type=int, default=10, help="jobs of each kind (%(default)s)")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=["ddp", "huggingface", "lightning"])
    parser.add_argument("--only", choices=("slow", "healthy"), help="half of it")
    flags = parser.parse_args()
    need_pytorch()
    exit_on_signals()
    good = True
    if flags.only != "healthy":
        for kind in flags.kinds:
            good &= slow(kind, flags.seeds)
    if flags.only != "slow":
        good &= healthy(flags.kinds, flags.seeds)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
