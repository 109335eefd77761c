"""Start jobs: ``python -m pyrometer_simulator.torch_jobs.launch FOLDER < jobs.json``.

PyTorch is loaded once, and each rank is a fork of this process with the variables that torchrun would set. Prints
``{"run": ..., "rank": ..., "pid": ...}`` for each. SIGTERM ends all ranks, and so does the end of standard input.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import sys
from pathlib import Path

from pyrometer_simulator.ports import free_port
from pyrometer_simulator.torch_jobs import loops
from pyrometer_simulator.torch_jobs.spec import RANKS_PER_NODE, JobSpec, from_json, node_name


def main() -> None:
    """Fork a process per rank; a rank returns here as its own process, whose end is the interpreter's."""
    folder, specs = Path(sys.argv[1]), from_json(sys.stdin.readline())
    os.environ["OMP_NUM_THREADS"] = "1"
    if any(spec.dumps for spec in specs):
        os.environ["TORCH_FR_BUFFER_SIZE"] = "2000"  # read when PyTorch is loaded
    with contextlib.redirect_stdout(sys.stderr):  # DeepSpeed logs to standard output, which is ours
        loops.preload({spec.kind for spec in specs})
    gc.collect()
    gc.freeze()  # else each rank's collections would copy all that it shares
    children: list[int] = []
    for spec in specs:
        port = free_port()
        for rank in range(spec.ranks):
            pid = os.fork()
            if pid == 0:
                _become(spec, rank, port, folder)
                return
            children.append(pid)
            print(json.dumps({"run": spec.run, "rank": rank, "pid": pid}), flush=True)
    print("{}", flush=True)
    _wait_for_the_end(children)


def _become(spec: JobSpec, rank: int, port: int, folder: Path) -> None:
    """Be a rank: its output goes to a file of its own."""
    log = os.open(folder / f"{spec.run}.{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.update(loops.environment(spec, rank, port))
    os.environ["PYROMETER_RINGS"] = str(folder / node_name(rank // RANKS_PER_NODE) / "rings")
    loops.play(spec, rank)


def _wait_for_the_end(children: list[int]) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        sys.stdin.read()
    finally:
        for pid in children:  # none of them has been waited for: the numbers are still theirs
            os.kill(pid, signal.SIGKILL)
        for pid in children:
            os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
