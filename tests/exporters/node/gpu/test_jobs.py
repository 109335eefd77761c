"""Whose processes are on a GPU."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.waiting import until

from pyrometer_exporters.node import users
from pyrometer_exporters.node.gpu import jobs
from pyrometer_exporters.node.gpu.jobs import Job, Jobs, job_of_cgroup
from pyrometer_exporters.node.gpu.pods import Pod, Pods
from pyrometer_exporters.node.users import Users

POD = "2c48913c-b29f-11e7-9350-020968147796"
POD_ = POD.replace("-", "_")
STATIC_POD = "0123456789abcdef0123456789abcdef"
SLICE = "/kubepods.slice"
CONTAINER = "1b9e5e0e7a1f4d2c8b7a6d5c4b3a29181716151413121110f0e0d0c0b0a09080"


@pytest.mark.parametrize(
    ("cgroup", "job"),
    [
        ("11:devices:/slurm/uid_1000/job_4711/step_0/task_0\n1:name=systemd:/system.slice/slurmd.service", "4711"),
        ("9:memory:/slurm/uid_1000/job_4711/step_batch", "4711"),
        ("4:cpuset:/slurm_node01/uid_1000/job_4711/step_0", "4711"),
        ("4:freezer:/slurm/uid_1000/job_4711", "4711"),
        ("0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0", "4711"),
        ("0::/system.slice/node01_slurmstepd.scope/job_4711/step_extern/user/task_special", "4711"),
        ("0::/system.slice/slurmstepd.scope/job_4711/step_0/slurm", "4711"),
        (f"11:memory:/kubepods/burstable/pod{POD}/{CONTAINER}", POD),
        (f"11:memory:/kubepods/pod{POD}/{CONTAINER}", POD),
        (f"0::{SLICE}/kubepods-burstable.slice/kubepods-burstable-pod{POD_}.slice/cri-containerd-1b9e.scope", POD),
        (f"0::/kubepods.slice/kubepods-pod{POD_}.slice/crio-{CONTAINER}.scope/container", POD),
        (f"0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort-pod{POD_}.slice/crio-1.scope", POD),
        (f"0::{SLICE}/kubepods-burstable.slice/kubepods-burstable-pod{STATIC_POD}.slice/crio-1.scope", STATIC_POD),
        (f"0::/../../pod{POD}/{CONTAINER}", POD),
        (f"0::/system.slice/containerd.service/kubepods-pod{STATIC_POD}.slice:cri-containerd:1b9e", STATIC_POD),
        (f"1:name=systemd:/kubepods-besteffort-pod{POD_}.slice:crio:{CONTAINER}", POD),
        (f"0::/docker/{CONTAINER}/kubelet/kubepods/besteffort/pod{POD}/{CONTAINER}", POD),
        (f"0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0/libpod-{CONTAINER}.scope/container", "4711"),
        (f"0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0/kubepods/pod{POD}/x", "4711"),
        (f"0::/kubepods.slice/kubepods-pod{POD_}.slice/crio-1.scope/system.slice/slurmstepd.scope/job_12/step_0", "12"),
        ("9:cpuset:/pbs_jobs.service/jobid/4711.pbs01", "4711.pbs01"),
        ("0::/pbs_jobs.service/jobs/4711[3].pbs01.example.org", "4711[3].pbs01.example.org"),
        ("4:memory:/pbspro/4711.headnode", "4711.headnode"),
        ("4:memory:/lsf/cluster1/job.4711.13150.1530048034", "4711"),
        ("4:memory:/lsf/cluster1/job.4711[3].13150.1530048034/x", "4711[3]"),
        ("0::/user.slice/user-500.slice/user@500.service/shell-0-fMPUXQyW5V.service", "fMPUXQyW5V"),
        ("0::/user.slice/user-500.slice/user@500.service/imp-shell-12-ƒMPUXQyW5V.service", "fMPUXQyW5V"),
        ("0::/pbs_jobs.service/jobid", None),
        ("0::/system.slice/lsf/job.x", None),
        ("0::/system.slice/shell-0-.service", None),
        ("0::/user.slice/user-1000.slice/session-3.scope", None),
        ("0::/", None),
        ("", None),
        ("0::/system.slice/slurmd.service", None),
        ("0::/user.slice/job_4711/step_0", None),
        ("0::/system.slice/docker-4711.scope", None),
        ("0::/podman/pod12", None),
    ],
)  # fmt: skip
def test_a_cgroup_names_its_job(cgroup: str, job: str | None) -> None:
    assert job_of_cgroup(cgroup) == job


UIDS = st.one_of(
    st.uuids().map(str), st.uuids().map(lambda uid: str(uid).replace("-", "_")), st.uuids().map(lambda uid: uid.hex)
)
HASHES = st.binary(min_size=32, max_size=32).map(bytes.hex)
ABOVE = st.sampled_from(["", "/..", "/../..", "/docker/1b9e5e0e7a1f", "/kubelet.slice", "/system.slice/k3s.service"])
QUALITIES = st.sampled_from(["", "burstable", "besteffort"])
RUNTIMES = st.sampled_from(["cri-containerd", "crio", "docker", "crio-conmon"])
BELOW = st.sampled_from(["", "/container", "/init.scope", "/system.slice/ssh.service", "/docker/1b9e5e0e7a1f"])
# As /proc/<pid>/cgroup of a v1 node has them: a line each, in the order of their numbers.
HIERARCHIES = st.sampled_from(["0::{}", "11:devices:{}\n1:name=systemd:/", "12:misc:/\n4:cpu,cpuacct:{}\n0::/"])


@given(st.tuples(HIERARCHIES, ABOVE, BELOW), QUALITIES, UIDS, st.tuples(RUNTIMES, HASHES))
@pytest.mark.parametrize("style", ["slices", "folders", "colons"])
def test_a_pod_is_known_whatever_made_its_cgroup(
    style: str, around: tuple[str, str, str], quality: str, uid: str, runtime: tuple[str, str]
) -> None:
    (lines, above, below), (program, container) = around, runtime
    kind = f"-{quality}" if quality else ""
    pod = f"kubepods{kind}-pod{uid}.slice"
    path = {
        "slices": f"/kubepods.slice{f'/kubepods{kind}.slice' if kind else ''}/{pod}/{program}-{container}.scope",
        "folders": f"/kubepods{f'/{quality}' if quality else ''}/pod{uid}/{container}",
        "colons": f"/{pod}:{program}:{container}",
    }[style]
    assert job_of_cgroup(lines.format(above + path + below)) == uid.replace("_", "-")


@given(
    HIERARCHIES,
    st.sampled_from(["/slurm/uid_{}", "/slurm_node01/uid_{}", "/system.slice/slurmstepd.scope",
                     "/system.slice/node01_slurmstepd.scope", "/kubepods.slice/x.scope/slurm/uid_{}"]),
    st.integers(0, 1 << 31), st.integers(1, 1 << 32),
    st.sampled_from(["", "/step_0", "/step_batch/user/task_0", "/step_extern/user/task_special", "/step_4294967291",
                     "/step_0/user/task_7/libpod-1b9e5e0e.scope", "/step_interactive/slurm"]),
)  # fmt: skip
def test_a_slurm_job_is_known_whatever_made_its_cgroup(lines: str, root: str, uid: int, job: int, step: str) -> None:
    assert job_of_cgroup(lines.format(f"{root.format(uid)}/job_{job}{step}")) == str(job)


@given(st.text())
def test_nothing_makes_it_fail(text: str) -> None:
    job_of_cgroup(text)
    job_of_cgroup(f"0::/system.slice/slurmstepd.scope/job_{text}")


class Processes:
    """A procfs with processes of these jobs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now = 0.0

    def add(self, pid: int, cgroup: str, uid: int | None = 1000) -> None:
        (self.folder / str(pid)).mkdir(parents=True)
        (self.folder / str(pid) / "cgroup").write_text(f"0::{cgroup}\n")
        if uid is not None:
            (self.folder / str(pid) / "status").write_text(f"Name:\tpython\nUid:\t{uid}\t0\t0\t0\nGid:\t5\t5\t5\t5\n")

    def remove(self, pid: int) -> None:
        for file in (self.folder / str(pid)).iterdir():
            file.unlink()
        (self.folder / str(pid)).rmdir()

    def slurm(self, pid: int, job: int, uid: int | None = 1000) -> None:
        self.add(pid, f"/system.slice/slurmstepd.scope/job_{job}/step_0/user/task_0", uid)


@pytest.fixture
def processes(tmp_path: Path) -> Processes:
    return Processes(tmp_path / "proc")


def test_a_process_has_a_job_and_a_user(processes: Processes) -> None:
    processes.slurm(7, 4711)
    lookup = Jobs(processes.folder, users=Users(processes.folder, name_of={1000: "alice"}.__getitem__))
    assert lookup.of(7) == Job("4711", "alice")
    assert lookup.of(8) is None


@pytest.mark.parametrize(("uid", "user"), [(1000, "1000"), (None, "")])
def test_a_user_without_a_name_is_a_number_and_without_that_nothing(
    processes: Processes, uid: int | None, user: str
) -> None:
    processes.slurm(7, 4711, uid)
    assert Jobs(processes.folder).of(7) == Job("4711", user)


def test_own_processes_have_the_machines_user_names() -> None:
    assert users._name_of(Path("/proc"))(0) == "root"
    assert users._name_of(Path("/proc"))(987_654_321) == ""
    assert users._name_of(Path("/host/proc"))(0) == ""


def test_a_directory_of_users_that_hangs_is_asked_once_and_the_number_stands_for_the_name(processes: Processes) -> None:
    released, calls = threading.Event(), []

    def slow(uid: int) -> str:
        calls.append(uid)
        released.wait(60)
        return "alice"

    processes.slurm(7, 4711)
    lookup = Jobs(processes.folder, users=Users(processes.folder, name_of=slow))
    start = time.monotonic()
    assert [lookup.of(7) for _ in range(5)] == [Job("4711", "1000")] * 5
    assert time.monotonic() - start < 20
    assert calls == [1000]
    released.set()
    until(lambda: lookup.of(7) == Job("4711", "alice"))


def test_the_job_of_a_process_that_ended_is_remembered_for_some_minutes(processes: Processes) -> None:
    lookup = Jobs(processes.folder, lambda: processes.now)
    processes.slurm(7, 4711)
    assert lookup.of(7) == Job("4711", "1000")
    processes.remove(7)
    assert lookup.of(7) is None
    assert lookup.of_the_late(7) == Job("4711", "1000")
    processes.now = jobs.REMEMBER_SECONDS + 1
    assert lookup.of_the_late(7) is None


def test_a_number_given_to_another_process_is_not_the_late_ones(processes: Processes) -> None:
    lookup = Jobs(processes.folder, lambda: processes.now)
    processes.slurm(7, 4711)
    lookup.of(7)
    processes.remove(7)
    processes.add(7, "/system.slice/cron.service")
    assert lookup.of_the_late(7) is None


def test_a_storm_looks_a_process_up_once_a_second(processes: Processes) -> None:
    lookup = Jobs(processes.folder, lambda: processes.now)
    processes.slurm(7, 4711)
    assert lookup.of_the_late(7) == Job("4711", "1000")
    processes.remove(7)
    processes.slurm(7, 4712)
    processes.now += 0.9 * jobs.LATE_KEPT_SECONDS
    assert lookup.of_the_late(7) == Job("4711", "1000")
    processes.now += 0.2 * jobs.LATE_KEPT_SECONDS
    assert lookup.of_the_late(7) == Job("4712", "1000")


def test_a_storm_of_many_processes_is_not_remembered(processes: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "MOST_REMEMBERED", 3)
    lookup = Jobs(processes.folder, lambda: processes.now)
    processes.slurm(1, 4711)
    assert {pid: lookup.of_the_late(pid) for pid in range(1, 9)} == dict.fromkeys(range(1, 9)) | {
        1: Job("4711", "1000")
    }
    processes.remove(1)
    processes.slurm(1, 4712)
    assert lookup.of_the_late(1) == Job("4712", "1000"), "looked up again, as it is not remembered any more"


def test_memory_of_ended_processes_is_bounded(processes: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "MOST_REMEMBERED", 3)
    lookup = Jobs(processes.folder, lambda: processes.now)
    for pid in range(1, 10):
        processes.slurm(pid, pid)
        lookup.of(pid)
    assert len(lookup._seen) <= 3


def _info(node: Any) -> set[tuple[str, ...]]:
    return {(labels[0], *labels[2:]) for labels in node.scrape().values("pyrometer_gpu_job_info")}


def _processes(node: Any, gpu: str) -> dict[str, float]:
    return {labels[2]: value for labels, value in node.scrape().values("pyrometer_gpu_processes", gpu=gpu).items()}


def test_each_job_on_a_gpu_has_one_series(make_node: Any, processes: Processes) -> None:
    node = make_node(count=3)
    for pid, job in ((1, 10), (2, 10), (3, 11)):
        processes.slurm(pid, job)
    processes.add(4, "/user.slice/session-1.scope")
    node.gpus[0].set(processes=[[1, 1 << 30], [2, 1 << 30], [3, 1 << 30], [4, 1 << 20]])
    node.gpus[1].set(processes=[[3, 1 << 30]])
    assert _info(node) == {
        ("0", "10", "1000", "", "", "", ""),
        ("0", "11", "1000", "", "", "", ""),
        ("1", "11", "1000", "", "", "", ""),
    }
    assert _processes(node, "0") == {"job": 3, "none": 1, "hidden": 0}
    assert _processes(node, "2") == {"job": 0, "none": 0, "hidden": 0}


def test_a_job_that_ended_is_gone_with_the_next_scrape(make_node: Any, processes: Processes) -> None:
    node = make_node(count=1)
    processes.slurm(1, 10)
    node.gpus[0].set(processes=[[1, 1 << 30]])
    assert _info(node) == {("0", "10", "1000", "", "", "", "")}
    node.gpus[0].set(processes=None)
    assert _info(node) == set()


def test_processes_of_another_pid_namespace_have_no_job_and_are_said_to_be_hidden(make_node: Any) -> None:
    node = make_node(count=1)
    node.gpus[0].set(processes=[[1, 1 << 30], [2, 1 << 30]])
    assert _info(node) == set()
    assert _processes(node, "0") == {"job": 0, "none": 0, "hidden": 2}


@pytest.mark.parametrize("code", [3, 4, 7, 13, 20, 999])  # 7: there were more at each look than at the one before
def test_a_driver_that_does_not_list_processes_costs_these_series_alone(make_node: Any, code: int) -> None:
    node = make_node(count=1, setup=lambda gpus: gpus[0].set(errors={"nvmlDeviceGetComputeRunningProcesses_v3": code}))
    scrape = node.scrape()
    assert scrape.downs == {}
    assert scrape.values("pyrometer_gpu_processes") == {}
    assert scrape.value("pyrometer_gpu_up") == 1


@pytest.mark.parametrize("told", [12, 1 << 20, 0xFFFFFFFF])
def test_a_list_longer_than_it_is_costs_these_series_alone(make_node: Any, told: int) -> None:
    node = make_node(count=2, setup=lambda gpus: gpus[0].set(processes=[[1, 0]] * 3, processes_announced=told))
    scrape = node.scrape()
    assert scrape.downs == {}
    assert scrape.values("pyrometer_gpu_processes", gpu="0") == {}
    assert scrape.values("pyrometer_gpu_up") == {("0", node.gpus[0].uuid): 1, ("1", node.gpus[1].uuid): 1}


def test_a_process_that_is_listed_twice_is_one(make_node: Any, processes: Processes) -> None:
    node = make_node(count=1)
    processes.slurm(1, 10)
    node.gpus[0].set(processes=[[1, 1 << 30, 1, 0], [1, 1 << 30, 2, 0], [0, 0], [0xFFFFFFFF, (1 << 64) - 1]])
    assert _info(node) == {("0", "10", "1000", "", "", "", instance) for instance in ("1", "2")}
    assert _processes(node, "0") == {"job": 1, "none": 0, "hidden": 2}


def test_no_environment_is_read(make_node: Any, processes: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    real = Path.read_text

    def spy(path: Path, *arguments: Any, **settings: Any) -> str:
        read.append(os.fspath(path))
        return real(path, *arguments, **settings)

    node = make_node(count=1)
    processes.slurm(1, 10)
    node.gpus[0].set(processes=[[1, 1 << 30]])
    monkeypatch.setattr(Path, "read_text", spy)
    assert _info(node)
    assert {Path(path).name for path in read if "/proc/1/" in path} == {"cgroup", "status"}


def test_a_pod_has_its_names_once_they_are_known(make_node: Any, processes: Processes) -> None:
    node = make_node(count=1)
    processes.add(1, f"/kubepods.slice/kubepods-pod{POD_}.slice/crio-1.scope")
    node.gpus[0].set(processes=[[1, 1 << 30]])
    assert _info(node) == {("0", POD, "1000", "", "", "", "")}

    class Source:
        def pods(self) -> dict[str, Pod]:
            return {POD: Pod("team-a", "llama-8b-worker-3", "llama-8b")}

    names = Pods(Source())
    names.refresh()
    context = node.collector._shared.context
    object.__setattr__(context, "pods", names)
    assert _info(node) == {("0", POD, "1000", "llama-8b", "team-a", "llama-8b-worker-3", "")}
