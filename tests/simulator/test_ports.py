"""Ports that nobody else is given, and programs that get another one where theirs was taken."""

from __future__ import annotations

import secrets
import socket
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from pyrometer_simulator import ports
from pyrometer_simulator.stack import StackError

SERVES = (
    "import http.server as h, sys; "
    "h.HTTPServer(('127.0.0.1', int(sys.argv[1])), h.SimpleHTTPRequestHandler).serve_forever()"
)
ENDS = "raise SystemExit(1)"
SILENT = "import time; time.sleep(60)"


class Starter:
    """Starts one program after the other, each in the empty folder; keeps them to be looked at."""

    def __init__(self, folder: Path, *programs: str) -> None:
        self._folder, self._programs = folder, list(programs)
        self.started: list[tuple[subprocess.Popen[Any], int]] = []

    def __call__(self, port: int) -> subprocess.Popen[Any]:
        command = [sys.executable, "-c", self._programs.pop(0), str(port)]
        process = subprocess.Popen(command, cwd=self._folder, stderr=subprocess.DEVNULL)
        self.started.append((process, port))
        return process


@pytest.fixture
def given_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "ip_local_port_range"
    monkeypatch.setattr(ports, "EPHEMERAL_RANGE", path)
    return path


@pytest.mark.parametrize(
    ("text", "kept_back"),
    [
        ("10100\t65000\n", {*range(10_000, 10_100), *range(65_001, 65_536)}),
        (None, {*range(10_000, 32_768), *range(61_000, 65_536)}),
        ("1024\t65535\n", {*range(10_000, 65_536)}),  # nothing is kept back: one of all
    ],
)
def test_a_port_is_none_that_the_kernel_gives_to_others(
    given_out: Path, text: str | None, kept_back: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ports, "_reserve", lambda _: True)  # 200 would be held until this process ends
    if text is not None:
        given_out.write_text(text)
    assert {ports.free_port() for _ in range(200)} <= kept_back


def test_a_port_that_somebody_holds_is_not_reserved_again(monkeypatch: pytest.MonkeyPatch) -> None:
    choose = secrets.choice
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as listening:
        held = {listening.server_port, ports.free_port()}
        offered = [*held]
        monkeypatch.setattr(ports.secrets, "choice", lambda all_ports: offered.pop() if offered else choose(all_ports))
        assert ports.free_port() not in held
    assert offered == []


def test_a_reserved_port_refuses_connections_until_its_program_listens() -> None:
    port = ports.free_port()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", port))
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    with socket.create_server(("127.0.0.1", port)), socket.create_connection(("127.0.0.1", port)):
        pass


def test_a_program_that_ended_is_started_anew_on_another_port(tmp_path: Path) -> None:
    starter = Starter(tmp_path, ENDS, SERVES)
    process, port = ports.serving(starter, "/")
    with process:
        process.terminate()
    assert (process, port) == starter.started[1]
    assert port != starter.started[0][1]


def test_a_program_that_never_answers_is_ended(tmp_path: Path) -> None:
    starter = Starter(tmp_path, SILENT)
    with pytest.raises(StackError, match="did not answer within 0 s"):
        ports.serving(starter, "/", seconds=0.1)
    assert starter.started[0][0].returncode is not None
