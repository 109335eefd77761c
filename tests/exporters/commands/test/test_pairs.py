"""A test of two nodes: how it is started, that neither is used, and what its output must show."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pyrometer_exporters.commands.test import pairs
from pyrometer_exporters.commands.test.main import main
from pyrometer_exporters.framework.collector import Context
from pyrometer_exporters.framework.metrics import Sample
from pyrometer_exporters.node.active import kept
from pyrometer_exporters.node.active.collector import COLLECTOR
from pyrometer_exporters.node.active.kept import Tried
from pyrometer_kit.clock import SystemClock

RECORDED = Path(__file__).parent / "recorded"
H100 = "NVIDIA H100 80GB HBM3, 0"
# A launcher as srun is one: it says what it was asked, and starts the program once, as on the first host.
LAUNCHER = """#!/bin/sh
echo "$@" >> {folder}/asked
hosts=$1; shift 2
case "$hosts $1" in gpu-002*nvidia-smi) export PEER=1;; esac
exec "$@"
"""
SMI = """#!/bin/sh
case $1 in --query-gpu*) cat {folder}/gpus$PEER;; *) cat {folder}/pids$PEER;; esac
"""
RUN = ("--run=nccl_pair", "--host=gpu-001", "--peer=gpu-002", "--command=launch {hosts} {tasks} {test}")

Call = Callable[..., tuple[int, str]]


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two idle nodes with eight H100 each, and a launcher; return the folder of their answers."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.delenv("PEER", raising=False)
    output = RECORDED / "nccl-pair-h100.txt"
    scripts = {"launch": LAUNCHER.format(folder=tmp_path), "nvidia-smi": SMI.format(folder=tmp_path),
               "all_reduce_perf": f"#!/bin/sh\ncat {output}\n"}  # fmt: skip
    for name, text in scripts.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    for name in ("gpus", "gpus1"):
        (tmp_path / name).write_text("\n".join([H100] * 8))
        (tmp_path / name.replace("gpus", "pids")).touch()
    return tmp_path


@pytest.fixture
def run(nodes: Path, capsys: pytest.CaptureFixture[str]) -> Call:
    def call(*more: str) -> tuple[int, str]:
        status = main([f"--path.state={nodes}", f"--path.sysfs={nodes}/sys", *RUN, *more])
        return status, capsys.readouterr().out

    return call


def plug(folder: Path, *rates: str, state: str = "4: ACTIVE") -> None:
    for at, rate in enumerate(rates):
        port = folder / f"mlx5_{at}/ports/1"
        port.mkdir(parents=True)
        (port / "state").write_text(f"{state}\n")
        (port / "rate").write_text(f"{rate}\n")


def exported(state: Path) -> set[tuple[str, ...]]:
    context = Context(argparse.Namespace(), SystemClock(), state, state, state, state)
    samples = [each for each in COLLECTOR.build(context).collect(0) if isinstance(each, Sample)]
    return {(each.family.name.removeprefix("pyrometer_active_test_"), *each.labels) for each in samples}


def test_a_pair_is_tested_on_all_its_gpus_and_exported_with_the_peer(run: Call, nodes: Path) -> None:
    assert run() == (0, "OK nccl_pair: nccl_all_reduce_pair 338.8 GB/s\n")
    asked = (nodes / "asked").read_text().splitlines()
    assert asked == [
        "gpu-002 1 nvidia-smi --query-gpu=name,utilization.gpu --format=csv,noheader,nounits",
        "gpu-002 1 nvidia-smi --query-compute-apps=pid --format=csv,noheader",
        f"gpu-001,gpu-002 8 {nodes}/bin/all_reduce_perf -b 1G -e 8G -f 2 -g 1",
    ]
    assert exported(nodes) == {
        ("ok", "nccl_pair", "gpu-002"), ("timestamp_seconds", "nccl_pair", "gpu-002"),
        ("result", "nccl_all_reduce_pair", "GB/s", "gpu-002"),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("file", "text", "reason"),
    [
        ("pids", "4711", "in use by process 4711"),
        ("pids1", "4711", "on gpu-002: in use by process 4711"),
        ("gpus1", "NVIDIA H100 80GB HBM3, 7", "on gpu-002: utilization of GPU 0 is 7"),
        ("gpus1", "", "on gpu-002: nvidia-smi lists no GPU"),
        ("gpus1", "srun: job 7 queued and waiting for resources", "on gpu-002: utilization of GPU 0 is"),
        ("gpus1", H100, "gpu-002 has other ones: 1 NVIDIA H100 80GB HBM3"),
    ],
)
def test_nothing_runs_where_a_gpu_of_either_node_is_not_known_to_be_idle(
    run: Call, nodes: Path, file: str, text: str, reason: str
) -> None:
    (nodes / file).write_text(text)
    status, out = run()
    assert status == 3
    assert out.startswith(f"NOT RUN nccl_pair: GPUs are not idle: {reason}")
    assert "all_reduce_perf" not in ((nodes / "asked").read_text() if (nodes / "asked").exists() else "")


def test_a_launcher_that_does_not_start_anything_is_no_idle_peer(run: Call, nodes: Path) -> None:
    (nodes / "bin/launch").write_text("#!/bin/sh\nexit 1\n")
    assert run() == (
        3, "NOT RUN nccl_pair: GPUs are not idle: on gpu-002: nvidia-smi does not answer: it exited with status 1\n",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nccl-pair-without-mpi.txt", "its processes did not form one job; nccl-tests must be built with MPI=1"),
        ("nccl-2.18-rtx5090-mpi.txt", "8 GPUs on each of two nodes are to take part: "),
    ],
)
def test_processes_that_did_not_test_the_link_are_neither_pass_nor_failure(
    run: Call, nodes: Path, name: str, reason: str
) -> None:
    (nodes / "bin/all_reduce_perf").write_text(f"#!/bin/sh\ncat {RECORDED / name}\n")
    status, out = run()
    assert status == 3
    assert out.startswith(f"NOT MEASURED nccl_pair: {reason}")


def test_a_slow_link_is_a_failure_where_the_fabric_has_a_least_value(run: Call, nodes: Path) -> None:
    plug(nodes / "sys/class/infiniband", *["400 Gb/sec (4X NDR)"] * 8)
    status, out = run()
    assert status == 2
    assert out.startswith("FAILED nccl_pair: nccl_all_reduce_pair is 338.8 GB/s, at least 368 are expected")
    assert run("--limit=nccl_all_reduce_pair=300")[0] == 0


@pytest.mark.parametrize(
    ("rates", "state", "gpus"),
    [
        (["400 Gb/sec (4X NDR)"] * 7, "4: ACTIVE", 8),
        (["200 Gb/sec (4X HDR)"] * 8, "4: ACTIVE", 8),
        (["400 Gb/sec (4X NDR)"] * 8, "1: DOWN", 8),
        (["400 Gb/sec (4X NDR)"] * 8, "4: ACTIVE", 4),
    ],
)
def test_another_fabric_has_no_least_value(tmp_path: Path, rates: list[str], state: str, gpus: int) -> None:
    plug(tmp_path, *rates, state=state)
    assert pairs.least(gpus, tmp_path) == {}


def test_the_test_stands_in_the_launcher_as_words_or_within_one() -> None:
    test = ["all_reduce_perf", "-x", "a b"]
    mpirun = "mpirun --host {slots} -np 16 {test}"
    assert pairs.launched(mpirun, ["a", "b"], 8, test) == ["mpirun", "--host", "a:8,b:8", "-np", "16", *test]
    shell = "srun -N {count} -w {hosts} sh -c 'module load nccl; {test}'"
    assert pairs.launched(shell, ["a", "b"], 8, test) == [
        "srun", "-N", "2", "-w", "a,b", "sh", "-c", "module load nccl; all_reduce_perf -x 'a b'",
    ]  # fmt: skip


def test_a_few_peers_are_kept_and_a_repeated_one_replaces_its_result(tmp_path: Path) -> None:
    for at in range(6):
        kept.save(tmp_path, kept.added(kept.load(tmp_path), "ib", Tried("ok", "", at, peer=f"gpu-{at}")))
    kept.save(tmp_path, kept.added(kept.load(tmp_path), "nccl", Tried("ok", "", 9.0)))
    kept.save(tmp_path, kept.added(kept.load(tmp_path), "ib", Tried("failed", "slow", 7.0, peer="gpu-3")))
    found = kept.load(tmp_path)
    assert sorted(found) == [("ib", "gpu-2"), ("ib", "gpu-3"), ("ib", "gpu-4"), ("ib", "gpu-5"), ("nccl", "")]
    assert found["ib", "gpu-3"].state == "failed"


def test_a_file_of_the_version_before_is_read(tmp_path: Path) -> None:
    old = {
        "version": 1,
        "tests": {"ib": {"ok": True, "reason": "", "at": 5.0, "results": [["ib_write_bw", "Gb/s", 1]]}},
    }
    (tmp_path / "active.json").write_text(json.dumps(old))
    assert kept.load(tmp_path)["ib", ""].state == "ok"
