"""The Slurm scripts, run as slurmd runs them: against an exporter's text, and a scontrol that notes what it is told."""

from __future__ import annotations

import fcntl
import http.server
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "compose/slurm"
HEALTHY = """\
# TYPE pyrometer_gpu_up gauge
pyrometer_gpu_up{gpu="0",uuid="GPU-a"} 1
pyrometer_gpus_present{source="pci"} 8
pyrometer_gpus_present{source="nvml"} 8
pyrometer_check_ok{check="nvlink"} 1
pyrometer_nic_link_up{device="mlx5_0",port="1"} 1
pyrometer_nic_link_up{device="mlx5_9",port="1"} 0
pyrometer_nic_expected_up{device="mlx5_0",port="1"} 1
"""

pytestmark = pytest.mark.skipif(
    any(shutil.which(tool) is None for tool in ("curl", "awk", "flock")), reason="curl, awk or flock is not there"
)


class Exporter:
    """Serves a text; ``url`` is where."""

    def __init__(self) -> None:
        self.text = HEALTHY
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(outer.text.encode())

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/metrics"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    found = Exporter()
    yield found
    found.server.shutdown()
    found.server.server_close()


class Node:
    """A compute node with a scontrol of its own."""

    def __init__(self, folder: Path, url: str) -> None:
        self._folder = folder
        self.rings = folder / "rings"
        self.env = {
            "PATH": f"{folder}:{os.environ['PATH']}", "PYROMETER_METRICS": url, "PYROMETER_CONF": "/nowhere",
            "PYROMETER_RINGS": str(self.rings), "SLURMD_NODENAME": "gpu-042", "PYROMETER_SECONDS": "2",
            "PYROMETER_PAUSE": "0",
        }  # fmt: skip
        self.state("IDLE")

    def state(self, state: str) -> None:
        lines = [
            "#!/bin/sh",
            'case "$*" in',
            f"*'show node'*) echo 'NodeName=gpu-042 State={state} CPUTot=96' ;;",
            f"*) printf '%s|' \"$@\" >> '{self._folder}/told' ;;",
            "esac",
        ]
        script = "\n".join(lines) + "\n"
        (self._folder / "scontrol").write_text(script)
        (self._folder / "scontrol").chmod(0o755)

    def run(self, script: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", FOLDER / script], env=self.env | env, capture_output=True, text=True, timeout=20, check=False
        )

    @property
    def told(self) -> str:
        path = self._folder / "told"
        return path.read_text() if path.exists() else ""


@pytest.fixture
def node(tmp_path: Path, exporter: Exporter) -> Node:
    return Node(tmp_path, exporter.url)


def test_a_healthy_node_is_left_alone(node: Node) -> None:
    for script in ("node-check.sh", "health.sh", "prolog.sh", "epilog.sh"):
        answer = node.run(script)
        assert (answer.returncode, answer.stdout, answer.stderr) == (0, "", ""), script
    assert node.told == ""


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('pyrometer_gpu_up{gpu="5",uuid="GPU-b"} 0', "GPU 5 does not answer"),
        ('pyrometer_gpus_present{source="expected"} 10', "2 of 10 GPUs are missing"),
        ('pyrometer_check_ok{check="xid"} 0', "check xid failed"),
        ('pyrometer_check_ok{check="xid"} 0.0 1795315083', "check xid failed"),
        ('pyrometer_nic_expected_up{device="mlx5_9",port="1"} 1', "link mlx5_9/1 is down"),
        ('pyrometer_gpu_recovery_action{gpu="5",uuid="GPU-b"} 2', "GPU 5 has to be reset"),
    ],
)
def test_what_is_wrong_drains_the_node_with_the_reason(node: Node, exporter: Exporter, line: str, reason: str) -> None:
    exporter.text += f"{line}\n"
    assert node.run("health.sh").returncode == 0
    assert node.told == f"update|nodename=gpu-042|state=drain|reason=pyrometer: {reason}|"


DRIVER = 'pyrometer_down_reason_info{collector="gpu",part="nvml",reason="%s"} 1\n'
NO_ANSWER = HEALTHY.replace('pyrometer_gpus_present{source="nvml"} 8\n', "").replace(
    'pyrometer_gpu_up{gpu="0",uuid="GPU-a"} 1\n', ""
)


@pytest.mark.parametrize("reason", ["driver_version_mismatch", "driver_not_loaded", "no_driver", "deadline"])
def test_a_driver_that_cannot_be_used_drains_the_node(node: Node, exporter: Exporter, reason: str) -> None:
    exporter.text = NO_ANSWER + DRIVER % reason
    assert node.run("node-check.sh").stdout == f"the NVIDIA driver can not be used: {reason}\n"


def test_a_driver_that_hangs_where_the_bus_cannot_be_seen_drains_the_node(node: Node, exporter: Exporter) -> None:
    exporter.text = DRIVER % "deadline"
    assert node.run("node-check.sh").returncode == 1


@pytest.mark.parametrize(
    "text",
    [
        NO_ANSWER + DRIVER % "released",
        NO_ANSWER + DRIVER % "releasing",
        'pyrometer_gpus_present{source="pci"} 0\n' + DRIVER % "no_driver",
        HEALTHY + 'pyrometer_gpu_recovery_action{gpu="0",uuid="GPU-a"} 0 1795315083\n',
    ],
)
def test_gpus_on_request_and_nodes_without_gpus_are_left_alone(node: Node, exporter: Exporter, text: str) -> None:
    exporter.text = text
    assert node.run("node-check.sh").returncode == 0


def test_a_gpu_that_answers_late_once_takes_no_node_away(node: Node, exporter: Exporter) -> None:
    exporter.text += 'pyrometer_gpu_up{gpu="5"} 0\n'
    late = threading.Timer(0.5, lambda: setattr(exporter, "text", HEALTHY))
    late.start()
    assert node.run("node-check.sh", PYROMETER_PAUSE="1.5").returncode == 0
    late.join()


def test_all_reasons_are_told_once(node: Node, exporter: Exporter) -> None:
    exporter.text += 'pyrometer_check_ok{check="a"} 0\npyrometer_check_ok{check="a"} 0\npyrometer_gpu_up{gpu="1"} 0\n'
    assert node.run("node-check.sh").stdout == "check a failed; GPU 1 does not answer\n"


def test_checks_can_be_left_out(node: Node, exporter: Exporter) -> None:
    exporter.text += 'pyrometer_check_ok{check="disk"} 0\n'
    assert node.run("node-check.sh", PYROMETER_IGNORE="link.*|disk").returncode == 0
    assert node.run("node-check.sh", PYROMETER_IGNORE="dis").returncode == 1


@pytest.mark.parametrize("state", ["IDLE+DRAIN", "DOWN*"])
def test_the_reason_of_whoever_was_first_stays(node: Node, exporter: Exporter, state: str) -> None:
    exporter.text += 'pyrometer_gpu_up{gpu="5"} 0\n'
    node.state(state)
    assert node.run("health.sh").returncode == 0
    assert node.told == ""


def test_monitoring_that_is_down_takes_no_node_away(node: Node) -> None:
    nobody = {"PYROMETER_METRICS": "http://127.0.0.1:1/metrics"}
    for script in ("health.sh", "prolog.sh", "epilog.sh"):
        answer = node.run(script, **nobody)
        assert answer.returncode == 0, script
        assert "nothing was checked" in answer.stderr
    assert node.told == ""


@pytest.mark.parametrize("script", ["prolog.sh", "epilog.sh"])
def test_a_job_is_kept_from_a_node_that_can_not_work(node: Node, exporter: Exporter, script: str) -> None:
    exporter.text += 'pyrometer_gpu_up{gpu="5"} 0\n'
    answer = node.run(script)
    assert (answer.returncode, answer.stderr) == (1, "pyrometer: GPU 5 does not answer\n")


def test_the_prolog_makes_room_for_rings_and_removes_those_of_the_dead(node: Node) -> None:
    assert node.run("prolog.sh").returncode == 0
    assert node.rings.stat().st_mode & 0o7777 == 0o1777
    for name in ("dead.ring", "living.ring", "fresh.ring"):
        (node.rings / name).touch()
        if name != "fresh.ring":
            os.utime(node.rings / name, (time.time() - 3600,) * 2)
    with (node.rings / "living.ring").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # as its rank does for as long as it lives
        assert node.run("prolog.sh").returncode == 0
    assert sorted(path.name for path in node.rings.iterdir()) == ["fresh.ring", "living.ring"]


def test_settings_of_the_site_are_read(node: Node, exporter: Exporter, tmp_path: Path) -> None:
    exporter.text += 'pyrometer_check_ok{check="disk"} 0\n'
    (tmp_path / "slurm.conf").write_text("PYROMETER_IGNORE=disk\n")
    assert node.run("node-check.sh", PYROMETER_CONF=str(tmp_path / "slurm.conf")).returncode == 0
