"""The images' health check: ready, or behind a password, and nothing else."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pyrometer_simulator.ports import free_port

PROGRAM = Path(__file__).resolve().parents[2] / "compose/healthcheck.py"


def check(url: str, answer: bytes = b"") -> subprocess.CompletedProcess[str]:
    """Run it against a listener that says this once; PORT in the URL is the listener's, or nobody's."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1] if answer else free_port()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1024)
                connection.sendall(answer)

        if answer:
            threading.Thread(target=serve, daemon=True).start()
        command = [sys.executable, "-I", "-S", PROGRAM, *([url.replace("PORT", str(port))] if url else [])]
        return subprocess.run(command, capture_output=True, text=True, env={}, timeout=20, check=False)


@pytest.mark.parametrize(("status", "code"), [(200, 0), (302, 0), (401, 0), (403, 0), (404, 1), (500, 1), (503, 1)])
def test_the_status_decides(status: int, code: int) -> None:
    answer = check("http://127.0.0.1:PORT/-/ready", f"HTTP/1.1 {status} X\r\n\r\n".encode())
    assert answer.returncode == code
    assert answer.stdout.endswith(f"/-/ready: {status}\n")


@pytest.mark.parametrize("answer", [b"", b"SSH-2.0-OpenSSH\r\n", b"x"])
def test_whatever_else_answers_or_nobody_is_sick_in_one_line(answer: bytes) -> None:
    found = check("http://127.0.0.1:PORT/", answer)
    assert (found.returncode, found.stderr.count("\n")) == (1, 1)


@pytest.mark.parametrize("url", ["", "127.0.0.1:80", "http://127.0.0.1/", "ftp://127.0.0.1:21/"])
def test_a_wrong_address_says_what_is_expected(url: str) -> None:
    found = check(url)
    assert found.returncode == 1
    assert "is not http://host:port/path" in found.stderr
