"""Who the rank is, from what launchers put into the environment."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from client_ring_reader import ReadRing

from pyrometer import _environment

POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}


@pytest.mark.parametrize(
    ("environ", "rank", "local", "world"),
    [
        ({}, 0, 0, 1),
        ({"RANK": "9", "LOCAL_RANK": "1", "WORLD_SIZE": "16"}, 9, 1, 16),
        ({"SLURM_PROCID": "9", "SLURM_LOCALID": "1", "SLURM_NTASKS": "16"}, 9, 1, 16),
        ({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_LOCAL_RANK": "3", "OMPI_COMM_WORLD_SIZE": "8"}, 3, 3, 8),
        ({"PMI_RANK": "2", "PMI_SIZE": "4"}, 2, 0, 4),
        ({"RANK": "1", "SLURM_PROCID": "0"}, 1, 0, 1),
        ({"RANK": "", "SLURM_PROCID": "5"}, 5, 0, 1),
        ({"RANK": "-1", "WORLD_SIZE": "0"}, 0, 0, 1),
        ({"RANK": "one", "SLURM_PROCID": "5"}, 5, 0, 1),
        ({"JOB_COMPLETION_INDEX": "3"}, 3, 0, 1),
    ],
)
def test_launchers(environ: Any, rank: Any, local: Any, world: Any) -> None:
    found = (_environment.rank(environ), _environment.local_rank(environ), _environment.world_size(environ))
    assert found == (rank, local, world)


@pytest.mark.parametrize(
    ("visible", "local", "found"),
    [
        (None, 3, ("3", "")),
        ("4,5,6,7", 1, ("5", "")),
        (" 4 , 5 ", 1, ("5", "")),
        ("GPU-8f3a,GPU-77aa", 1, ("", "GPU-77aa")),
        ("MIG-1", 0, ("", "MIG-1")),
        ("3", 3, ("3", "")),
        ("GPU-8f3a", 5, ("", "GPU-8f3a")),
        ("0,1", 5, ("", "")),
    ],
)
def test_the_gpu_behind_a_local_rank(visible: Any, local: Any, found: Any) -> None:
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert _environment.gpu(environ, local) == found


ME, HOST = f"uid{os.getuid()}", os.uname().nodename
SEVERAL = {"WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8"}


@pytest.mark.parametrize(
    ("environ", "ranks", "expected"),
    [
        # The scheduler's job, before any launcher's.
        ({"SLURM_JOB_ID": "12", "TORCHELASTIC_RUN_ID": "x", "MASTER_ADDR": "gpu-1"}, 8, "12"),
        ({"SLURM_JOB_ID": "13", "SLURM_JOB_ID_HET_GROUP_0": "12"}, 8, "12"),
        ({"PBS_JOBID": "4711[3].pbs01"}, 8, "4711[3].pbs01"),
        ({"LSB_JOBID": "4711", "LSB_JOBINDEX": "0"}, 8, "4711"),
        ({"LSB_JOBID": "4711", "LSB_JOBINDEX": "3"}, 8, "4711[3]"),
        ({"FLUX_JOB_ID": "f2Xd"}, 8, "f2Xd"),
        ({**POD, **SEVERAL, "HOSTNAME": "llama-8b-worker-3"}, 16, "default/llama-8b"),
        ({**POD, **SEVERAL, "JOB_NAME": "llama", "HOSTNAME": "x"}, 16, "default/llama"),
        ({**POD, "HOSTNAME": "gpt"}, 1, "default/gpt"),
        # A pod whose name says nothing of its job is no identity for several.
        ({**POD, **SEVERAL, "HOSTNAME": "x", "MASTER_ADDR": "h0", "MASTER_PORT": "2"}, 16, f"{ME}@h0:2"),
        # A launcher's, with the user: tutorials have --rdzv-id=100.
        ({"TORCHELASTIC_RUN_ID": "100", "MASTER_ADDR": "gpu-1"}, 8, f"{ME}/100"),
        ({"PMIX_NAMESPACE": "prterun-gpu-1-77@1"}, 8, f"{ME}/prterun-gpu-1-77@1"),
        # The user and where the ranks meet.
        ({"TORCHELASTIC_RUN_ID": "none", "MASTER_ADDR": "gpu-1", "MASTER_PORT": "29500"}, 8, f"{ME}@gpu-1:29500"),
        ({"JAX_COORDINATOR_ADDRESS": "gpu-1:1234"}, 8, f"{ME}@gpu-1:1234"),
        ({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}, 8, f"{ME}@{HOST}:29500"),
        ({"MASTER_ADDR": "localhost"}, 8, f"{ME}@{HOST}"),
        # Only a single rank has its host in common with all.
        ({}, 1, f"{ME}@{HOST}"),
        ({}, 8, ME),
    ],
)
def test_a_job_is_what_all_its_ranks_share(environ: Any, ranks: int, expected: str) -> None:
    assert _environment.job_id(environ, ranks) == expected


def test_the_attempt_is_the_launchers_count() -> None:
    assert _environment.attempt({"TORCHELASTIC_RESTART_COUNT": "2"}) == 2


@pytest.mark.parametrize(
    ("environ", "attempt"),
    [
        ({}, 0),
        ({"TORCHELASTIC_RESTART_COUNT": "2"}, 2),
        ({"SLURM_RESTART_COUNT": "3"}, 3000),
        ({"SLURM_RESTART_COUNT": "2", "TORCHELASTIC_RESTART_COUNT": "0"}, 2000),
        ({"SLURM_RESTART_COUNT": "2", "TORCHELASTIC_RESTART_COUNT": "1"}, 2001),
        ({"SLURM_RESTART_COUNT": "2", "PYROMETER_ATTEMPT": "77"}, 77),
    ],
)
def test_the_attempt_never_goes_back_when_a_requeued_job_is_restarted(environ: Any, attempt: Any) -> None:
    assert _environment.attempt(environ) == attempt


def test_what_is_given_goes_before_what_launchers_say(
    rings: str, seen: ReadRing, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyrometer

    monkeypatch.setenv("RANK", "4")
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    run = pyrometer.start("r", rings=rings, rank=0, job_id="mine")
    meta = seen(run.path).meta
    assert (meta.rank, meta.reporting, meta.texts["job_id"]) == ("0", True, "mine")


@pytest.mark.parametrize(
    ("environ", "script", "expected"),
    [
        ({"PYROMETER_RUN": "mine", "SLURM_JOB_NAME": "job"}, "train.py", "mine"),
        ({"SLURM_JOB_NAME": "llama-8b", "SLURM_JOB_ID": "7"}, "/opt/work/train.py", "llama-8b"),
        ({"SLURM_JOB_NAME": "sweep", "SLURM_ARRAY_TASK_ID": "3"}, "train.py", "sweep-3"),
        ({"SLURM_JOB_NAME": "interactive"}, "/opt/work/pretrain.py", "pretrain"),
        ({"SLURM_JOB_NAME": "wrap"}, "", "wrap"),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOSTNAME": "llama-8b-worker-3"}, "train.py", "llama-8b"),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOSTNAME": "llama-8b-x7k2p"}, "train.py", "llama-8b"),
        (
            {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOSTNAME": "llama-8b-3", "JOB_COMPLETION_INDEX": "3"},
            "train.py",
            "llama-8b",
        ),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOSTNAME": "gpt-2"}, "train.py", "gpt-2"),
        ({**POD, "HOSTNAME": "llama-run-17", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "8"}, "train.py", "llama-run-17"),
        ({}, "/opt/app/train.py", "train"),
        ({}, "/opt/nanotron/__main__.py", "nanotron"),
        ({}, "-c", "unnamed"),
        ({}, "", "unnamed"),
    ],
)
def test_the_run_is_named_after_the_job_or_the_script(environ: dict[str, str], script: str, expected: str) -> None:
    assert _environment.run_name(environ, [script] if script else []) == expected


@pytest.mark.parametrize(
    ("hosts", "more", "expected"),
    [
        (("llama-0", "llama-1"), {"WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8"}, "llama"),  # StatefulSet
        (("llama-0", "llama-1"), {"WORLD_SIZE": "2"}, "llama"),
        (("lm-trainer-0", "lm-trainer-7"), {"WORLD_SIZE": "64", "LOCAL_WORLD_SIZE": "8"}, "lm-trainer"),  # Volcano
        (("lm-master-0", "lm-worker-1"), {"WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8"}, "lm"),
        (
            ("llama-1", "llama-1-1", "llama-1-12"),
            {"WORLD_SIZE": "16", "LWS_LEADER_ADDRESS": "llama-1.llama.default"},
            "llama-1",  # a group of a LeaderWorkerSet
        ),
    ],
)
def test_the_pods_of_a_run_have_one_name(hosts: tuple[str, ...], more: dict[str, str], expected: str) -> None:
    assert {_environment.run_name({**POD, **more, "HOSTNAME": host}, ["train.py"]) for host in hosts} == {expected}


def test_the_clock_of_a_time_namespace(tmp_path: Path) -> None:
    for text, expected in (
        ("monotonic           0         0\nboottime            0         0\n", 0),
        ("monotonic      100000         5\nboottime            0         0\n", 100_000_000_000_005),
        ("nonsense\n", 0),
    ):
        (tmp_path / "offsets").write_text(text)
        assert _environment.clock_offset(str(tmp_path / "offsets")) == expected
    assert _environment.clock_offset(str(tmp_path / "none")) == 0
