"""Jobs of four ranks on two nodes that nobody instrumented: simulated RAS servers report on them, in real time."""

from __future__ import annotations

import contextlib
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pyrometer_simulator.demo.hardware import FIB_TRIE, node_address
from pyrometer_simulator.demo.processes import DemoError, Processes
from pyrometer_simulator.nccl.job import Job, Layout
from pyrometer_simulator.nccl.ras_server import RasJob, RasServer
from pyrometer_simulator.torch_jobs.monitoring import Monitoring, Named
from pyrometer_simulator.torch_jobs.spec import RANKS_PER_NODE, node_name

RANKS, NODES = 4, 2
STEP_SECONDS = 0.5
KNOWN_SECONDS = 120.0


class UnreportedJob:
    """A job as RAS reports on it; it makes a step every half second until a rank stops.

    ``fault`` is ``stopped`` or ``killed``, where the process no longer answers NCCL, or ``data``, where it does.
    """

    def __init__(self, run: str, fault: str, number: int) -> None:
        self.run = run
        self.fault = fault
        self.rank = random.Random(run).randrange(1, RANKS)
        self.job = Job(Layout("bench", data=RANKS))
        self.first_pid = 4000 + 100 * number
        self.ras = RasJob(
            self.job, lambda index: node_address(index + 1), per_node=RANKS_PER_NODE, first_pid=self.first_pid
        )
        self.struck_at = 0.0
        self.job.run()

    @property
    def job_id(self) -> str:
        """Return the name that the exporters give to a job without a scheduler."""
        return f"{node_address(1)}:{self.first_pid}"

    @property
    def culprit(self) -> tuple[str, str, str]:
        """Return the node, rank and GPU that the others wait for."""
        return node_name(self.rank // RANKS_PER_NODE), str(self.rank), str(self.rank % RANKS_PER_NODE)

    def strike(self) -> None:
        """Let the rank stop in its next forward pass."""
        program = self.job.programs[self.rank]
        place = next(at for at, operation in enumerate(program) if operation.do == "compute")
        self.job.stop(self.rank, (self.job.steps(self.rank) + 1) * len(program) + place)
        if self.fault != "data":
            self.ras.stop(self.rank)
        self.struck_at = time.time()

    def named(self, monitoring: Monitoring) -> dict[Named, float]:
        """Return the alerts on this job, each with the seconds since the fault."""
        return {one: at - self.struck_at for one, at in monitoring.first_seen.items() if one.job_id == self.job_id}


@contextlib.contextmanager
def monitored(jobs: Sequence[UnreportedJob], known_within: float = KNOWN_SECONDS) -> Iterator[Monitoring]:
    """Run jobs under real exporters and Prometheus for the length of the block, once these know all of them.

    Raises DemoError if Prometheus does not know all of them within so many seconds.
    """
    with contextlib.ExitStack() as opened:
        servers = [opened.enter_context(RasServer(one.ras)) for one in jobs]
        addresses = [f"--collector.nccl.address={host}:{port}" for host, port in (one.address for one in servers)]
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="pyrometer-ras-")))
        (folder / "logs").mkdir()
        flags = {node_name(index): [*addresses, f"--path.procfs={_procfs(folder, index)}"] for index in range(NODES)}
        monitoring = Monitoring.start(folder, opened.enter_context(Processes(folder / "logs")), NODES, flags)
        end = threading.Event()
        opened.callback(end.set)
        threading.Thread(target=_train, args=(jobs, end), daemon=True).start()
        if not until(monitoring, lambda: _known(monitoring) >= len(jobs), known_within):
            found = f"{_known(monitoring):.0f} of {len(jobs)} jobs after {known_within:.0f} s"
            msg = f"Prometheus knows {found} (pyrometer_nccl_job_info): are the exporters' targets up?"
            raise DemoError(msg)
        yield monitoring


def until(monitoring: Monitoring, done: Callable[[], bool], seconds: float) -> bool:
    """Look at the alerts every second until ``done``, or for so long; return whether it was done."""
    deadline = time.time() + seconds
    while not done():
        if time.time() >= deadline:
            return False
        monitoring.look()
        time.sleep(1)
    return True


def _known(monitoring: Monitoring) -> float:
    return monitoring.prometheus.value("count(pyrometer_nccl_job_info)") or 0


def _procfs(folder: Path, index: int) -> Path:
    proc = folder / node_name(index) / "proc"
    (proc / "net").mkdir(parents=True)
    (proc / "net/fib_trie").write_text(FIB_TRIE.format(address=node_address(index + 1)))
    return proc


def _train(jobs: Sequence[UnreportedJob], end: threading.Event) -> None:
    while not end.wait(STEP_SECONDS):
        for one in jobs:
            one.job.run()
