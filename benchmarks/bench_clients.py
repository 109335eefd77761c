"""Measure what clients that connect and stay cost each service: memory, and how long a scrape takes meanwhile.

A thousand clients each: silent ones, half a request, with TLS also half a handshake and a whole one, and then they hang
up. Run: .venv/bin/python benchmarks/bench_clients.py [clients]   (about two minutes)
"""

from __future__ import annotations

import re
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from harness import exit_on_signals

SERVICES = {"node exporter": "pyrometer_exporters.node.main", "alerting": "pyrometer_alerting.app.main"}
LIMIT_MIB = 128
EMPTY = ("sysfs", "procfs", "rings")
TLS = "tls_server_config: {{cert_file: {0}/cert.pem, key_file: {0}/key.pem}}\n"


def trusting() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


CONTEXT = trusting()


def silent(_client: socket.socket) -> socket.socket:
    return _client


def half_request(client: socket.socket) -> socket.socket:
    client.sendall(b"GET /metrics HTTP/1.1\r\nX-a: ")
    return client


def half_handshake(client: socket.socket) -> socket.socket:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        CONTEXT.wrap_bio(incoming, outgoing).do_handshake()
    client.sendall(outgoing.read())
    return client


def whole_handshake(client: socket.socket) -> socket.socket:
    client.settimeout(10)
    return CONTEXT.wrap_socket(client)


Start = Callable[[socket.socket], socket.socket]
PLAIN = (silent, half_request)
WITH_TLS = (silent, half_handshake, whole_handshake)


def rss(pid: int) -> float:
    """Return the process's resident memory in MiB."""
    return int(re.findall(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[0]) / 1024


def scrape(port: int, *, tls: bool) -> float:
    """Return the seconds that a scrape takes."""
    started = time.monotonic()
    with (
        socket.create_connection(("127.0.0.1", port), timeout=20) as raw,
        CONTEXT.wrap_socket(raw) if tls else raw as client,
    ):
        client.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answer = b""
        while piece := client.recv(1 << 16):
            answer += piece
    assert b" 200 " in answer[:20], answer[:80]
    return time.monotonic() - started


def attack(pid: int, port: int, how: Start, count: int, *, tls: bool) -> bool:
    """Print what so many clients cost; return whether memory stayed within its limit."""
    before, clients, slowest = rss(pid), [], 0.0
    for number in range(count):
        with suppress(OSError):
            clients.append(how(socket.create_connection(("127.0.0.1", port), timeout=5)))
        if number % (count // 5) == count // 5 - 1:
            slowest = max(slowest, scrape(port, tls=tls))
    during = rss(pid)
    for client in clients:
        client.close()
    time.sleep(2)
    after = rss(pid)
    print(
        f"  {how.__name__:16} {count} clients: slowest scrape {slowest:.2f} s, memory {before:.0f} MiB, then"
        f" {during:.0f} (at most {LIMIT_MIB}), {after:.0f} when they are gone",
        flush=True,
    )
    return during <= LIMIT_MIB


def measure(name: str, count: int, folder: Path, *, tls: bool) -> bool:
    """Play all attacks on a service; return whether all held."""
    print(f"{name}, {'TLS' if tls else 'plain'}:")
    (folder / "web.yml").write_text(TLS.format(folder) if tls else "")
    paths = (
        [f"--storage.path={folder}/store"]
        if name == "alerting"
        else [
            f"--path.state={folder}/state",
            *(f"--path.{path}={folder}/none" for path in EMPTY),
        ]
    )
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", SERVICES[name], "--web.listen-address=127.0.0.1:0", *paths,
             f"--web.config.file={folder}/web.yml"],
            stdout=subprocess.DEVNULL, stderr=log,
        )  # fmt: skip
    try:
        while not (found := re.search(r"listening on 127\.0\.0\.1:(\d+)", (folder / "log").read_text())):
            assert process.poll() is None, (folder / "log").read_text()
            time.sleep(0.1)
        port = int(found[1])
        scrape(port, tls=tls)
        held = [attack(process.pid, port, how, count, tls=tls) for how in (WITH_TLS if tls else PLAIN)]
        return all(held)
    finally:
        process.terminate()
        process.wait(20)


def main() -> int:
    exit_on_signals()
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
             "-subj", "/CN=localhost", "-keyout", folder / "key.pem", "-out", folder / "cert.pem"],
            check=True, capture_output=True,
        )  # fmt: skip
        held = [measure(name, count, folder, tls=tls) for name in SERVICES for tls in (False, True)]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
