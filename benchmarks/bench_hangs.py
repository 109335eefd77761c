"""Measure how soon the rank is named that a hung job waits for: with `auto()` alone, and without any client.

    .venv-integrations/bin/python benchmarks/bench_hangs.py [--seeds 4]

Under `auto()`: jobs of the real PyTorch with DDP over Gloo, four processes on two nodes each. One rank is stopped
(SIGSTOP), is killed (SIGKILL; Gloo then ends the others, where NCCL would wait), or never leaves its data loader.
Without a client: NCCL is absent here, so simulated RAS servers report on jobs of four ranks that stop in the same ways;
and the same real jobs run without the client, with PyTorch's Flight Recorder, whose dumps `pyrometer-hang` explains.
Real exporters and a real Prometheus with the project's rules, in real time. Ends with status 1 where a rank was not
named by node, rank and GPU within 90 s of the fault, or another one was.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from harness import exit_on_signals, need_pytorch

from pyrometer.hang import read_dump
from pyrometer_simulator.demo.hardware import FIB_TRIE, node_address
from pyrometer_simulator.demo.processes import Processes
from pyrometer_simulator.torch_jobs.jobs import Jobs, launched, running
from pyrometer_simulator.torch_jobs.monitoring import Monitoring, Named
from pyrometer_simulator.torch_jobs.spec import RANKS_PER_NODE, JobSpec, node_name
from pyrometer_simulator.torch_jobs.without_client import UnreportedJob, monitored, until

FAULTS = ("stopped", "killed", "data")
NAMED_WITHIN_SECONDS = 90.0
GIVE_UP_SECONDS = 150.0
RANKS = 4
SPREAD_SECONDS = 30.0


@contextlib.contextmanager
def workplace() -> Iterator[Monitoring]:
    """Start the monitoring of two nodes in a folder of its own."""
    with contextlib.ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="pyrometer-bench-")))
        (folder / "logs").mkdir()
        processes = opened.enter_context(Processes(folder / "logs"))
        for index in range(2):
            net = folder / node_name(index) / "proc/net"
            net.mkdir(parents=True)
            (net / "fib_trie").write_text(FIB_TRIE.format(address=node_address(index + 1)))
        yield Monitoring.start(folder, processes, 2)


def at_random_moments(actions: Sequence[Callable[[], None]], seed: int) -> list[tuple[float, Callable[[], None]]]:
    """Return the actions with their times, within half a minute from now, in order."""
    chance = random.Random(seed)
    return sorted(((time.time() + chance.uniform(0, SPREAD_SECONDS), one) for one in actions), key=lambda one: one[0])


def under_auto(seeds: int) -> bool:
    specs, ranks = [], {}
    for seed in range(seeds):
        for fault in FAULTS:
            run = f"{fault}-{seed}"
            ranks[run] = random.Random(run).randrange(RANKS)
            stuck = ranks[run] if fault == "data" else -1
            specs.append(JobSpec(run, "ddp", seed, step_seconds=0.5, stuck_rank=stuck, stuck_at=30 + 3 * seed))
    with workplace() as monitoring, running(specs, monitoring) as jobs:
        jobs.wait_for_steps(20)
        faults: dict[str, float] = {}

        def strike(run: str, number: signal.Signals) -> Callable[[], None]:
            def send() -> None:
                jobs.signal(run, ranks[run], number)
                faults[run] = time.time()

            return send

        numbers = {"stopped": signal.SIGSTOP, "killed": signal.SIGKILL}
        strikes = [strike(run, numbers[run.split("-")[0]]) for run in ranks if run.split("-")[0] in numbers]
        for at, action in at_random_moments(strikes, seeds):
            jobs.watch(at - time.time())
            action()
        jobs.watch(GIVE_UP_SECONDS, lambda: {one.run for one in monitoring.first_seen} >= ranks.keys())
        faults.update(stood_since(jobs, {run: rank for run, rank in ranks.items() if run.startswith("data")}))
        gpus = {run: gpu_of(jobs, run, rank) for run, rank in ranks.items()}
    named = {
        run: [(one, at - faults[run]) for one, at in monitoring.first_seen.items() if one.run == run] for run in ranks
    }
    return told("auto(), DDP", named, ranks, gpus)


def stood_since(jobs: Jobs, ranks: dict[str, int]) -> dict[str, float]:
    """Return when ranks that are stuck in their data loader finished their last step."""
    query = 'pyrometer_train_last_step_timestamp_seconds{{run="{}",rank="{}"}}'
    return {run: jobs.monitoring.prometheus.value(query.format(run, rank)) or 0.0 for run, rank in ranks.items()}


def gpu_of(jobs: Jobs, run: str, rank: int) -> str:
    """Return the GPU of a rank as the exporter serves it, beside the alert's node and rank."""
    info = f'pyrometer_train_rank_info{{run="{run}",rank="{rank}",gpu="{rank % RANKS_PER_NODE}"}}'
    query = f"last_over_time({info}[10m])"
    return str(rank % RANKS_PER_NODE) if jobs.monitoring.prometheus.values(query) else ""


def told(
    way: str, named: dict[str, list[tuple[Named, float]]], ranks: dict[str, int], gpus: dict[str, str] | None = None
) -> bool:
    """Print a line per fault; return whether all were named in time and nobody else was."""
    good = True
    for fault in FAULTS:
        runs = [run for run in ranks if run.startswith(fault)]
        took, wrong, alerts = [], [], set()
        for run in runs:
            rank = ranks[run]
            expected = (node_name(rank // RANKS_PER_NODE), str(rank), str(rank % RANKS_PER_NODE))
            for one, seconds in named[run]:
                if (one.node, one.rank, one.gpu or (gpus or {}).get(run, "")) == expected:
                    took.append((run, seconds))
                    alerts.add(one.alertname)
                else:
                    wrong.append(one)
        first = [min(seconds for name, seconds in took if name == run) for run in runs if run in dict(took)]
        in_time = sum(seconds <= NAMED_WITHIN_SECONDS for seconds in first)
        median = f"{statistics.median(first):.0f} s" if first else "-"
        print(
            f"{way}, {fault:8}: named by node, rank and GPU within 90 s in {in_time} of {len(runs)} (median {median}, "
            f"last {max(first, default=0):.0f} s; {', '.join(sorted(alerts)) or 'no alert'}), wrongly {len(wrong)} "
            f"{wrong or ''}",
            flush=True,
        )
        good &= in_time == len(runs) and not wrong
    return good


def without_client(seeds: int) -> bool:
    kinds = [(f"{fault}-{seed}", fault) for seed in range(seeds) for fault in FAULTS]
    jobs = [UnreportedJob(run, fault, number) for number, (run, fault) in enumerate(kinds)]
    with monitored(jobs) as monitoring:
        for at, action in at_random_moments([one.strike for one in jobs], seeds):
            until(monitoring, lambda: False, at - time.time())
            action()
        until(monitoring, lambda: all(one.named(monitoring) for one in jobs), GIVE_UP_SECONDS)
    named = {one.run: list(one.named(monitoring).items()) for one in jobs}
    return told("no client, RAS", named, {one.run: one.rank for one in jobs})


def explained_by_dumps(seeds: int) -> bool:
    """Print how many hangs `pyrometer-hang` explains from the dumps of real jobs; return whether it was all."""
    right, cases = 0, [(fault, seed) for fault in ("stopped", "data") for seed in range(seeds)]
    with contextlib.ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        specs, ranks = [], {}
        for fault, seed in cases:
            run = f"{fault}-{seed}"
            ranks[run] = random.Random(run).randrange(RANKS)
            (folder / run).mkdir()
            stuck = ranks[run] if fault == "data" else -1
            specs.append(
                JobSpec(run, "ddp", seed, step_seconds=0.1, stuck_rank=stuck, stuck_at=20, client=False,
                        dumps=str(folder / run))
            )  # fmt: skip
        pids = opened.enter_context(launched(specs, folder))
        for run, rank in ranks.items():
            (folder / run / "dump").touch()
            _wait_for_collectives(folder / run)
            if run.startswith("stopped"):
                os.kill(pids[run, rank], signal.SIGSTOP)
                (folder / run / f"rank_{rank}").unlink()  # a rank that is stopped before the watchdog fires writes none
        time.sleep(20)
        for run, rank in ranks.items():
            command = [sys.executable, "-m", "pyrometer.hang", str(folder / run)]
            said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
            right += f"=> the others wait for rank {rank}" in said and said.count("=>") == 1
            print(f"  {run}, rank {rank}: {said.strip().splitlines()[-1:]}")
    print(f"no client, Flight Recorder: explained in {right} of {len(cases)}", flush=True)
    return right == len(cases)


def _wait_for_collectives(folder: Path, number: int = 12, seconds: float = 200.0) -> None:
    """Wait until all ranks have written dumps with so many collectives, or for so long."""
    end = time.time() + seconds
    while time.time() < end:
        dumps = [read_dump(str(path)) for path in folder.glob("rank_*")]
        latest = [max((one.sequence for one in dump.latest.values()), default=0) for dump in dumps]
        if len(latest) == RANKS and min(latest) >= number:
            return
        time.sleep(1)


def main() -> int:
    parser = argparse.ArgumentParser(description="A rank that a real PyTorch job waits for: named, and how soon?")
    parser.add_argument("--seeds", type=int, default=4, help="jobs of each fault (%(default)s)")
    seeds = parser.parse_args().seeds
    need_pytorch()
    exit_on_signals()
    good = explained_by_dumps(seeds)
    good &= without_client(seeds)
    good &= under_auto(seeds)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
