"""The command with tools that print recorded outputs, hang or crash; and the collector that exports its results."""

from __future__ import annotations

import argparse
import errno
import json
import os
import re
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pyrometer_exporters.commands.test import tools
from pyrometer_exporters.commands.test.main import main
from pyrometer_exporters.framework.collector import Context
from pyrometer_exporters.framework.exposition import Renderer
from pyrometer_exporters.framework.metrics import Down
from pyrometer_exporters.node.active.collector import COLLECTOR
from pyrometer_kit.clock import SystemClock

RECORDED = Path(__file__).parent / "recorded"
ONE = "NVIDIA H100 80GB HBM3, 0"
SMI = "#!/bin/sh\ncase $1 in --query-gpu*) echo '{gpus}';; *) cat {pids};; esac\n"

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Put programs on PATH, with an idle GPU."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)

    def put(name: str, *, prints: str = "", status: int = 0, script: str = "") -> None:
        path = folder / name
        path.write_text(script or f"#!/bin/sh\ncat {RECORDED / prints}\nexit {status}\n")
        path.chmod(0o755)

    (tmp_path / "pids").touch()
    put("nvidia-smi", script=SMI.format(gpus="\n".join([ONE] * 8), pids=tmp_path / "pids"))
    return put


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    def call(*flags: str) -> tuple[int, str]:
        status = main([f"--path.state={tmp_path}", *flags])
        return status, capsys.readouterr().out

    return call


def exported(state: Path) -> dict[tuple[str, ...], float]:
    context = Context(argparse.Namespace(), SystemClock(), state, state, state, state)
    samples: list[Any] = list(COLLECTOR.build(context).collect(0))
    return {
        (sample.family.name.removeprefix("pyrometer_active_test_"), *filter(None, sample.labels)): sample.value
        for sample in samples
    }


def test_nothing_runs_unless_it_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([f"--path.state={tmp_path}"]) == 2
    assert capsys.readouterr().err == (
        "pyrometer-test: --run: name the tests to run, of dcgm, nvbandwidth, nccl, nccl_pair, burn, ib, fio; "
        "nothing runs by default\n"
    )
    assert not (tmp_path / "active.json").exists()


def test_a_test_that_passes_is_kept_and_exported(
    install: Install, run: Any, tmp_path: Path, golden: Callable[[str, str], None]
) -> None:
    install("all_reduce_perf", prints="nccl-h100.txt")
    assert run("--run=nccl") == (0, "OK nccl: nccl_all_reduce 470.7 GB/s\n")
    values = exported(tmp_path)
    assert values["ok", "nccl"] == 1
    assert values["result", "nccl_all_reduce", "GB/s"] == 470.73
    assert values["timestamp_seconds", "nccl"] > 1e9
    install("dcgmi", prints="dcgm-4.5.3-failed.json", status=226)
    assert run("--run=dcgm")[0] == 2
    context = Context(argparse.Namespace(), SystemClock(), tmp_path, tmp_path, tmp_path, tmp_path)
    text = Renderer().text(COLLECTOR.build(context).collect(0)).decode()
    golden(re.sub(r"(timestamp_seconds\{.*\}) .*", r"\1 TIME", text), "golden/metrics.txt")


def test_too_slow_for_this_model_is_a_failure(install: Install, run: Any, tmp_path: Path) -> None:
    install("all_reduce_perf", prints="nccl-one-sided-h200nvl.txt")
    status, out = run("--run=nccl")
    assert status == 2
    assert out.startswith("FAILED nccl: nccl_all_reduce is 68.66 GB/s, at least 297 are expected")
    assert exported(tmp_path)["ok", "nccl"] == 0
    assert run("--run=nccl", "--limit=nccl_all_reduce=60")[0] == 0


@pytest.mark.parametrize("gpus", [1, 2, 4])
def test_fewer_gpus_than_the_least_value_is_of_are_not_too_slow(
    install: Install, run: Any, tmp_path: Path, gpus: int
) -> None:
    install("nvidia-smi", script=SMI.format(gpus="\n".join([ONE] * gpus), pids=tmp_path / "pids"))
    install("all_reduce_perf", prints="nccl-one-sided-h200nvl.txt")
    assert run("--run=nccl")[0] == 0
    assert run("--run=nccl", "--limit=nccl_all_reduce=100")[0] == 2


BUSY = "#!/bin/sh\ncase $1 in --query-gpu*) echo 'NVIDIA H100 80GB HBM3, {}';; esac\n"
NOT_IDLE = "NOT RUN nccl: GPUs are not idle: "


@pytest.mark.parametrize(
    ("program", "does", "status", "line"),
    [
        pytest.param("dcgmi", {"prints": "dcgm-4.5.3-failed.json", "status": 226}, 2,
                     "FAILED dcgm: memory on GPU 3 failed: GPU 3 ECC error", id="a fault, whatever the exit status"),
        pytest.param("gpu_burn", {"prints": "gpu-burn-h100.txt"}, 3,
                     "NOT MEASURED burn: it covers 1 of 8 GPUs. burn 51.4 TFLOP/s",
                     id="the first program that is installed, and fewer GPUs than there are"),
        pytest.param("all_reduce_perf", {"script": "#!/bin/sh\nkill -SEGV $$\n"}, 3,
                     "UNKNOWN nccl: it was killed by SIGSEGV", id="a crash"),
        pytest.param("nvidia-smi", {"script": "#!/bin/sh\nexit 9\n"}, 3,
                     f"{NOT_IDLE}nvidia-smi does not answer: it exited with status 9", id="a driver without an answer"),
        *(pytest.param("nvidia-smi", {"script": BUSY.format(load)}, 3,
                       f"{NOT_IDLE}utilization of GPU 0 is {load or 'missing'}", id=f"a GPU at load {load!r}")
          for load in ("7", "[N/A]", "[Unknown Error]", "")),
    ],
)  # fmt: skip
def test_what_a_program_does_decides_what_is_said_and_the_status(
    install: Install, run: Any, program: str, does: dict[str, Any], *, status: int, line: str
) -> None:
    install("all_reduce_perf", prints="nccl-h100.txt")
    install(program, **does)
    test = line.partition(":")[0].split()[-1]
    assert run(f"--run={test}") == (status, f"{line}\n")


def test_a_tool_that_hangs_is_killed_and_condemns_nobody(
    install: Install, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("all_reduce_perf", script="#!/bin/sh\nsleep 60 & wait\n")
    quick = [tools.Tool(each.name, each.programs, each.words, each.read, lambda _: 0.2) for each in tools.TOOLS]
    monkeypatch.setattr("pyrometer_exporters.commands.test.main.TOOLS", quick)
    assert run("--run=nccl") == (3, "UNKNOWN nccl: no answer in 0 s\n")


def test_of_an_output_of_any_length_the_begin_and_the_end_are_read(install: Install, run: Any) -> None:
    noise = "head -c 30000000 /dev/zero | tr '\\0' 'x' | fold -w 99; echo"
    lines = RECORDED / "nccl-h100.txt"
    install("all_reduce_perf", script=f"#!/bin/sh\nhead -n 8 {lines}\n{noise}\ntail -n +9 {lines}\n")
    assert run("--run=nccl") == (0, "OK nccl: nccl_all_reduce 470.7 GB/s\n")


def test_a_tool_that_is_killed_in_the_middle_has_measured_nothing(
    install: Install, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("nvbandwidth", script=f"#!/bin/sh\nhead -n 19 {RECORDED}/nvbandwidth-0.4-h100.txt\nsleep 60 & wait\n")
    quick = [replace(each, seconds=lambda _: 0.4) for each in tools.TOOLS]
    monkeypatch.setattr("pyrometer_exporters.commands.test.main.TOOLS", quick)
    status, out = run("--run=nvbandwidth")
    assert (status, out.partition(". nvb")[0].rstrip()) == (
        3, "UNKNOWN nvbandwidth: no answer in 0 s: device_to_device_memcpy_read_ce: its output is cut off",
    )  # fmt: skip


def test_a_disk_test_that_hangs_leaves_nothing_on_the_disk(
    install: Install, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    script = '#!/bin/sh\nfor each; do case $each in --directory=*) touch "${each#*=}/pyrometer.0.0";; esac; done\n'
    install("fio", script=f"{script}ls {disk}/* > {tmp_path}/seen\nsleep 60 & wait\n")
    quick = [replace(each, seconds=lambda _: 0.3) for each in tools.TOOLS]
    monkeypatch.setattr("pyrometer_exporters.commands.test.main.TOOLS", quick)
    assert run("--run=fio", f"--directory={disk}") == (3, "UNKNOWN fio: no answer in 0 s\n")
    assert (tmp_path / "seen").read_text() == "pyrometer.0.0\n"
    assert list(disk.iterdir()) == []


def test_a_folder_that_is_not_there_is_no_fault_of_the_disk(install: Install, run: Any) -> None:
    install("fio", prints="fio-3.42.txt")
    status, out = run("--run=fio", "--directory=/nowhere")
    assert status == 3
    assert out.startswith("UNKNOWN fio: /nowhere/pyrometer-test-")
    assert out.endswith(": No such file or directory\n")


def test_an_output_that_cannot_be_read_is_neither_pass_nor_failure(install: Install, run: Any, tmp_path: Path) -> None:
    install("all_reduce_perf", script="#!/bin/sh\necho hello\n")
    assert run("--run=nccl") == (3, "UNKNOWN nccl: its output can't be read: it has no line of results\n")
    assert ("ok", "nccl") not in exported(tmp_path)


def printing(folder: Path, output: str, errors: str = "", end: str = "exit 0") -> str:
    (folder / "output").write_text(output)
    (folder / "errors").write_text(errors)
    return f"#!/bin/sh\ncat {folder}/output\ncat {folder}/errors >&2\n{end}\n"


NVLS = "g1:9:12 [0] NCCL INFO NVLS comm 0x5598478b07c0 headRank 0 nHeads 8 buffSize 1048576\n"
AVAILABLE = "g1:9:12 [0] NCCL INFO NVLS multicast support is available on dev 0 (NVLS_NCHANNELS 16)\n"
FELL_BACK = "g1:9:12 [0] NCCL INFO Failed to bind NVLink SHARP. Proceeding without NVLS support.\n"


@pytest.mark.parametrize(
    ("speed", "log", "algorithm", "answer"),
    [
        (352, NVLS, "", "FAILED"), (352, AVAILABLE, "", "OK"), (352, NVLS + FELL_BACK, "", "OK"),
        (352, "", "", "NOT MEASURED"), (352, NVLS, "RING", "NOT MEASURED"), (290, AVAILABLE, "", "FAILED"),
        (290, "", "", "FAILED"), (430, NVLS, "", "OK"), (430, "", "", "OK"), (330, AVAILABLE, "", "OK"),
    ],
)  # fmt: skip
def test_the_least_all_reduce_depends_on_whether_nccl_used_nvls(  # noqa: PLR0917  as in the table
    install: Install, run: Any, monkeypatch: pytest.MonkeyPatch, speed: int, log: str, algorithm: str, answer: str
) -> None:
    monkeypatch.setenv("NCCL_ALGO", algorithm)
    line = f"8589934592 2147483648 float sum -1 31871 201.1 {speed} 0 31880 201.1 {speed} 0"
    told = f"[ -z '{log}' ] || printf '%s' '{log}' > $NCCL_DEBUG_FILE"
    install("all_reduce_perf", script=f"#!/bin/sh\n{told}\necho '{line}'\necho '# Avg bus bandwidth : {speed}'\n")
    assert run("--run=nccl")[1].startswith(f"{answer} nccl: ")


def test_gpus_of_several_models_are_compared_with_nothing(install: Install, run: Any, tmp_path: Path) -> None:
    output = (
        "Running host_to_device_memcpy_ce.\n           0         1         2         3\n"
        " 0     57.20     57.06     56.68     12.07\n"
    )
    install("nvbandwidth", script=printing(tmp_path, output))
    for models, status in ((["NVIDIA L40S"] * 4, 2), (["NVIDIA L40S"] * 3 + ["Tesla T4"], 0)):
        gpus = "\n".join(f"{model}, 0" for model in models)
        install("nvidia-smi", script=SMI.format(gpus=gpus, pids=tmp_path / "pids"))
        assert run("--run=nvbandwidth")[0] == status


def test_a_failure_stands_until_a_test_measures_again(install: Install, run: Any, tmp_path: Path) -> None:
    install("dcgmi", prints="dcgm-4.5.3-failed.json", status=226)
    assert run("--run=dcgm")[0] == 2
    failed = exported(tmp_path)
    install("dcgmi", script=printing(tmp_path, "", "Error: Unable to connect to host engine.\n", "exit 235"))
    assert run("--run=dcgm")[0] == 3
    values = exported(tmp_path)
    assert values["ok", "dcgm"] == 0
    assert values["timestamp_seconds", "dcgm"] == failed["timestamp_seconds", "dcgm"]
    assert {key[:5] for key in values if key[0] == "reason_info"} == {
        ("reason_info", "dcgm", "failed", "dcgmi", "GPU 3"),
        ("reason_info", "dcgm", "unknown", "dcgmi",
         "it exited with status 235: Error: Unable to connect to host engine."),
    }  # fmt: skip


NDR, EDR, SDR = "400 Gb/sec (4X NDR)", "100 Gb/sec (4X EDR)", "10 Gb/sec (4X SDR)"


@pytest.mark.parametrize(
    ("ports", "status"),
    [
        ([(NDR, "4: ACTIVE")], 2), ([(EDR, "4: ACTIVE")], 0), ([(NDR, "4: ACTIVE"), (SDR, "1: DOWN")], 2),
        ([(NDR, "4: ACTIVE"), (EDR, "4: ACTIVE")], 0),  # perftest does not say which port it used
        ([], 0),
    ],
)  # fmt: skip
def test_a_link_is_compared_with_the_rate_of_its_port(
    install: Install, run: Any, tmp_path: Path, ports: list[tuple[str, str]], status: int
) -> None:
    for number, (rate, state) in enumerate(ports, 1):
        port = tmp_path / f"sys/class/infiniband/mlx5_0/ports/{number}"
        port.mkdir(parents=True)
        (port / "rate").write_text(f"{rate}\n")
        (port / "state").write_text(f"{state}\n")
    table = (
        " Dual-port : OFF\t\tDevice         : mlx5_0\n #bytes #iterations BW peak[Gb/sec] BW average[Gb/sec] MsgRate\n"
    )
    install("ib_write_bw", script=printing(tmp_path, f"{table} 65536      3743700    0.00    97.85    0.186712\n"))
    assert run("--run=ib", "--peer=gpu-002", f"--path.sysfs={tmp_path}/sys")[0] == status
    reasons = [key for key in exported(tmp_path) if key[0] == "reason_info"]
    assert [key[1:6] for key in reasons] == ([("ib", "gpu-002", "failed", "ib_write_bw", "mlx5_0")] if status else [])


def test_gpus_in_use_are_left_alone(install: Install, run: Any, tmp_path: Path) -> None:
    install("all_reduce_perf", prints="nccl-h100.txt")
    (tmp_path / "pids").write_text("4711\n")
    assert run("--run=nccl") == (3, "NOT RUN nccl: GPUs are not idle: in use by process 4711\n")
    assert not (tmp_path / "active.json").exists()


def test_what_is_not_installed_or_no_longer_fits_the_budget_is_not_run(install: Install, run: Any) -> None:
    install("all_reduce_perf", prints="nccl-h100.txt")
    status, out = run("--run=dcgm,nccl", "--budget=30")
    assert status == 3
    assert out.splitlines() == [
        "NOT RUN dcgm: not installed: dcgmi", "NOT RUN nccl: it may take 600 s, and 30 s of --budget are left",
    ]  # fmt: skip


def test_results_of_other_tests_stay(install: Install, run: Any, tmp_path: Path) -> None:
    install("all_reduce_perf", prints="nccl-h100.txt")
    install("dcgmi", prints="dcgm-4.5.3.json")
    run("--run=nccl")
    install("nvidia-smi", script=SMI.format(gpus=ONE, pids=tmp_path / "pids"))
    told = json.loads(run("--run=dcgm", "--json")[1])
    assert [(each["test"], each["state"]) for each in told["tests"]] == [("dcgm", "ok")]
    assert {key for key in exported(tmp_path) if key[0] == "ok"} == {("ok", "nccl"), ("ok", "dcgm")}


def test_a_disk_and_a_link_are_tested_where_they_are_named(install: Install, run: Any) -> None:
    install("fio", prints="fio-3.42.txt")
    install("ib_write_bw", prints="ib-ndr.txt")
    install("nvidia-smi", script="#!/bin/sh\nexit 9\n")
    assert run("--run=fio,ib", "--directory=/tmp", "--peer=gpu-002") == (
        0, "OK fio: fio_write 2.147 GB/s\nOK ib: ib_write_bw 392.3 Gb/s\n",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("flag", "line"),
    [
        ("--run=nope", "--run: unknown test nope; known are dcgm, nvbandwidth, nccl, nccl_pair, burn, ib, fio"),
        ("--run=ib", "--run: ib needs --peer"),
        ("--run=fio", "--run: fio needs --directory"),
        ("--run=nccl_pair --command={test}", "--run: nccl_pair needs --peer"),
        ("--run=nccl_pair --peer=b", "--run: nccl_pair needs --command"),
        ("--run=nccl_pair --peer=b --command={hosts}",
         "--command: it has no {test}, which is replaced by the program and its arguments"),
        ("--run=nccl_pair --peer=b --command={test}",
         "--command: it has no {hosts} and no {slots}, which are replaced by the names of the two nodes"),
        ("--run=nccl_pair --peer=b --command={hosts}'{test}", "--command: no closing quotation"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_and_status_2(flag: str, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(flag.split()) == 2
    assert capsys.readouterr().err == f"pyrometer-test: {line}\n"


def test_no_state_folder_and_a_damaged_file_are_no_samples(tmp_path: Path) -> None:
    assert exported(tmp_path) == {}
    (tmp_path / "active.json").write_text("{")
    assert exported(tmp_path) == {}


def test_a_result_is_readable_for_the_exporter_whatever_the_umask(install: Install, run: Any, tmp_path: Path) -> None:
    install("all_reduce_perf", prints="nccl-h100.txt")
    before = os.umask(0o077)
    try:
        run("--run=nccl")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "active.json").stat().st_mode) == 0o644


def test_a_file_that_may_not_be_read_is_down_and_stays(
    install: Install, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("all_reduce_perf", prints="nccl-h100.txt")
    run("--run=nccl")
    context = Context(argparse.Namespace(), SystemClock(), tmp_path, tmp_path, tmp_path, tmp_path)
    collector = COLLECTOR.build(context)
    with monkeypatch.context() as patch:
        patch.setattr("pyrometer_kit.statefile.read_regular", refused)
        (down,) = collector.collect(0)
        assert isinstance(down, Down)
        assert (down.part, down.reason) == ("file", "eacces")
        assert run("--run=nccl")[0] == 2  # the results of other tests would be lost
    (tmp_path / "active.json").chmod(0o640)
    assert len(list(collector.collect(0))) == 3


def refused(*_: object, **__: object) -> str:
    raise PermissionError(errno.EACCES, "Permission denied")
