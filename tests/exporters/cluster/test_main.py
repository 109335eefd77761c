"""The cluster exporter as operators run it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tools.metrics_page import OWN_FAMILIES

from pyrometer_exporters.cluster.main import CLUSTER_EXPORTER, main
from pyrometer_exporters.framework.collector import discover
from pyrometer_kit.http_client import get
from pyrometer_simulator.slurm import FakeSlurm, SlurmJob
from pyrometer_simulator.ufm import HostPort, SwitchPort, UfmLog


class Process:
    def __init__(self, *flags: str) -> None:
        command = [sys.executable, "-m", "pyrometer_exporters.cluster.main", "--web.listen-address=127.0.0.1:0", *flags]
        self.popen = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.popen.stderr is not None
        lines = iter(self.popen.stderr)
        self.port = next(found[1] for line in lines if (found := re.search(r"listening on 127\.0\.0\.1:(\d+)", line)))

    def get(self, path: str) -> str:
        return get(f"http://127.0.0.1:{self.port}{path}").decode()

    def terminate(self) -> int:
        self.popen.send_signal(signal.SIGTERM)
        self.popen.communicate(timeout=20)
        return self.popen.returncode

    def close(self) -> None:
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.communicate()


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    """An exporter over a Slurm and a UFM log; no Prometheus answers."""
    slurm = FakeSlurm(tmp_path / "bin")
    slurm.jobs = [SlurmJob(4711, "llama-8b")]
    slurm.publish()
    log = UfmLog(tmp_path / "log/event.log")
    log.link_up(SwitchPort("leaf-12", 17), HostPort("gpu-174", "mlx5_5"), "MT1")
    made = Process(
        f"--path.state={tmp_path / 'state'}", "--prometheus.url=http://127.0.0.1:9", "--collector.slurm.run=llama-8b",
        f"--collector.slurm.squeue={slurm.squeue}", f"--collector.slurm.sinfo={slurm.sinfo}",
        f"--collector.ufm.event-log={log.path}",
    )  # fmt: skip
    yield made
    made.close()


def test_it_serves_what_there_is_says_what_there_is_not_and_ends_when_told(process: Process) -> None:
    samples = [s for family in text_string_to_metric_families(process.get("/metrics")) for s in family.samples]
    values = {(s.name, *s.labels.values()): s.value for s in samples}
    assert values["pyrometer_slurm_run_jobs", "llama-8b", "running"] == 1
    assert values["pyrometer_fabric_port_info", "gpu-174", "mlx5_5", "1", "", "leaf-12", "9/1", "MT1"] == 1
    down = {(s.labels["collector"], s.labels["part"]) for s in samples if s.name == "pyrometer_down_reason_info"}
    assert down == {("ledger", "prometheus"), ("ufm", "ports")}
    success = {s.labels["collector"]: s.value for s in samples if s.name == "pyrometer_collector_success"}
    assert success == {"ledger": 1, "slurm": 1, "ufm": 1, "ufm-telemetry": 1}
    page = process.get("/")
    assert "Pyrometer cluster exporter" in page
    assert "Connection refused" in page
    assert process.terminate() == 0


def test_it_has_the_four_collectors_and_no_name_twice() -> None:
    specs = discover(CLUSTER_EXPORTER.package)
    assert [spec.name for spec in specs] == ["ledger", "slurm", "ufm", "ufm-telemetry"]
    names = [family.name for spec in specs for family in spec.families] + [family.name for family in OWN_FAMILIES]
    assert len(names) == len(set(names))


def test_its_help_has_no_flag_of_a_node(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    said = capsys.readouterr().out
    assert "--collector.slurm.run" in said
    assert "127.0.0.1:9936" in said
    assert not re.search(r"--path\.(sysfs|procfs|kmsg|rings)", said)


@pytest.mark.parametrize(
    "flag",
    ["--collector.ufm.timezone=Mars/Olympus", "--collector.slurm.run=", "--collector.slurm.timeout=0", "--path.sysfs=/",
     "--prometheus.url=nowhere", "--web.listen-address=x", "--path.state=/dev/null/x"],
)  # fmt: skip
def test_a_wrong_flag_is_one_line_and_status_2(flag: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = [flag] if flag.startswith("--path.state") else [f"--path.state={tmp_path}", flag]
    try:
        code: object = main([*argv, "--no-collector.ufm", "--no-collector.ledger"])
    except SystemExit as ended:
        code = ended.code
    said = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("time=")]
    assert code == 2
    assert len(said) == 1, said
    assert said[0].startswith("pyrometer-cluster-exporter: ")
