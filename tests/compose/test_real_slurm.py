"""The Slurm scripts and the policy on a real Slurm: a controller and two daemons on this machine, on loopback.

Needs slurmctld, slurmd and munged (Debian: slurmctld, slurmd, munge) and root; skipped with the reason elsewhere.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pyrometer_alerting.incidents.storage.store import Store
from pyrometer_alerting.policy.rules import Back, Limits, Policy, Rule, SlurmSettings
from pyrometer_alerting.policy.schedulers import Claim, RefusedError, SchedulerError
from pyrometer_alerting.policy.slurm import Slurm
from pyrometer_alerting.policy.worker import PolicyWorker
from pyrometer_kit.clock import SystemClock
from pyrometer_kit.prometheus import Series
from pyrometer_simulator.host_files import HostFiles
from pyrometer_simulator.nvml import SimulatedGpus
from pyrometer_simulator.ports import free_port
from pyrometer_simulator.sysfs import SysfsTree

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "compose/slurm"
MISSING = [name for name in ("slurmctld", "slurmd", "scontrol", "srun", "munged") if shutil.which(name) is None]
SECONDS = 60

pytestmark = [
    pytest.mark.compose,
    pytest.mark.e2e,
    pytest.mark.skipif(bool(MISSING), reason=f"install slurm-wlm and munge: no {', '.join(MISSING)}"),
    pytest.mark.skipif(os.geteuid() != 0, reason="slurmd needs root"),
]

CONFIGURATION = """\
ClusterName=try
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
ReturnToService=1
MailProg=/bin/true
SlurmdParameters=config_overrides
Prolog={scripts}/prolog.sh
Epilog={scripts}/epilog.sh
HealthCheckProgram={scripts}/health.sh
HealthCheckInterval={health}
HealthCheckNodeState=ANY
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=2 RealMemory=100 State=UNKNOWN
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=2 RealMemory=100 State=UNKNOWN
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
"""


class Cluster:
    """A Slurm of two nodes, whose checks look at one simulated machine."""

    def __init__(self, folder: Path, health: int) -> None:
        self.folder = folder
        self.tree = SysfsTree(folder / "tree", hcas=2, gpus=2)
        HostFiles(self.tree.sysfs, self.tree.procfs)
        self.gpus = SimulatedGpus(folder / "gpus", count=2)
        self._config(health)
        self._checks()
        self.env = dict(os.environ) | {"SLURM_CONF": str(folder / "slurm.conf"), "PYROMETER_CONF": str(folder / "site")}
        self._started: list[subprocess.Popen[bytes]] = []

    def _config(self, health: int) -> None:
        (self.folder / "munge").mkdir(mode=0o700)
        key = self.folder / "munge/key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o400)
        for name in ("state", "spool-n1", "spool-n2"):
            (self.folder / name).mkdir()
        ports = [free_port() for _ in range(3)]
        scripts = self.folder / "scripts"
        shutil.copytree(SCRIPTS, scripts)
        for script in scripts.glob("*.sh"):
            # slurmd runs them with an environment of its own: the settings must be found without any.
            body = script.read_text().replace("/etc/pyrometer/slurm.conf", str(self.folder / "site"))
            script.write_text(body.replace("set -u", f"set -u\nexport SLURM_CONF={self.folder}/slurm.conf", 1))
            script.chmod(0o755)
        host = socket.gethostname().partition(".")[0]
        (self.folder / "slurm.conf").write_text(
            CONFIGURATION.format(host=host, ports=ports, folder=self.folder, scripts=scripts, health=health)
        )

    def _checks(self) -> None:
        (self.folder / "kmsg").touch()
        (self.folder / "checks.yaml").write_text("expect: {gpus: 2, hcas: 2, rate: 400e9}\n")
        places = f"--path.sysfs={self.tree.sysfs} --path.procfs={self.tree.procfs} --path.kmsg={self.folder}/kmsg"
        run = f"{sys.executable} -m pyrometer_simulator.check --gpus={self.gpus.path} --"
        check = self.folder / "pyrometer-check"
        check.write_text(
            f"#!/bin/sh\nexport PYTHONPATH={os.pathsep.join(sys.path)}\n"
            f'exec {run} {places} --path.state={self.folder}/st --config.file={self.folder}/checks.yaml "$@"\n'
        )
        check.chmod(0o755)
        site = {
            "MEMORY": f"{self.folder}/memory-$SLURMD_NODENAME", "CHECK": check, "PAUSE": 0, "WAIT": 0,
            "RINGS": f"{self.folder}/rings",
        }  # fmt: skip
        (self.folder / "site").write_text("".join(f"PYROMETER_{name}={value}\n" for name, value in site.items()))

    def start(self) -> None:
        munge = self.folder / "munge"
        self._start(
            "munged", "--foreground", "--force", f"--socket={munge}/socket", f"--key-file={munge}/key",
            f"--pid-file={munge}/pid", f"--log-file={munge}/log", f"--seed-file={munge}/seed",
        )  # fmt: skip
        wait((munge / "socket").exists)
        self._start("slurmctld", "-D", "-c")
        for node in ("n1", "n2"):
            self._start("slurmd", "-D", "-c", "-N", node)
        wait(lambda: self.state("n1") == self.state("n2") == "IDLE")

    def _start(self, *command: str) -> None:
        with (self.folder / "daemons.log").open("ab") as log:
            self._started.append(subprocess.Popen(command, env=self.env, stdout=log, stderr=log))

    def stop(self) -> None:
        for process in reversed(self._started):
            process.terminate()
        for process in self._started:
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(15)
        for gpu in self.gpus:
            gpu.recover()

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=SECONDS, check=False)

    def show(self, node: str) -> str:
        return self.run("scontrol", "--oneliner", "show", "node", node).stdout

    def state(self, node: str) -> str:
        return self.show(node).partition(" State=")[2].partition(" ")[0]


def wait(until: Callable[[], bool], seconds: float = SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.fixture
def quiet(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster whose HealthCheckProgram does not run on its own."""
    cluster = Cluster(tmp_path, health=0)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def test_prolog_and_epilog_let_a_job_run_on_a_healthy_node_and_drain_one_that_is_not(quiet: Cluster) -> None:
    ran = quiet.run("srun", "-w", "n1", "-t1", "true")
    assert ran.returncode == 0, ran.stderr
    wait(lambda: quiet.state("n1") == "IDLE")
    # The link is lost while a job runs: the epilog says so.
    job = quiet.run("sbatch", "-w", "n1", "-t1", "-o/dev/null", "--wrap", f"touch {quiet.folder}/runs; sleep 3")
    assert job.returncode == 0, job.stderr
    wait((quiet.folder / "runs").exists)
    quiet.tree.nic("mlx5_1").down()
    wait(lambda: "DRAIN" in quiet.state("n1"))
    assert "Reason=pyrometer: hca_links: 1 of 2 links are up" in quiet.show("n1")
    # The other node sees the same machine: its prolog refuses the job, which goes back into the queue.
    quiet.run("sbatch", "-w", "n2", "-t1", "-o/dev/null", "--wrap", "true")
    wait(lambda: "DRAIN" in quiet.state("n2"))
    assert "Reason=pyrometer: hca_links: 1 of 2 links are up" in quiet.show("n2")


def test_the_health_check_program_drains_with_the_part_in_the_reason(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, health=2)
    try:
        cluster.start()
        cluster.tree.nic("mlx5_1").down()
        wait(lambda: "DRAIN" in cluster.state("n1"))
        assert "Reason=pyrometer: hca_links: 1 of 2 links are up: mlx5_1/1 DOWN, Polling" in cluster.show("n1")
        cluster.tree.nic("mlx5_1").up()
        wait(lambda: cluster.state("n1") == "IDLE")
        assert "Comment=pyrometer-back=" in cluster.show("n1")
    finally:
        cluster.stop()


class Findings:
    """A Prometheus by which n1 fails a check, until its test has passed."""

    passed_at = 0.0

    def now(self) -> float:
        return time.time()

    def instant(self, query: str, at: float) -> list[Series]:
        if query.startswith(("min by", "group by")):
            return [] if self.passed_at else [self._one(at, 0.0, check="hca_links")]
        if "severity" in query or "reason_info" in query or "ALERTS" in query:
            return []
        if "timestamp" in query:
            return [self._one(at, self.passed_at, test="nccl", check="hca_links")]
        return [self._one(at, 1.0, test="nccl", check="hca_links")]

    def range(self, query: str, start: float, end: float, step: float) -> list[Series]:
        looks = tuple((end - 300 * n, end - 300 * n) for n in (2, 1, 0))
        return [Series({"cluster": "c", "node": "n1", "check": "hca_links"}, looks)]

    def _one(self, at: float, value: float, **labels: str) -> Series:
        return Series({"cluster": "c", "node": "n1", **labels}, ((at, value),))


def test_the_policy_drains_and_returns_a_node(quiet: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", quiet.env["SLURM_CONF"])
    store, found = Store(tmp_path / "store"), Findings()
    worker = PolicyWorker(store, found, clock=SystemClock(), page_url="http://p", changed=lambda: None)
    rule, back = Rule("check", "hca_.*", 0.0, "drain"), Back(("nccl",), "return")
    worker.executor.policy = Policy("on", Limits(), {"c": SlurmSettings()}, (rule,), None, back)
    worker.executor.schedulers = {"c": Slurm(SlurmSettings())}
    quiet.run("scontrol", "update", "nodename=n1", "comment=rack 7")
    worker.step()
    line = quiet.show("n1")
    with store.snapshot() as tx:
        (drain,) = tx.actions.newest()
    assert drain.state == "done"
    assert f"Reason=pyrometer: check hca_links failed [pyrometer:{drain.id}] [root@" in line
    assert re.search(rf"Comment=rack 7 pyrometer-unfit=hca_links@\d+:\d+:policy pyrometer:{drain.id}", line)
    assert Slurm(SlurmSettings()).nodes()["n1"].is_ours
    assert quiet.state("n2") == "IDLE"
    found.passed_at = time.time() + 1
    worker.step()
    with store.snapshot() as tx:
        assert [(each.kind, each.state) for each in tx.actions.newest()] == [("return", "done"), ("drain", "ended")]
    wait(lambda: quiet.state("n1") == "IDLE")
    assert re.search(r"Comment=rack 7 pyrometer-back=\d+ pyrometer:[0-9a-f]{12}", quiet.show("n1"))
    assert quiet.run("srun", "-w", "n1", "-t1", "true").returncode == 0
    store.close()


def test_what_slurm_refuses_and_what_it_does_not_answer_are_told_apart(
    quiet: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", quiet.env["SLURM_CONF"])
    slurm = Slurm(SlurmSettings(seconds=30))
    assert {name: one.in_service for name, one in slurm.nodes().items()} == {"n1": True, "n2": True}
    assert slurm.nodes()["n1"].pools == ("all",)
    for name in ("nope", "ALL", "n[1-2]"):
        with pytest.raises(RefusedError):
            slurm.drain(name, "pyrometer: test", "pyrometer:0123456789ab", Claim(("test",), 0.0))
    quiet.run("scontrol", "update", "nodename=n2", "state=drain", 'reason=RMA State=IDLE "7" Comment=x')
    held = slurm.nodes()["n2"]
    assert (held.in_service, held.held) == (False, True)
    assert held.why.startswith("RMA")
    quiet.stop()
    with pytest.raises(SchedulerError) as error:
        slurm.nodes()
    assert not isinstance(error.value, RefusedError)
