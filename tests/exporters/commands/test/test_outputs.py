"""Published outputs of test tools, version by version: our answer, and the part that it names.

docs/active-tests.md shows the same rows: PYROMETER_UPDATE_GOLDEN=1 writes them there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from pyrometer_exporters.commands.test.main import main
from pyrometer_exporters.commands.test.reading import clean
from pyrometer_exporters.commands.test.run import Ran, tried
from pyrometer_exporters.commands.test.tools import TOOLS, Asked
from pyrometer_exporters.node.active.kept import Tried

RECORDED = Path(__file__).parent / "recorded"
PAGE = Path(__file__).parents[4] / "docs/active-tests.md"
BEGIN, END = "<!-- begin generated -->\n", "<!-- end generated -->\n"
STATES = {"OK": "ok", "FAILED": "failed", "NOT MEASURED": "not_measured", "UNKNOWN": "unknown"}
STATUS = {"OK": 0, "FAILED": 2, "NOT MEASURED": 3, "UNKNOWN": 3}


class Row(NamedTuple):
    """An output in ``recorded``: the program that printed it, its version, its source, and the right answer."""

    program: str
    file: str
    version: str
    says: str
    source: str
    answer: str
    part: str = ""
    gpus: str = "8 NVIDIA H100 80GB HBM3"
    status: int = 0
    sysfs: Mapping[str, str] = {}
    reason: str = ""


def issue(repository: str, number: int) -> str:
    return f"[{repository} {number}](https://github.com/{repository}/issues/{number})"


DIAG = "dcgmi/Diag.cpp"  # written by hand in the format of this source
FRYER = "huggingface/gpu-fryer, src/logging.rs"
NVBANDWIDTH = "NVIDIA/nvbandwidth"
PERFTEST = "linux-rdma/perftest"
SUPERBENCH = "microsoft/superbenchmark, tests/data"
FORMAT = ", numbers by hand"
PORT = "class/infiniband/{}/ports/1/rate"
DEVICE = "class/infiniband/{}/device/"
NDR = "400 Gb/sec (4X NDR)\n"
GEN4 = {f"{DEVICE.format('mlx5_0')}{name}": text for name, text in (
    ("current_link_speed", "16.0 GT/s PCIe\n"), ("current_link_width", "8\n"))}  # fmt: skip
A100 = "8 NVIDIA A100-SXM4-40GB"

ROWS = (
    Row("dcgmi", "dcgm-2-table.txt", "2, table", "all passed", "facebookresearch/gcm, check_dcgmi.py", "OK"),
    Row("dcgmi", "dcgm-2.1-warning.json", "2.1, JSON", "`Bandwidth of GPU 1 ... did not exceed minimum`", DIAG,
        "FAILED", "GPU 1", gpus="2 Tesla V100", status=226),
    Row("dcgmi", "dcgm-3-row-remap.txt", "3, table", "`Error`: row remappings are pending",
        "stas00/ml-engineering, debug.md", "FAILED", "GPU 3"),
    Row("dcgmi", "dcgm-3-thermal.txt", "3, table", "`Fail - GPU: 0`: thermal violations",
        "stas00/ml-engineering, debug.md", "FAILED", "GPU 0"),
    Row("dcgmi", "dcgm-3.3.1.json", "3.3.1, JSON", "`ECC DBE detected`", DIAG, "FAILED", "GPU 3"),
    Row("dcgmi", "dcgm-3.3.1-busy.txt", "3.3.1, table", "`Fail - GPU: 0`: the device is busy",
        issue("NVIDIA/go-dcgm", 52), "UNKNOWN", gpus="2 Tesla T4", status=226),
    Row("dcgmi", "dcgm-3.3-skipped.json", "3.3, JSON", "tests of hardware `Skip`", issue("NVIDIA/DCGM", 139),
        "NOT MEASURED", gpus="1 NVIDIA T400 4GB"),
    Row("dcgmi", "dcgm-3.3.9-skipped.txt", "3.3.9, table", "tests of hardware `Skip - All`", "gnosia93/slurm-on-aws",
        "NOT MEASURED", gpus="2 NVIDIA RTX PRO 6000"),
    Row("dcgmi", "dcgm-3.3.9-power.txt", "3.3.9, table", "`Fail - GPU: 1`: 224.1 of 224.2 W",
        "SageMaker Training Jobs Cluster Health Checks, README", "FAILED", "GPU 1", gpus="4 NVIDIA A10G", status=226),
    Row("dcgmi", "dcgm-4.4.2-table.txt", "4.4.2, table", "all passed", "NVIDIA/DCGM, issues", "OK",
        gpus="1 NVIDIA A10G"),
    Row("dcgmi", "dcgm-4.4-software.txt", "4.4, table", "level 2 without its plugins: only `software`", DIAG,
        "NOT MEASURED", gpus="1 NVIDIA A10G"),
    Row("dcgmi", "dcgm-4.4.2-skipped.txt", "4.4.2, table", "tests of hardware `Skip`", DIAG, "NOT MEASURED",
        gpus="1 NVIDIA GB10"),
    Row("dcgmi", "dcgm-4.5.0-persistence.json", "4.5, JSON", "`Persistence mode for GPU 0 is disabled`",
        issue("NVIDIA/NVSentinel", 772), "UNKNOWN", gpus="2 NVIDIA H100 80GB HBM3", status=226),
    Row("dcgmi", "dcgm-4.5.3.json", "4.5.3, JSON", "all passed", DIAG, "OK", gpus="1 NVIDIA H100 80GB HBM3"),
    Row("dcgmi", "dcgm-4.5.3-failed.json", "4.5.3, JSON", "`GPU 3 ECC error`", DIAG, "FAILED", "GPU 3", status=226),
    Row("dcgmi", "dcgm-4.6-table-failed.txt", "4.6, table", "`GPU1: Fail`: faulty memory elements", DIAG, "FAILED",
        "GPU 1", gpus="4 NVIDIA H100 80GB HBM3", status=226),
    Row("dcgmi", "dcgm-4.6-summary.json", "4.6, JSON", "`fatal NvSwitch SXID`, of no GPU", DIAG, "FAILED",
        gpus="2 NVIDIA H100 80GB HBM3", status=226),
    Row("dcgmi", "dcgm-4-paused.json", "4, JSON", "`runtime_error`", DIAG, "UNKNOWN", status=242,
        reason="it exited with status 242: Error: Diagnostic could not be run while DCGM is paused."),
    Row("dcgmi", "dcgm-4-no-host-engine.txt", "2 to 4", "no host engine", DIAG, "UNKNOWN", status=235,
        reason="it exited with status 235: Error: unable to establish a connection to the specified host: localhost"),
    Row("all_reduce_perf", "nccl-2.10-a100.txt", "2.10", "235 GB/s, values `N/A`", SUPERBENCH, "OK", gpus=A100),
    Row("all_reduce_perf", "nccl-2.13-one-gpu.txt", "2.13", "one GPU: 0 GB/s", issue("NVIDIA/nccl-tests", 249) + FORMAT,
        "NOT MEASURED", gpus="1 NVIDIA A10G"),
    Row("all_reduce_perf", "nccl-h100.txt", "2.13", "471 GB/s", "NVIDIA/nccl-tests", "OK"),
    Row("all_reduce_perf", "nccl-2.16-gb200.txt", "2.16", "72 GPUs on a node of four",
        "[coreweave/nccl-tests 43](https://github.com/coreweave/nccl-tests/pull/43)", "OK", gpus="4 NVIDIA GB200"),
    Row("all_reduce_perf", "nccl-2.17.6-a100.txt", "2.17.6", "233 GB/s", "oracle-japan/ocitutorials", "OK", gpus=A100),
    Row("all_reduce_perf", "nccl-2.18-rtx5090-mpi.txt", "2.18, mpirun", "no size above 128 MiB", "NVIDIA/nccl-tests",
        "NOT MEASURED", gpus="2 NVIDIA GeForce RTX 5090"),
    Row("all_reduce_perf", "nccl-2.19-b200-cut.txt", "2.19.6", "no line of results", issue("NVIDIA/nccl-tests", 389),
        "UNKNOWN", gpus="8 NVIDIA B200"),
    Row("all_reduce_perf", "nccl-2.19-wrong.txt", "2.19.6", "`2000000 FAILED`", "src/util.cu" + FORMAT, "FAILED",
        gpus=A100, status=1),
    Row("all_reduce_perf", "nccl-2.19-per-iteration.txt", "2.19.6", "472 GB/s, with times of iterations",
        "src/util.cu" + FORMAT, "OK"),
    Row("all_reduce_perf", "nccl-2.20-gb10.txt", "2.20", "ends before its summary",
        "[NVIDIA/dgx-spark-playbooks 103](https://github.com/NVIDIA/dgx-spark-playbooks/pull/103)", "NOT MEASURED",
        gpus="1 NVIDIA GB10"),
    Row("all_reduce_perf", "nccl-2.19-seven-gpus.txt", "2.19.6", "`8 requested but only 7 were found`", "src/util.cu",
        "UNKNOWN", status=5,
        reason="it exited with status 5: Invalid number of GPUs: 8 requested but only 7 were found."),
    Row("all_reduce_perf", "nccl-ecc.txt", "any", "`uncorrectable ECC error encountered`", "cuda.h, 214", "FAILED",
        "GPU 5", status=2),
    Row("nvbandwidth", "nvbandwidth-0.1-a100.txt", "0.1", "276 GB/s, 0 to itself", f"{NVBANDWIDTH}, README", "OK",
        gpus="8 NVIDIA A100-SXM4-80GB"),
    Row("nvbandwidth", "nvbandwidth-0.2-rtx4090.txt", "0.2", "no peers: `Waiving`", issue(NVBANDWIDTH, 15), "OK",
        gpus="8 NVIDIA GeForce RTX 4090"),
    Row("nvbandwidth", "nvbandwidth-0.4-h100.txt", "0.4", "370 GB/s", "AlizeeChen11/azurehpc-health-checks", "OK"),
    Row("nvbandwidth", "nvbandwidth-0.4-slow.txt", "0.4", "one GPU of four at 14 of 57 GB/s", issue(NVBANDWIDTH, 6),
        "FAILED", "GPU 0", gpus="4 NVIDIA H100 PCIe",
        reason="nvbandwidth_host_to_device_memcpy_ce of GPU 0 is 14.2 GB/s, of most others 56.87"),
    Row("nvbandwidth", "nvbandwidth-0.4-l40s-aborted.txt", "0.4", "`Invalid value when checking the pattern`",
        issue(NVBANDWIDTH, 19), "UNKNOWN", gpus="8 NVIDIA L40S", status=134),
    Row("nvbandwidth", "nvbandwidth-0.6-latency.txt", "0.6", "latencies in ns beside GB/s", f"{NVBANDWIDTH}{FORMAT}",
        "OK", gpus="4 NVIDIA H100 80GB HBM3"),
    Row("nvbandwidth", "nvbandwidth-0.7-a100.txt", "0.7", "276 GB/s", f"{NVBANDWIDTH}, README", "OK",
        gpus="8 NVIDIA A100-SXM4-80GB"),
    Row("nvbandwidth", "nvbandwidth-0.7-a100-assert.txt", "0.7", "`ASSERT in expression`", issue(NVBANDWIDTH, 34),
        "UNKNOWN", gpus="8 NVIDIA A100-SXM4-80GB", status=1),
    Row("nvbandwidth", "nvbandwidth-0.8-a6000.txt", "0.8", "two groups of three, 26 and 22 GB/s",
        issue(NVBANDWIDTH, 50), "OK", gpus="6 NVIDIA RTX A6000"),
    Row("nvbandwidth", "nvbandwidth-0.8-h100.json", "0.8, JSON", "26 and 276 GB/s", f"{NVBANDWIDTH}, README", "OK"),
    Row("nvbandwidth", "nvbandwidth-0.10-gb10.txt", "0.10", "24.8 GB/s", f"{NVBANDWIDTH}, output", "OK",
        gpus="1 NVIDIA GB10"),
    Row("gpu-fryer", "gpu-fryer-1.0-zero.txt", "1.0, 1.1", "`0 Gflops/s`, `All GPUs seem healthy`",
        issue("huggingface/gpu-fryer", 10), "NOT MEASURED"),
    Row("gpu-fryer", "gpu-fryer-1.0-healthy.txt", "1.0", "51 TFLOP/s each", "huggingface/gpu-fryer, README", "OK"),
    Row("gpu-fryer", "gpu-fryer-1.0-low.txt", "1.0 to 1.2", "`GPU 3 - GPU is not performing as expected`",
        "huggingface/gpu-fryer, src/main.rs", "FAILED", "GPU 3", status=1,
        reason="GPU 3: GPU is not performing as expected; burn of GPU 3 is 401 TFLOP/s, of most others 758"),
    Row("gpu-fryer", "gpu-fryer-1.1-memory.txt", "1.0 to 1.2", "`Unable to burn GPU #3: ... out of memory`",
        "huggingface/gpu-fryer, src/main.rs", "UNKNOWN", status=1),
    Row("gpu-fryer", "gpu-fryer-1.1-nvml.txt", "1.0 to 1.2", "`Unable to initialize NVML`",
        "huggingface/gpu-fryer, src/main.rs", "UNKNOWN", status=101,
        reason="it exited with status 101: thread 'main' panicked at src/main.rs:304: Unable to initialize NVML. Check "
        "if the NVIDIA driver is there"),
    Row("gpu-fryer", "gpu-fryer-1.1.0-b200.txt", "1.1", "`Thermal SW: true`", "huggingface/gpu-fryer, issues", "FAILED",
        "GPU 1", gpus="2 NVIDIA B200"),
    Row("gpu-fryer", "gpu-fryer-1.2-low.jsonl", "1.2, `--json`", "`LowFlops`", FRYER, "FAILED", "GPU 2",
        gpus="4 NVIDIA H100 80GB HBM3", status=1),
    Row("gpu-fryer", "gpu-fryer-1.2-healthy.jsonl", "1.2, `--json`", "no problems", FRYER, "OK",
        gpus="4 NVIDIA H100 80GB HBM3"),
    Row("gpu_burn", "gpu-burn-a100.txt", "2022", "17 TFLOP/s each", SUPERBENCH, "OK", gpus="8 NVIDIA A100-SXM4-80GB"),
    Row("gpu_burn", "gpu-burn-h100.txt", "", "one of eight GPUs", "wilicc/gpu-burn", "NOT MEASURED"),
    Row("gpu_burn", "gpu-burn-faulty.txt", "", "`FAULTY`", "wilicc/gpu-burn", "FAILED", "GPU 0",
        gpus="1 NVIDIA GeForce RTX 3090"),
    Row("gpu_burn", "gpu-burn-ok-zero.txt", "", "`OK` with 0 Gflop/s", issue("wilicc/gpu-burn", 123), "UNKNOWN",
        gpus="1 Tesla T4"),
    Row("gpu_burn", "gpu-burn-ok-nothing.txt", "", "`OK` without a speed", issue("wilicc/gpu-burn", 124),
        "NOT MEASURED", gpus="1 Tesla T4", reason="it gives no speed of GPU 0"),
    Row("gpu_burn", "gpu-burn-died.txt", "", "`FAULTY`, `errors: 1579 (DIED!)`", issue("wilicc/gpu-burn", 69),
        "UNKNOWN", gpus="1 Tesla T4"),
    Row("ib_write_bw", "ib-ndr.txt", "6", "392 of 400 Gb/s", PERFTEST, "OK", sysfs={PORT.format("mlx5_0"): NDR}),
    Row("ib_write_bw", "ib-write-no-peer.txt", "4.4 to 26", "no server on the peer", "src/perftest_communication.c",
        "UNKNOWN", status=1, reason="it exited with status 1: Couldn't connect to gpu-002:18515"),
    Row("ib_write_bw", "ib-200.txt", "5, writes", "no message above 512 bytes", PERFTEST, "NOT MEASURED"),
    Row("ib_write_bw", "ib-write-mb-loopback.txt", "4.5", "24057 MB/s of 200 Gb/s", SUPERBENCH, "OK",
        sysfs={PORT.format("ib0"): "200 Gb/sec (4X HDR)\n"}),
    Row("ib_write_bw", "ib-write-5.8-mb.txt", "5.8", "6923 MB/s of 400 Gb/s", issue(PERFTEST, 234) + FORMAT, "FAILED",
        "mlx5_0", sysfs={PORT.format("mlx5_0"): NDR}),
    Row("ib_write_bw", "ib-write-5.8-mb.txt", "5.8", "6923 MB/s, in a slot of PCIe 4 x4", issue(PERFTEST, 234) + FORMAT,
        "OK", sysfs={PORT.format("mlx5_0"): NDR, **GEN4, DEVICE.format("mlx5_0") + "current_link_width": "4\n"}),
    Row("ib_write_bw", "ib-write-6.2-cpu.txt", "6.2", "messages of 8 bytes", issue(PERFTEST, 273), "NOT MEASURED",
        sysfs={PORT.format("ib0"): NDR}),
    Row("ib_write_bw", "ib-send-5.60-negative.txt", "5.60, sends", "a negative average", issue(PERFTEST, 82) + FORMAT,
        "UNKNOWN"),
    Row("ib_write_bw", "ib-read-26.txt", "26, reads", "46297 MiB/s of 400 Gb/s", PERFTEST + FORMAT, "OK",
        sysfs={PORT.format("mlx5_4"): NDR}),
    Row("ib_write_bw", "ib-write-lat.txt", "6, latencies", "`t_avg[usec]`", PERFTEST + FORMAT, "UNKNOWN"),
    Row("fio", "fio-2.json", "2", "`bw` in KiB/s", "axboe/fio", "OK"),
    Row("fio", "fio-3.42.txt", "3.42", "2.1 GB/s", "axboe/fio", "OK"),
)  # fmt: skip
TESTS = {"dcgmi": "dcgm", "all_reduce_perf": "nccl", "nvbandwidth": "nvbandwidth", "gpu-fryer": "burn",
         "gpu_burn": "burn", "ib_write_bw": "ib", "fio": "fio"}  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.file} {row.says}")
def test_a_published_output_has_its_answer_and_its_part(
    row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    number, _, model = row.gpus.partition(" ")
    gpus = "\n".join([f"{model}, 0"] * int(number))
    programs = {"nvidia-smi": f"case $1 in --query-gpu*) echo '{gpus}';; esac",
                row.program: f"cat {RECORDED / row.file}\nexit {row.status}"}  # fmt: skip
    (tmp_path / "bin").mkdir()
    for name, script in programs.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    for name, text in row.sysfs.items():
        (tmp_path / "sys" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "sys" / name).write_text(text)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.delenv("NCCL_ALGO", raising=False)
    test = TESTS[row.program]
    status = main([f"--run={test}", "--json", f"--path.state={tmp_path}", f"--path.sysfs={tmp_path}/sys",
                   "--peer=gpu-002", f"--directory={tmp_path}"])  # fmt: skip
    (told,) = json.loads(capsys.readouterr().out)["tests"]
    assert (told["state"], told["part"]) == (STATES[row.answer], row.part), told["reason"]
    assert told["reason"] == row.reason or (not row.reason and bool(told["reason"]) == (row.answer != "OK"))
    assert status == STATUS[row.answer]


def each_line(before: str, after: str = "\n") -> Callable[[str], str]:
    return lambda text: "".join(f"{before}{line}{after}" for line in text.splitlines())


LIKE = {
    "mpirun --tag-output": each_line("[1,0]<stdout>:"),
    "prterun": each_line("[prterun-gpu-1-77@1,0]<stdout>: "),
    "srun --label": each_line("  0: "),
    "Hydra": each_line("[0] "),
    "torchrun": each_line("[default0]:"),
    "kubectl logs --timestamps": each_line("2026-11-29T09:00:00.123456789Z "),
    "kubectl logs --prefix": each_line("[pod/nccl-test-0/main] "),
    "containerd": each_line("2026-11-29T09:00:00.123456789+01:00 stdout F "),
    "a launcher in a pod": each_line("2026-11-29T09:00:00Z [1,3]<stdout>: "),
    "journald": each_line("Nov 29 09:00:00 gpu-001 run[123]: "),
    "colours": each_line("\x1b[0;1;32m", "\x1b[0m\x1b[K\n"),
    "CRLF": each_line("", "\r\n"),
    "two runs": lambda text: f"{text}\n{text}",
    "ssh": lambda text: (
        f"Warning: Permanently added 'node_1.rack-7' (ED25519) to the list of known hosts.\n\n{text}\n\n"
    ),
}
NAMED = {"pdsh": each_line("node_1.rack-7: "), "docker compose": each_line("test-1  | ")}  # before three lines or more


@pytest.fixture
def answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Row, str], Tried]:
    """Judge an output without a program that prints it."""

    def answer(row: Row, text: str) -> Tried:
        monkeypatch.setattr("pyrometer_exporters.commands.test.run.run",
                            lambda *_: Ran(row.status, clean(text), ""))  # fmt: skip
        monkeypatch.delenv("NCCL_ALGO", raising=False)
        for name, content in row.sysfs.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(content)
        tool = next(tool for tool in TOOLS if tool.name == TESTS[row.program])
        number, _, model = row.gpus.partition(" ")
        asked = Asked(int(number) if tool.gpus else 0, 2, 60, "gpu-002", "", "/data")
        return tried(tool, row.program, asked, models=[model] * int(number), limits={}, seconds=60.0, sysfs=tmp_path,
                     wall=lambda: 0.0)  # fmt: skip

    return answer


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.file} {row.says}")
def test_an_answer_is_the_same_however_the_output_arrived(row: Row, answered: Callable[[Row, str], Tried]) -> None:
    text = (RECORDED / row.file).read_text(encoding="utf-8")
    ways = {**LIKE, **(NAMED if len(text.splitlines()) > 2 else {})}
    answers = {way: answered(row, changed(text)) for way, changed in ways.items()}
    assert {way: (each.state, each.part) for way, each in answers.items()} == dict.fromkeys(
        ways, (STATES[row.answer], row.part)
    )


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.file} {row.says}")
def test_an_output_that_was_cut_or_has_other_numbers_accuses_nobody_new(
    row: Row, answered: Callable[[Row, str], Tried]
) -> None:
    text = (RECORDED / row.file).read_text(encoding="utf-8")
    whole = answered(row, text)
    commas = re.sub(r"(?<=\d)\.(?=\d)", ",", text)
    broken = [text[:at] for at in range(1, len(text), max(1, len(text) // 9))] + [commas]
    numbers = list(re.finditer(r"(?<![\w.])\d+\.\d+(?![\w.])", text))[-6:]
    broken += [f"{text[: each.start()]}{value}{text[each.end() :]}" for each in numbers for value in ("nan", "-inf")]
    for damaged in broken:
        answer = answered(row, damaged)
        assert answer.state != "failed" or (whole.state == "failed" and answer.part in {"", whole.part}), damaged
        assert answer.state != "ok" or (whole.state == "ok" and answer.results == whole.results), damaged


def test_the_page_shows_these_rows(golden: Callable[[str, str], None]) -> None:
    lines = ["| program, version | output | answer | part | source |\n", "|---|---|---|---|---|\n"]
    for row in ROWS:
        program = f"`{row.program}` {row.version}".strip()
        lines.append(f"| {program} | {row.says} | {row.answer} | {row.part} | {row.source} |\n")
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    text = f"{before}{BEGIN}{''.join(lines)}{END}{rest.partition(END)[2]}"
    golden(text, "../../../../docs/active-tests.md")


def test_each_recorded_output_is_in_a_row_or_in_the_tests_of_two_nodes() -> None:
    files = {path.name for path in RECORDED.iterdir()} - {"README.md"}
    assert {name for name in files if "pair" not in name and "one-sided" not in name} == {row.file for row in ROWS}
