"""The field report of healthy, sick and absent GPUs: complete, redacted, and readable on its own."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from itertools import pairwise
from pathlib import Path

import pytest

from pyrometer_exporters.commands.doctor import field_report
from pyrometer_exporters.commands.doctor import main as doctor
from pyrometer_simulator.nvml import SimulatedGpus, installed, recording


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyrometer_exporters.commands.doctor.examine.PAUSE_SECONDS", 0.15)
    monkeypatch.setattr("pyrometer_kit.logs.set_up", lambda *_: None)  # it is for a whole process
    monkeypatch.setattr(field_report, "_LATENCY_SECONDS", 0.5)
    monkeypatch.setattr(field_report, "_BETWEEN_PAGES_SECONDS", 0.3)


class Node:
    """A node's files, and the report about it."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capsys = folder, capsys
        self.file = folder / "report.tar.gz"
        (folder / "proc/1").mkdir(parents=True)
        (folder / "proc/1/cgroup").write_text("0::/init.scope\n")
        (folder / "kmsg").touch()

    def gpus(self, count: int = 2) -> SimulatedGpus:
        made = SimulatedGpus(self.folder / "gpus", count=count)
        made.write_pci_tree(self.folder / "sys")
        return made

    def paths(self) -> list[str]:
        names = {"sysfs": "sys", "procfs": "proc", "rings": "rings", "state": "state", "kmsg": "kmsg"}
        return [f"--path.{name}={self.folder}/{where}" for name, where in names.items()]

    def report(self, *flags: str) -> int:
        with installed(self.folder / "gpus"):
            return doctor.main([*self.paths(), f"--field-report={self.file}", *flags])

    def files(self) -> dict[str, str]:
        with tarfile.open(self.file) as archive:
            return {
                member.name.partition("/")[2]: archive.extractfile(member).read().decode()  # type: ignore[union-attr]
                for member in archive
            }

    def said(self) -> str:
        return self._capsys.readouterr().out

    def summary(self) -> str:
        self.said()
        assert doctor.main(["--read", str(self.file)]) == 0
        return self.said()


@pytest.fixture
def node(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Node:
    return Node(tmp_path, capsys)


def test_a_report_has_every_part_and_is_small(node: Node) -> None:
    node.gpus()
    assert node.report() == 0
    files = node.files()
    assert next(iter(files)) == "summary.md"
    assert set(files) == {
        *("summary.md", "report.json", "metrics-1.txt", "metrics-2.txt", "batches-1.txt", "batches-2.txt"),
        *("environment.txt", "exporter.log", "latency.csv", "tape.json"),
    }
    assert "DCGM_FI_DEV_SM_CLOCK" in files["metrics-2.txt"]
    assert "nvmlDeviceGetClockInfo," in files["latency.csv"]
    assert "not available: collector train" in files["exporter.log"]
    assert "Python: " in files["environment.txt"]
    assert node.file.stat().st_size < field_report.MAX_BYTES


def test_nothing_that_identifies_the_site_is_in_it_unless_wanted(node: Node) -> None:
    gpus = node.gpus()
    gpus[0].set(processes=[[4711, 100]])
    secrets = [gpus[0].uuid, gpus[1].uuid]
    node.report()
    content = "\n".join(node.files().values())
    for secret in secrets:
        assert secret not in content
        assert secret.encode().hex() not in content
    node.report("--no-redact")
    content = "\n".join(node.files().values())
    assert secrets[0] in content
    assert secrets[0].encode().hex() in content


def test_it_is_its_owners_alone_from_the_first_moment_and_follows_no_link(node: Node, tmp_path: Path) -> None:
    node.gpus()
    other = tmp_path / "of-somebody"
    other.write_text("theirs")
    node.file.symlink_to(other)
    before = os.umask(0)
    try:
        node.report()
    finally:
        os.umask(before)
    assert not node.file.is_symlink()
    assert node.file.stat().st_mode & 0o7777 == 0o600
    assert other.read_text() == "theirs"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".report")] == []


@pytest.mark.parametrize(
    ("answers", "is_written"), [(["y"], True), (["s", "yes"], True), (["n"], False), ([""], False)]
)
def test_a_person_sees_what_is_in_it_before_it_is_written(
    node: Node, monkeypatch: pytest.MonkeyPatch, answers: list[str], *, is_written: bool
) -> None:
    node.gpus()
    asked = iter(answers)

    def ask(_question: str) -> str:
        assert not node.file.exists()
        return next(asked)

    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", ask)
    assert node.report() == int(not is_written)
    said = node.said()
    assert node.file.exists() == is_written
    assert "metrics-1.txt" in said
    assert "  modelName: NVIDIA H100 80GB HBM3" in said
    assert ("# HELP pyrometer_gpu_up" in said) == ("s" in answers)
    assert next(asked, None) is None
    if is_written:
        monkeypatch.setattr("builtins.input", lambda _question: pytest.fail("asked"))
        assert node.report("--yes") == 0


def test_the_tape_in_a_report_plays(node: Node) -> None:
    node.gpus()[1].lack("power_limit")
    node.report()
    node.said()
    paths = [path for path in node.paths() if "sysfs" not in path]
    assert recording.main(["play", str(node.file), "--", *paths, f"--path.sysfs={node.folder}/sys"]) == 0
    played = node.said()
    assert "DCGM_FI_DEV_ENFORCED_POWER_LIMIT" in played
    assert played.count("NVIDIA H100") == 2


def test_a_stranger_finds_every_fault_of_a_sick_node_and_its_next_step(tmp_path: Path) -> None:
    """A lost GPU, one that hangs, rows to be remapped, no kernel log; what is read is the archive's summary alone.

    In a process of its own, as a call that never returns must not keep it from ending.
    """
    sick = "gpus[1].lose(); gpus[2].hang(); gpus[3].set(remapped={'pending': 1})"
    summary = field_report.summary_of(_reported_apart(tmp_path, count=4, sick=sick))
    head, top = summary.partition("## Not in this report")[0].split("## Faults and problems")
    assert "Faults: 3; metrics that alerts need and lack: 1." in head
    assert "4 on the PCI bus, 2 of them are readable; driver 590.48.01." in head
    found = [(line, after) for line, after in pairwise(top.splitlines()) if line.startswith("- **")]
    expected = (
        ("GPU 1 (0000:2a:00.0) can't be read: gpu_is_lost", "drain the node and reboot it", "GpuLost"),
        ("GPU 2 (0000:3a:00.0) can't be read: deadline", "look for Xids 119 and 120", "GpuLost"),
        (
            "GPU 3 (0000:5d:00.0): memory rows are waiting for a reset",
            "nvidia-smi --gpu-reset -i 0000:5d:00.0",
            "GpuEccUncorrected",
        ),
        ("the kernel's log can't be read (enoent)", "mount /dev/kmsg", ""),
    )
    assert len(found) == len(expected)
    for (what, after), (said, step, runbook) in zip(found, expected, strict=True):
        assert said in what
        assert after.startswith("  Next: ")
        assert step in after
        assert after.endswith(f"Runbook: {runbook}." if runbook else ".")
    assert summary.count("has not returned for") == 1
    assert "(0000:3a:00.0)` has not returned for" in summary


def _reported_apart(folder: Path, count: int, sick: str) -> Path:
    """Make a report in a process of its own; return the archive."""
    program = (
        "import sys; from pathlib import Path; from pyrometer_simulator.nvml import SimulatedGpus, installed;"
        "from pyrometer_exporters.commands.doctor import field_report, main; f = Path(sys.argv[1]);"
        f"field_report._BETWEEN_PAGES_SECONDS = 0.3; gpus = SimulatedGpus(f / 'gpus', count={count});"
        f"gpus.write_pci_tree(f / 'sys'); {sick};\n"
        "with installed(f / 'gpus'): status = main.main(sys.argv[2:]); sys.stdout.flush()"
    )
    file = folder / "r.tar.gz"
    names = ("sysfs=sys", "procfs=proc", "rings=rings", "state=state", "kmsg=kmsg")
    paths = [f"--path.{name}={folder}/{where}" for name, where in (text.split("=") for text in names)]
    subprocess.run(
        [sys.executable, "-c", program, str(folder), *paths, f"--field-report={file}"],
        check=True, timeout=field_report.TOTAL_SECONDS, capture_output=True,
    )  # fmt: skip
    assert file.stat().st_size < field_report.MAX_BYTES
    return file


def test_a_gpu_that_hangs_costs_its_own_part_alone(tmp_path: Path) -> None:
    file = _reported_apart(tmp_path, count=2, sick="gpus[1].hang()")
    summary = field_report.summary_of(file)
    assert "GPU 1 (0000:" in summary
    assert "deadline" in summary
    assert "has not returned for" in summary
    with tarfile.open(file) as archive:
        page = archive.extractfile("pyrometer-field-report/metrics-2.txt")
        assert page is not None
        assert b'DCGM_FI_DEV_SM_CLOCK{gpu="0"' in page.read()


def test_without_a_driver_there_is_a_report_without_a_tape(node: Node) -> None:
    gpus = node.gpus()
    gpus.fail_init(12)
    node.report()
    assert "the NVIDIA driver can't be used: no_driver" in node.summary()


def test_a_file_that_cannot_be_written_is_one_line_before_any_work(
    node: Node, capsys: pytest.CaptureFixture[str]
) -> None:
    node.gpus()
    node.file = node.folder / "no" / "such.tar.gz"
    assert node.report() == 2
    assert capsys.readouterr().err.strip().endswith("such.tar.gz: No such file or directory")


def _archive(name: str, content: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(None, id="no file"),
        pytest.param(b"", id="empty"),
        pytest.param(b"hello", id="text"),
        pytest.param(b"\x1f\x8b\x08", id="torn after gzip's first bytes"),
        pytest.param(_archive("other.txt", b"x"), id="another archive"),
        pytest.param(_archive("a/summary.md", b"x")[:60], id="torn"),
    ],
)
def test_what_is_no_report_is_one_line_and_2(
    content: bytes | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "r.tar.gz"
    if content is not None:
        file.write_bytes(content)
    assert doctor.main(["--read", str(file)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert str(file) in line
