"""The Slurm scripts, run as slurmd runs them: over the real checks of a simulated node, and a scontrol that notes what
it is told.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyrometer_simulator.host_files import HostFiles
from pyrometer_simulator.nvml import SimulatedGpus
from pyrometer_simulator.sysfs import SysfsTree

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "compose/slurm"
SECONDS = 60


class Node:
    """A compute node with a scontrol and a pyrometer-check of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.rings = folder / "rings"
        self.tree = SysfsTree(folder / "tree", hcas=2, gpus=2)
        self.files = HostFiles(self.tree.sysfs, self.tree.procfs)
        self.gpus = SimulatedGpus(folder / "gpus", count=2)
        self.config = folder / "checks.yaml"
        self.config.write_text("expect: {gpus: 2, hcas: 2, rate: 400e9}\n")
        (folder / "kmsg").touch()
        self.env = {
            "PATH": f"{folder}:{os.environ['PATH']}", "PYROMETER_CONF": "/nowhere", "PYROMETER_RINGS": str(self.rings),
            "SLURMD_NODENAME": "gpu-042", "PYROMETER_PAUSE": "0", "PYTHONPATH": os.pathsep.join(sys.path),
            "PYROMETER_WAIT": "0", "PYROMETER_MEMORY": str(folder / "memory"),
        }  # fmt: skip
        places = [f"--path.sysfs={self.tree.sysfs}", f"--path.procfs={self.tree.procfs}"]
        places += [f"--path.kmsg={folder / 'kmsg'}", f"--path.state={folder / 'state'}", f"--config.file={self.config}"]
        start = [sys.executable, "-m", "pyrometer_simulator.check", f"--gpus={self.gpus.path}", "--", *places]
        self.script("pyrometer-check", f'exec {" ".join(start)} "$@"')
        self.state("IDLE")

    def script(self, name: str, *lines: str) -> None:
        (self._folder / name).write_text("\n".join(["#!/bin/sh", *lines]) + "\n")
        (self._folder / name).chmod(0o755)

    def state(self, state: str) -> None:
        self.script(
            "scontrol",
            'case "$*" in',
            f"*'show node'*) echo 'NodeName=gpu-042 State={state} CPUTot=96' ;;",
            f"*) printf '%s|' \"$@\" >> '{self._folder}/told' ;;",
            "esac",
        )

    def run(self, script: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", FOLDER / script], env=self.env | env, capture_output=True, text=True, timeout=SECONDS, check=False
        )

    @property
    def told(self) -> str:
        path = self._folder / "told"
        return path.read_text() if path.exists() else ""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    yield made
    for gpu in made.gpus:
        gpu.recover()


def test_a_healthy_node_is_left_alone(node: Node) -> None:
    for script, answer in (("node-check.sh", "fit\n"), ("health.sh", ""), ("prolog.sh", ""), ("epilog.sh", "")):
        ran = node.run(script)
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, answer, ""), script
    assert node.told == ""


def test_what_is_wrong_drains_the_node_with_the_reason(node: Node) -> None:
    node.gpus[1].lose()
    node.tree.nic("mlx5_1").down()
    assert node.run("health.sh").returncode == 1
    claim, drain = node.told.split("update|")[1:]
    failed = re.fullmatch(r"nodename=gpu-042\|comment=pyrometer-unfit=gpu_answers,hca_links@(\d{10})\|", claim)
    assert failed is not None
    assert drain.startswith(
        "nodename=gpu-042|state=drain|reason=pyrometer: "
        "gpu_answers: GPU 1 does not answer: gpu_is_lost: nvmlDeviceGetHandleByIndex returned 15: the GPU has fallen "
        f"off the bus; hca_links: 1 of 2 links are up: mlx5_1/1 DOWN, Polling|comment=pyrometer-unfit=gpu_answers,"
        f"hca_links@{failed[1]}:"
    )


def test_a_warning_takes_no_node_away(node: Node) -> None:
    node.files.write("proc", "sys/kernel/numa_balancing", "1")
    answer = node.run("node-check.sh")
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "fit\n", "")


def test_a_node_without_gpus_is_left_alone(node: Node) -> None:
    for address in ("0000:18:00.0", "0000:2a:00.0"):
        (node.tree.sysfs / "bus/pci/devices" / address).unlink()
    node.gpus.fail_init(12)
    node.config.write_text("expect: {hcas: 2}\n")
    assert node.run("node-check.sh").returncode == 0


def test_checks_can_be_left_out(node: Node) -> None:
    node.tree.nic("mlx5_1").down()
    assert node.run("node-check.sh", PYROMETER_IGNORE="hca_.*|nvme").returncode == 0
    assert node.run("node-check.sh", PYROMETER_IGNORE="hca").returncode == 1


@pytest.mark.parametrize("state", ["IDLE+DRAIN", "DOWN*"])
def test_the_reason_of_whoever_was_first_stays(node: Node, state: str) -> None:
    node.gpus[1].lose()
    node.state(state)
    assert node.run("health.sh").returncode == 0
    assert node.told == ""


def test_a_part_that_hangs_is_a_failure(node: Node) -> None:
    node.gpus[1].hang()
    answer = node.run("prolog.sh", PYROMETER_CHECK_FLAGS="--only=gpu_answers")
    assert (answer.returncode, answer.stderr) == (1, "pyrometer: gpu_answers: GPU 1 does not answer: it hangs\n")


@pytest.mark.parametrize("broken", ["exit 127", "exit 2", "kill -9 $$", "exit 3"])
def test_a_command_that_cannot_be_used_takes_no_node_away_unless_asked_to(node: Node, broken: str) -> None:
    node.script("pyrometer-check", broken)
    for script in ("health.sh", "prolog.sh", "epilog.sh"):
        answer = node.run(script)
        assert answer.returncode == 0, script
        assert "the node was not checked" in answer.stderr
    assert node.told == ""
    closed = node.run("prolog.sh", PYROMETER_FAIL="closed")
    assert closed.returncode == 1
    assert "not_checked: pyrometer-check ended with status" in closed.stderr


def test_a_mistake_in_the_configuration_drains_no_cluster(node: Node) -> None:
    node.config.write_text("expect: {gpu: 2}\n")
    answer = node.run("prolog.sh")
    assert answer.returncode == 0
    assert "unknown setting gpu" in answer.stderr
    assert node.run("node-check.sh", PYROMETER_FAIL="closed").returncode == 1


def test_critical_checks_that_could_not_be_run_are_told_where_sites_fail_closed(node: Node) -> None:
    node.script("pyrometer-check", "echo 'unknown: gpu_answers'", "exit 3")
    assert node.run("node-check.sh").returncode == 0
    assert node.run("node-check.sh", PYROMETER_FAIL="closed").returncode == 1


@pytest.mark.parametrize(("script", "status"), [("prolog.sh", 1), ("epilog.sh", 0)])
def test_a_job_is_kept_from_a_node_that_can_not_work(node: Node, script: str, status: int) -> None:
    """Status 1 of the epilog would let Slurm drain the node without brake and way back: it has ours already."""
    node.tree.nic("mlx5_1").down()
    answer = node.run(script)
    said = "pyrometer: hca_links: 1 of 2 links are up: mlx5_1/1 DOWN, Polling\n"
    assert (answer.returncode, answer.stderr) == (status, said)
    assert "state=drain" in node.told


def test_root_touches_nothing_where_users_write(node: Node, tmp_path: Path) -> None:
    """The prolog opens no link, FIFO or file of users: root would change a link's target, or wait."""
    others = tmp_path / "of-root"
    others.mkdir(mode=0o700)
    node.rings.symlink_to(others)
    os.mkfifo(others / "0.ring")
    (others / "1.ring").touch()
    for path in others.iterdir():
        os.utime(path, (0, 0))
    for script in ("prolog.sh", "epilog.sh"):
        ran = node.run(script)
        assert (ran.returncode, ran.stderr) == (0, ""), script
    assert others.stat().st_mode & 0o7777 == 0o700
    assert sorted(path.name for path in others.iterdir()) == ["0.ring", "1.ring"]


def test_settings_of_the_site_are_read(node: Node, tmp_path: Path) -> None:
    node.tree.nic("mlx5_1").down()
    (tmp_path / "slurm.conf").write_text("PYROMETER_IGNORE=hca_links\n")
    assert node.run("node-check.sh", PYROMETER_CONF=str(tmp_path / "slurm.conf")).returncode == 0
