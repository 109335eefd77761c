"""The brake and the way back of the Slurm scripts, on 64 nodes: the real scripts, over a scontrol with a memory.

The real Slurm is in test_real_slurm.py; what the checks find is in test_slurm.py.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests import scontrol

from pyrometer_alerting.policy.schedulers import Claim

SCRIPTS = Path(__file__).resolve().parents[2] / "compose/slurm"
GPU = "gpu_count: 7 of 8 GPUs are on the bus"
MOUNT = "network_mounts: /data does not answer"
SPACE = "shared_memory: /dev/shm is 95 % full"

# As `scontrol --oneliner show node` of Slurm 22.05 to 25.05, in the fields that the scripts read.
SHOWN = "Partitions=all,DRAINED_ONLY ${comment:+Comment=$comment }${reason:+Reason=$reason [root@2026-11-29T03:00:00]}"


class Fleet:
    """64 nodes of one Slurm; what pyrometer-check says of each is a file."""

    def __init__(self, folder: Path, count: int = 64, names: Sequence[str] = ()) -> None:
        self.seconds = 60.0
        self.folder, self.names = folder, list(names) or [f"n{number:02}" for number in range(count)]
        scontrol.write(folder, SHOWN)
        # The check says one line; its status is that of the real one.
        (folder / "pyrometer-check").write_text(
            f'#!/bin/sh\nread -r answer <{folder}/says/$SLURMD_NODENAME; echo "$answer"\n'
            "case $answer in fit) exit 0 ;; unknown:*) exit 0 ;; *) exit 2 ;; esac\n"
        )
        (folder / "pyrometer-check").chmod(0o755)
        (folder / "says").mkdir()
        for name in self.names:
            (folder / "nodes" / name).mkdir(parents=True)
            for field, value in (("state", "IDLE"), ("comment", ""), ("reason", "")):
                self.write(name, field, value)
        self.say(self.names, "fit")

    def write(self, name: str, field: str, value: str) -> None:
        (self.folder / "nodes" / name / field).write_text(value + "\n")

    def read(self, name: str, field: str) -> str:
        return (self.folder / "nodes" / name / field).read_text().strip()

    def say(self, names: Iterable[str], answer: str) -> None:
        for name in names:
            (self.folder / "says" / name).write_text(answer + "\n")

    def run(
        self, name: str, script: str = "health.sh", wait: str = "0", **env: str
    ) -> subprocess.CompletedProcess[str]:
        own = {
            "PATH": f"{self.folder}:{os.environ['PATH']}", "PYROMETER_CONF": "/nowhere", "SLURMD_NODENAME": name,
            "PYROMETER_WAIT": wait, "PYROMETER_MEMORY": str(self.folder / "memory" / name),
            "PYROMETER_RINGS": str(self.folder / "rings"),
        }  # fmt: skip
        (self.folder / "memory").mkdir(exist_ok=True)
        return subprocess.run(
            ["sh", SCRIPTS / script], env=own | env, capture_output=True, text=True, timeout=self.seconds, check=False
        )

    def minute(self, names: Iterable[str] = (), wait: str = "0") -> None:
        """Run all nodes' health checks, four at a time as two cores can; with a wait all at once."""
        with ThreadPoolExecutor(4 if wait == "0" else 64) as pool:
            list(pool.map(lambda name: self.run(name, wait=wait), names or self.names))

    def drained(self) -> list[str]:
        return [name for name in self.names if "DRAIN" in self.read(name, "state")]

    def ever_drained(self) -> list[str]:
        path = self.folder / "drained"
        return path.read_text().split() if path.exists() else []


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path)


def test_a_file_server_that_restarts_drains_no_node(fleet: Fleet) -> None:
    fleet.say(fleet.names, MOUNT)
    fleet.minute(wait="6")
    fleet.minute()
    assert fleet.ever_drained() == []
    fleet.say(fleet.names, "fit")
    fleet.minute()
    assert {fleet.read(name, "comment") for name in fleet.names} == {""}


def test_a_bad_rollout_drains_no_node_where_sites_fail_closed(fleet: Fleet) -> None:
    (fleet.folder / "pyrometer-check").write_text("#!/bin/sh\nexit 127\n")
    with ThreadPoolExecutor(64) as pool:
        list(pool.map(lambda name: fleet.run(name, wait="6", PYROMETER_FAIL="closed"), fleet.names))
    assert fleet.ever_drained() == []


def test_a_node_with_a_fault_of_its_own_is_drained_amid_a_common_one(fleet: Fleet) -> None:
    now = int(time.time())
    for name in fleet.names[1:]:
        fleet.write(name, "comment", f"pyrometer-unfit=network_mounts@{now - 60}")
    fleet.say(["n00"], f"{GPU}; {MOUNT}")
    assert fleet.run("n00").returncode == 1
    assert fleet.drained() == ["n00"]
    assert fleet.read("n00", "reason") == f"pyrometer: {GPU}; {MOUNT}"


@pytest.mark.parametrize(("others", "ago", "is_drained"), [(2, 60, True), (3, 60, False), (40, 901, True)])
def test_more_than_three_nodes_within_a_quarter_of_an_hour_ask_a_person(
    fleet: Fleet, others: int, ago: int, is_drained: bool
) -> None:
    for name in fleet.names[1 : others + 1]:
        fleet.write(name, "comment", f"pyrometer-unfit=gpu_count@{int(time.time()) - ago}")
    fleet.say(["n00"], GPU)
    ran = fleet.run("n00", "prolog.sh")
    assert (ran.returncode, fleet.drained()) == ((1, ["n00"]) if is_drained else (0, []))
    if not is_drained:
        assert "not drained, a common cause (on 4 of 64 nodes within 15 minutes), decide yourself: " in ran.stderr


def test_of_a_large_cluster_two_percent_may_fail(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, 250)  # five nodes
    for name in fleet.names[1:5]:
        fleet.write(name, "comment", f"pyrometer-unfit=gpu_count@{int(time.time())}")
    fleet.say(["n00", "n99"], GPU)
    assert fleet.run("n00").returncode == 1
    assert fleet.run("n99").returncode == 0


def test_a_repaired_node_comes_back_and_those_of_others_do_not(fleet: Fleet) -> None:
    fleet.write("n00", "comment", "rack 7, ask Ann")
    fleet.say(["n00", "n01", "n02"], GPU)
    fleet.minute()
    assert fleet.drained() == ["n00", "n01", "n02"]
    fleet.write("n01", "reason", f"{fleet.read('n01', 'reason')} RMA 123")
    fleet.write("n02", "reason", "moved to another rack")
    fleet.write("n03", "state", "IDLE+DRAIN")
    fleet.write("n03", "reason", "pyrometer: check gpu_count failed [pyrometer:0123456789ab]")  # the policy's
    fleet.say(fleet.names, "fit")
    fleet.minute()
    assert fleet.drained() == ["n01", "n02", "n03"]
    assert fleet.read("n00", "comment").startswith("rack 7, ask Ann pyrometer-back=")


def test_drains_by_the_policy_count_and_are_not_taken_back(fleet: Fleet) -> None:
    reason = "pyrometer: check gpu_count failed [pyrometer:0123456789ab]"
    words = Claim(("gpu_count",), time.time() - 60).of_reason(reason)
    for name in fleet.names[1:4]:
        fleet.write(name, "state", "IDLE+DRAIN")
        fleet.write(name, "reason", reason)
        fleet.write(name, "comment", f"pyrometer-unfit={words} pyrometer:0123456789ab")
    fleet.minute()
    assert fleet.drained() == fleet.names[1:4]
    fleet.say(["n00"], GPU)
    ran = fleet.run("n00")
    assert (ran.returncode, "n00" in fleet.drained()) == (0, False)
    assert "a common cause (on 4 of 64 nodes within 15 minutes)" in ran.stderr
    fleet.write("n01", "state", "IDLE")  # a person has resumed it: the scripts clear the claim, not the policy's mark
    fleet.run("n01")
    assert fleet.read("n01", "comment") == "pyrometer:0123456789ab"


def test_a_node_that_fails_again_within_a_day_stays_drained(fleet: Fleet) -> None:
    for answer in (GPU, "fit", GPU, "fit", "fit"):
        fleet.say(["n00"], answer)
        fleet.run("n00")
    assert fleet.drained() == ["n00"]
    assert fleet.read("n00", "reason") == f"pyrometer: again within a day: {GPU}"


def test_use_of_space_keeps_jobs_away_only_while_it_lasts(fleet: Fleet) -> None:
    for answer in (SPACE, "fit", SPACE, "fit"):
        fleet.say(["n00"], answer)
        fleet.run("n00")
        assert fleet.drained() == ([] if answer == "fit" else ["n00"])


def test_what_failed_must_have_passed_and_an_unknown_check_is_not_that(fleet: Fleet) -> None:
    fleet.say(["n00"], GPU)
    fleet.run("n00")
    for answer, left in (("unknown: gpu_count, hca_count", ["n00"]), ("unknown: hca_count", [])):
        fleet.say(["n00"], answer)
        fleet.run("n00")
        assert fleet.drained() == left


def test_one_word_stops_all_drains(fleet: Fleet) -> None:
    fleet.write("n40", "comment", "for Bob pyrometer-stop")
    fleet.say(["n00"], GPU)
    ran = fleet.run("n00", "prolog.sh")
    assert (ran.returncode, fleet.drained()) == (0, [])
    assert "not drained, drains are stopped: " in ran.stderr
    assert fleet.run("n00", PYROMETER_DRAIN="off").returncode == 0


def test_without_an_answer_of_slurm_nothing_is_done(fleet: Fleet) -> None:
    fleet.say(["n00"], GPU)
    (fleet.folder / "away").touch()
    assert fleet.run("n00").returncode == 0
    (fleet.folder / "away").unlink()
    assert fleet.drained() == []
    assert fleet.read("n00", "comment") == ""


def test_a_comment_that_cannot_be_told_from_other_fields_is_not_touched(fleet: Fleet) -> None:
    fleet.write("n00", "comment", "see Comment=7 Reason=fan")
    fleet.say(["n00"], GPU)
    assert fleet.run("n00").returncode == 1
    assert fleet.read("n00", "comment") == "see Comment=7 Reason=fan"


def test_an_answer_that_lacks_the_node_is_none(fleet: Fleet) -> None:
    path = fleet.folder / "scontrol"
    path.write_text(path.read_text().replace("last=$(ls)", "last=$(ls | grep -v n00)"))
    fleet.write("n00", "comment", "rack 7, ask Ann")
    fleet.say(["n00"], GPU)
    assert fleet.run("n00").returncode == 0
    assert fleet.read("n00", "comment").startswith("rack 7, ask Ann ")
    assert fleet.drained() == []


LAUNCHERS = {
    1: "OCI runtime exec failed", 125: "docker: Error response from daemon: No such container: pyrometer-node",
    126: "fit", 127: "gpu_count: 7 of 8",
}  # fmt: skip
OF_STATUS_2 = (
    "docker: no configuration file provided", "error: unable to upgrade connection", "sh: 1: Syntax error: end of file",
    "pyrometer-check: error: unrecognized arguments: --confirm=2", "Error: executable file not found", "gpu_count: ",
)  # fmt: skip


def test_an_answer_of_the_launcher_is_no_verdict(fleet: Fleet) -> None:
    (fleet.folder / "docker").symlink_to("pyrometer-check")
    for status, line in [*LAUNCHERS.items(), *((2, line) for line in OF_STATUS_2)]:
        (fleet.folder / "pyrometer-check").write_text(f"#!/bin/sh\necho '{line}'\nexit {status}\n")
        check = "docker exec -t pyrometer-node pyrometer-check"
        assert fleet.run("n00", "node-check.sh", PYROMETER_CHECK=check).returncode == 0, line
        closed = fleet.run("n00", "node-check.sh", PYROMETER_CHECK=check, PYROMETER_FAIL="closed")
        assert (closed.returncode, closed.stdout[:12]) == (1, "not_checked:"), line
    assert fleet.drained() == []
