"""The systemd units: read by systemd's own checker where there is one, and locked down alike."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "compose/systemd"
UNITS = sorted(FOLDER.glob("*.service"))


def settings(unit: Path) -> dict[str, str]:
    lines = [line for line in unit.read_text(encoding="utf-8").splitlines() if re.match(r"[A-Z]\w+=", line)]
    pairs = [line.split("=", 1) for line in lines]
    names = [key for key, _ in pairs if key != "SystemCallFilter"]  # a list of what is allowed, and one of what is not
    assert len(set(names)) == len(names), "a setting stands twice"
    return dict(pairs)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_understands_every_line(unit: Path, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not there: install systemd")
    program = tmp_path / "program"
    program.touch(mode=0o755)
    copy = tmp_path / unit.name
    copy.write_text(re.sub(r"/opt/pyrometer/bin/\S+", str(program), unit.read_text(encoding="utf-8")), encoding="utf-8")
    answer = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True, check=False)
    about_us = [line for line in answer.stderr.splitlines() if unit.name in line]
    assert about_us == []


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_every_service_is_locked_down_and_comes_back(unit: Path) -> None:
    found = settings(unit)
    assert found["User"] == "pyrometer"
    assert found["NoNewPrivileges"] == "true"
    assert found["ProtectSystem"] == "strict"
    assert found["CapabilityBoundingSet"] == ("CAP_SYSLOG" if "node" in unit.name else "")
    assert found["Restart"] == "always"
    assert found["StartLimitIntervalSec"] == "0"
    assert found["MemoryMax"]


# By `systemd-analyze security` of systemd 252; docs/deployment.md has a line for each right that remains.
EXPOSURE = {"pyrometer-node-exporter": 2.2, "pyrometer-cluster-exporter": 1.1, "pyrometer-alerting": 1.1}


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_no_service_has_a_right_that_it_had_not(unit: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not there: install systemd")
    command = ["systemd-analyze", "security", "--offline=yes", f"--threshold={EXPOSURE[unit.stem] * 10:.0f}", str(unit)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if "nrecognized option" in answer.stderr or "nknown option" in answer.stderr:
        pytest.skip("this systemd-analyze can't read a unit that isn't loaded: systemd 250 or newer")
    assert answer.returncode == 0, answer.stdout[-500:]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_state_is_where_the_service_may_write(unit: Path) -> None:
    found = settings(unit)
    paths = re.findall(r"--(?:path\.state|storage\.path)=(\S+)", found["ExecStart"])
    assert all(path == f"/var/lib/{found['StateDirectory']}" for path in paths)


def test_the_node_exporter_may_read_what_it_reads() -> None:
    found = settings(FOLDER / "pyrometer-node-exporter.service")
    assert found["AmbientCapabilities"] == "CAP_SYSLOG"
    assert "MemoryDenyWriteExecute" not in found
    for forbidden in ("PrivateDevices", "ProtectKernelLogs", "PrivateUsers", "ProtectProc", "PrivateNetwork"):
        assert forbidden not in found
    assert "AF_NETLINK" in found["RestrictAddressFamilies"]


def test_the_user_is_that_of_the_images() -> None:
    assert "u pyrometer 10935" in (FOLDER / "pyrometer.sysusers.conf").read_text(encoding="utf-8")
    assert "--uid 10935" in (ROOT / "compose/Dockerfile").read_text(encoding="utf-8")
