"""Ways to die of real jobs under torchrun, over Gloo: who is named, by which cause, what the channel reads, and when.

Four ranks on two nodes each, under real exporters, Prometheus with our rules, Alertmanager and the alerting service.
Simulated: the GPUs (NVML), the kernel's log, Slurm's commands, and Slack. ``pytest -s`` prints the table of
docs/training.md. ``DEATHS="timeout-30 node"`` plays those alone; without it all but ``timeout-30`` are played.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.waiting import until

from pyrometer import ring
from pyrometer_exporters.node.train.rings import RingFile
from pyrometer_kit.http_client import get_json
from pyrometer_simulator.demo.processes import Processes
from pyrometer_simulator.kmsg import KernelLog
from pyrometer_simulator.nvml import SimulatedGpus
from pyrometer_simulator.ports import free_port
from pyrometer_simulator.slack import FakeSlack
from pyrometer_simulator.slurm import FakeSlurm, SlurmJob
from pyrometer_simulator.torch_jobs.monitoring import CHANNEL, Monitoring
from pyrometer_simulator.torch_jobs.spec import RANKS_PER_NODE, node_name

pytest.importorskip("torch")
pytestmark = [pytest.mark.integrations, pytest.mark.timeout(3600)]

RANKS, VICTIM, STEPS = 4, 3, 12
SCRIPT = Path(__file__).parent / "deaths_script.py"


@dataclass(frozen=True)
class Death:
    """A way to die.

    Attributes:
        what: Its name in the table.
        act: Brings it about.
        said: What the message says of rank and cause, a regular expression; empty where nothing is to be said.
        limit: Seconds for which a collective waits.
        hangs: Whether the ranks wait for one, so long, before they end.
        slow: Whether a rank slows the run down first, until that is reported.
        first_node: Index of the job's first node.
        workers: Processes of the data loader of each rank.
        env: Further variables of the ranks.
    """

    what: str
    act: Callable[[Job], None]
    said: str
    limit: float = 1800.0
    hangs: bool = False
    slow: bool = False
    first_node: int = 0
    workers: int = 0
    env: Mapping[str, str] | None = None

    @property
    def alerts(self) -> tuple[str, ...]:
        """The run's alerts in the order in which they begin."""
        before = "TrainStalled" if self.hangs else "TrainStraggler" if self.slow else ""
        return tuple(filter(None, (before, "TrainRunDied" if self.said else "")))


class Job:
    """A job of four ranks under one torchrun on each of its two nodes."""

    def __init__(self, place: Place, run: str, number: int, death: Death) -> None:
        self.place, self.run, self.number, self.death = place, run, number, death
        self.orders = place.folder / run
        self.orders.mkdir()
        (self.orders / "train.py").write_bytes(SCRIPT.read_bytes())
        self.struck_at = 0.0
        port = free_port()
        self.agents = [self._start(index, port) for index in range(RANKS // RANKS_PER_NODE)]

    def _start(self, index: int, port: int) -> subprocess.Popen[bytes]:
        command = [
            sys.executable, "-m", "torch.distributed.run", f"--nnodes={RANKS // RANKS_PER_NODE}",
            f"--node-rank={index}", f"--nproc-per-node={RANKS_PER_NODE}", "--master-addr=127.0.0.1",
            f"--master-port={port}", str(self.orders / "train.py"),
        ]  # fmt: skip
        env = {
            "RUN": self.run, "ORDERS": str(self.orders), "VICTIM": str(VICTIM), "LIMIT": str(self.death.limit),
            "WORKERS": str(self.death.workers), "SLURM_JOB_ID": str(self.number), "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo", "PYROMETER_RINGS": str(self.place.folder / self.node(index) / "rings"),
            **(self.death.env or {}),
        }  # fmt: skip
        with (self.orders / f"log.{index}").open("wb") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | env, start_new_session=True)

    def node(self, index: int) -> str:
        return node_name(self.death.first_node + index)

    @property
    def victims_node(self) -> Path:
        return self.place.folder / self.node(VICTIM // RANKS_PER_NODE)

    def rings(self) -> dict[int, tuple[int, int]]:
        """Return by rank its process and how many steps it has made."""
        ranks = {}
        for index in range(len(self.agents)):
            for path in (self.place.folder / self.node(index) / "rings").glob(f"*{ring.SUFFIX}"):
                with contextlib.suppress(FileNotFoundError):  # of an earlier job, which the exporter removes
                    file = RingFile(str(path))
                    if file.meta.run == self.run:
                        ranks[int(file.meta.rank)] = file.pid, file.header().count
                    file.close()
        return ranks

    def wait_for_steps(self) -> None:
        def ready() -> bool:
            ranks = self.rings()
            return len(ranks) == RANKS and all(steps >= STEPS for _, steps in ranks.values())

        until(ready, 180)

    def order(self, what: str) -> None:
        (self.orders / what).touch()

    def kill(self, number: signal.Signals, rank: int = VICTIM) -> None:
        os.kill(self.rings()[rank][0], number)

    def signal_all(self, number: signal.Signals) -> None:
        """Send a signal to every process of the job, launchers included, as Slurm does."""
        for agent in self.agents:
            for pid in (agent.pid, *children(agent.pid)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)

    def alerts(self) -> dict[tuple[str, str, str, str], tuple[float, str]]:
        """Return the run's alerts by name, severity, node and rank: when each was first seen, and its summary."""
        return self.place.seen.get(self.run, {})

    def posts(self) -> list[tuple[float, str]]:
        """Return the posts on the run, in order, by their first lines; edits are none."""
        posts = []
        for message in self.place.slack.channel(CHANNEL).messages.values():
            if re.search(rf"\b{self.run}(?![\w-])", message.text):
                replies = [(reply.posted_at, f"reply: {reply.text}") for reply in message.replies]
                posts += [(message.posted_at, message.text), *replies]
        return [(at, text.splitlines()[0]) for at, text in posts]

    def slurm_says(self, state: str) -> None:
        """Let Slurm's commands list the job, which has ended or was told to."""
        self.place.slurm.jobs.append(SlurmJob(self.number, self.run, (state,), ends=int(time.time())))
        self.place.slurm.publish()

    @property
    def ended_at(self) -> float:
        """When the first process ended, as far as its cause alone says."""
        return self.struck_at + (self.death.limit if self.death.hangs else 0)

    def end(self) -> None:
        self.signal_all(signal.SIGKILL)
        for agent in self.agents:
            agent.wait()


@dataclass
class Place:
    """The nodes, what watches them, and the alerts that were seen."""

    folder: Path
    processes: Processes
    slack: FakeSlack

    def __post_init__(self) -> None:
        self.logs: dict[str, KernelLog] = {}
        self.gpus: dict[str, SimulatedGpus] = {}
        self.seen: dict[str, dict[tuple[str, str, str, str], tuple[float, str]]] = {}
        flags = {}
        for index in range(4):
            node = self.folder / node_name(index)
            (node / "sys").mkdir(parents=True)
            self.logs[node.name] = KernelLog(node / "kmsg")
            flags[node.name] = ["--collector.kernel", f"--path.kmsg={node / 'kmsg'}", "--no-collector.checks"]
            if index == 1:
                self.gpus[node.name] = SimulatedGpus(node / "gpus", count=RANKS_PER_NODE, noise=0.01)
                self.gpus[node.name].write_pci_tree(node / "sys")
                flags[node.name].append("--collector.gpu")
            if index >= 2:  # no locks, no pidfd: nobody knows how a process ended, as before Linux 6.15
                (node / "proc").mkdir()
                flags[node.name].append(f"--path.procfs={node / 'proc'}")
        (self.folder / "slurm").mkdir()
        self.slurm = FakeSlurm(self.folder / "slurm")
        self.slurm.publish()
        port = free_port()
        command = [
            sys.executable, "-m", "pyrometer_exporters.cluster.main", f"--web.listen-address=127.0.0.1:{port}",
            f"--path.state={self.folder / 'cluster'}", f"--collector.slurm.squeue={self.slurm.squeue}",
            f"--collector.slurm.sinfo={self.slurm.sinfo}",
        ]  # fmt: skip
        self.processes.start("cluster", command)
        self.monitoring = Monitoring.start(
            self.folder, self.processes, 4, flags, slack=self.slack, cluster_exporter=port
        )

    def look(self) -> None:
        """Note the alerts that fire now, with the time of their first sight and their summaries."""
        with contextlib.suppress(OSError, ValueError):
            for alert in get_json(f"{self.monitoring.prometheus.url}/api/v1/alerts")["data"]["alerts"]:
                labels, text = alert["labels"], alert["annotations"]
                if alert["state"] == "firing" and "run" in labels:
                    key = labels["alertname"], labels["severity"], labels.get("node", ""), labels.get("rank", "")
                    said = f"{text.get('summary')} {text.get('description')}"
                    self.seen.setdefault(labels["run"], {}).setdefault(key, (time.time(), said))


def children(pid: int) -> list[int]:
    """Return the processes below this one, each before its own children."""
    found = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += [int(child), *children(int(child))]
    return found


def out_of_memory(job: Job) -> None:
    pid = job.rings()[VICTIM][0]
    job.place.logs[job.victims_node.name].write(
        f"Out of memory: Killed process {pid} (python) total-vm:91274kB, anon-rss:81234kB, file-rss:0kB, shmem-rss:0kB,"
        " UID:1000 pgtables:220kB oom_score_adj:0"
    )
    os.kill(pid, signal.SIGKILL)


def off_the_bus(job: Job) -> None:
    gpu = job.place.gpus[job.victims_node.name][VICTIM % RANKS_PER_NODE]
    job.place.logs[job.victims_node.name].xid(gpu.pci_bus_id, 79, "GPU has fallen off the bus.")
    gpu.lose()
    job.order("lose_gpu")


def node_gone(job: Job) -> None:
    agent = job.agents[1]
    for pid in (agent.pid, *children(agent.pid)):
        os.kill(pid, signal.SIGSTOP)  # not killed: a machine without power sends its peers nothing
    job.place.processes.end(job.victims_node.name)


def cancelled(job: Job) -> None:
    job.signal_all(signal.SIGTERM)


def cancelled_by_slurm(job: Job) -> None:
    job.slurm_says("CANCELLED")
    cancelled(job)


def time_limit(job: Job) -> None:
    """Cancel the job, and kill after KillWait the processes that ignore SIGTERM, as Slurm does."""
    job.slurm_says("TIMEOUT")
    cancelled(job)
    threading.Timer(30, job.signal_all, (signal.SIGKILL,)).start()


def kill_worker(job: Job) -> None:
    os.kill(children(job.rings()[VICTIM][0])[0], signal.SIGKILL)


FIRST, OTHERS = "rank 3 on gpu-002", ", after the others had waited for it"
DEATHS = {
    "timeout-30": Death(
        "a rank is stuck; Gloo's time-out, 30 minutes", lambda job: job.order("stick"), f"{FIRST}.*{OTHERS}", hangs=True
    ),
    "timeout-10": Death(
        "a rank is stuck; a time-out of 10 minutes, after which the ranks abort as NCCL's watchdog does",
        lambda job: job.order("stick"), f"{FIRST}.*{OTHERS}", limit=600, hangs=True, env={"ABORT": "1"},
    ),
    "signal": Death("SIGSEGV", lambda job: job.kill(signal.SIGSEGV), f"{FIRST}.*by SIGSEGV"),
    "exception": Death("an exception", lambda job: job.order("raise"), f"{FIRST}.*by ValueError"),
    "slow": Death(
        "an exception, in a run that is slow", lambda job: job.order("raise"), f"{FIRST}.*by ValueError", slow=True
    ),
    "early": Death("one rank returns too early, status 0", lambda job: job.order("return"), f"{FIRST}.*by a good end"),
    "worker": Death(
        "a worker of a data loader is killed", kill_worker,
        FIRST + r".*by death of DataLoader worker \(pid \d+\) by SIGKILL", workers=1,
    ),
    "cancelled": Death("`scancel`", cancelled, ""),
    "limit": Death("the time limit, with KillWait", time_limit, ""),
    "cancelled-slurm": Death("`scancel`, Linux before 6.15, Slurm is asked", cancelled_by_slurm, "", first_node=2),
    "cancelled-untold": Death(
        "`scancel`, Linux before 6.15, Slurm is not asked", cancelled, "ten seconds, and nothing reports a cause",
        first_node=2,
    ),
    "memory": Death("the kernel's memory killer", out_of_memory, f"{FIRST}.*by SIGKILL.*killed .* for lack of memory"),
    "gpu": Death("a GPU falls off the bus", off_the_bus, f"{FIRST}.*GPU 1 reported Xid 79"),
    "node": Death(
        "a node without power; a time-out of 3 minutes", node_gone, "rank [23] on gpu-004.*with its node",
        first_node=2, limit=180, hangs=True,
    ),
}  # fmt: skip
CHOSEN = os.environ.get("DEATHS", "").split() or [run for run in DEATHS if run != "timeout-30"]
WATCHED_SECONDS = 150.0


@pytest.fixture(scope="module")
def played() -> Iterator[dict[str, Job]]:
    with contextlib.ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        (folder / "logs").mkdir()
        processes = opened.enter_context(Processes(folder / "logs"))
        place = Place(folder, processes, opened.enter_context(FakeSlack(channel_names=[CHANNEL])))
        over = threading.Event()

        def watch() -> None:
            while not over.wait(0.5):
                place.look()

        watcher = threading.Thread(target=watch)
        watcher.start()
        opened.callback(watcher.join)
        opened.callback(over.set)
        jobs: dict[str, Job] = {}
        for number, run in enumerate(CHOSEN, 4711):
            jobs[run] = job = Job(place, f"death-{run}", number, DEATHS[run])
            opened.callback(job.end)
            job.wait_for_steps()
            time.sleep(20)  # two scrapes and an evaluation
            if job.death.slow:
                job.order("slow")
                until(lambda job=job: bool(job.alerts()), 400)  # type: ignore[misc]
            job.struck_at = time.time()
            job.death.act(job)
        time.sleep(max(0.0, max(job.ended_at for job in jobs.values()) + WATCHED_SECONDS - time.time()))
        sys.stdout.write("\n" + "".join(map(row, jobs.values())))
        yield jobs


def row(job: Job) -> str:
    """Return a row of the table: what was done, each alert with its summary and after how many seconds, each post."""
    alerts = [
        f"{name} {severity} {at - (job.ended_at if name == 'TrainRunDied' else job.struck_at):.0f} s: {said}"
        for (name, severity, _node, _rank), (at, said) in job.alerts().items()
    ]
    posts = [f"{at - job.struck_at:.0f} s: {text}" for at, text in job.posts()]
    return f"| {job.death.what} | {' / '.join(alerts) or 'nothing'} | {' / '.join(posts)} |\n"


@pytest.mark.parametrize("run", CHOSEN)
def test_the_first_rank_is_named_with_its_cause_by_one_alert_within_90_seconds(
    played: dict[str, Job], run: str
) -> None:
    job = played[run]
    alerts = job.alerts()
    assert tuple(name for name, *_ in alerts) == job.death.alerts, alerts
    for (name, *_), (at, said) in alerts.items():
        assert name != "TrainRunDied" or re.search(job.death.said, said), said
        # A launcher ends the others within half a minute, and a minute later no other has taken their place.
        assert at - (job.ended_at if name == "TrainRunDied" else job.struck_at) <= (120 if job.death.hangs else 90)


@pytest.mark.parametrize("run", CHOSEN)
def test_the_channel_reads_of_a_run_in_one_message_and_of_the_death_of_one_that_was_told_in_its_thread(
    played: dict[str, Job], run: str
) -> None:
    job = played[run]
    roots = [text for _at, text in job.posts() if not text.startswith("reply")]
    replies = [text for _at, text in job.posts() if text.startswith("reply") and "died" in text]
    joins = job.death.hangs or job.death.slow
    assert (len(roots), len(replies)) == (bool(job.death.said), joins), job.posts()
