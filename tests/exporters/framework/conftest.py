"""A web server to abuse, an exporter as a real process, and collectors that misbehave."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path

import pytest

from pyrometer_exporters.framework.flags import Address
from pyrometer_exporters.framework.web import Handler, WebServer
from pyrometer_exporters.framework.webconfig import WebConfig


class Client:
    """One connection, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.head = False

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of the next answer."""
        head = (await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 20)).decode()
        lines = head.split("\r\n")
        headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in lines[1:] if line)}
        body = b"" if self.head else await self.reader.readexactly(int(headers["content-length"]))
        return int(lines[0].split()[1]), headers, body

    async def get(self, path: str = "/", method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
        self.head = method == "HEAD"
        lines = [f"{method} {path} HTTP/1.1", "Host: x", *(f"{k.replace('_', '-')}: {v}" for k, v in headers.items())]
        self.send("\r\n".join(lines).encode() + b"\r\n\r\n")
        return await self.answer()

    async def ended(self, seconds: float = 10) -> bool:
        """Whether the server hangs up within that time; what it still sends is thrown away."""
        try:
            await asyncio.wait_for(self.reader.read(), seconds)
        except asyncio.TimeoutError:
            return False
        except ConnectionError:
            pass
        return True

    def reset(self) -> None:
        self.writer.transport.abort()


class Serving:
    """A running server and its clients."""

    def __init__(self, server: WebServer, port: int) -> None:
        self.server = server
        self.port = port
        self.clients: list[Client] = []

    async def connect(self, **how: object) -> Client:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, **how)  # type: ignore[arg-type]
        client = Client(reader, writer)
        self.clients.append(client)
        return client

    async def get(self, path: str = "/", method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
        return await (await self.connect()).get(path, method, **headers)


@contextlib.asynccontextmanager
async def serving(routes: Mapping[str, Handler], config: WebConfig | None = None) -> AsyncIterator[Serving]:
    server = WebServer(routes, config or WebConfig())
    found = Serving(server, await server.start(Address("127.0.0.1", 0)))
    try:
        yield found
    finally:
        for client in found.clients:
            client.writer.transport.abort()
        await server.stop()
        await asyncio.sleep(0)


@pytest.fixture(name="serving")
def serving_fixture() -> Callable[..., contextlib.AbstractAsyncContextManager[Serving]]:
    return serving


class Process:
    """An exporter as operators run it."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self.popen = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment}
        )
        self.log: list[str] = []
        self.port = 0

    def wait_ready(self) -> Process:
        assert self.popen.stderr is not None
        for line in self.popen.stderr:
            self.log.append(line)
            found = re.search(r"listens on [^ ]*?:(\d+)", line)
            if found:
                self.port = int(found[1])
                return self
        raise AssertionError("".join(self.log))

    def get(self, path: str, **headers: str) -> tuple[int, str]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", headers=named)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:  # noqa: S310  http to ourselves
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def terminate(self, number: int = signal.SIGTERM) -> tuple[int, float]:
        """Exit status and how long the end took."""
        began = time.monotonic()
        self.popen.send_signal(number)
        _, rest = self.popen.communicate(timeout=20)
        self.log.append(rest)
        return self.popen.returncode, time.monotonic() - began

    def close(self) -> None:
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.communicate()


@pytest.fixture
def exporter(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Start the node exporter on a free port with nothing to read; further flags are appended."""
    started: list[Process] = []

    def start(*flags: str, command: tuple[str, ...] = ("-m", "pyrometer_exporters.node.main")) -> Process:
        state = () if any(flag.startswith("--path.state") for flag in flags) else (f"--path.state={tmp_path}/state",)
        nothing = [f"--path.{name}={tmp_path}/nothing" for name in ("sysfs", "procfs", "rings")]
        full = [sys.executable, *command, "--web.listen-address=127.0.0.1:0", *nothing, *state, *flags]
        process = Process(full, {"PYTHONDEVMODE": "0"})
        started.append(process)
        return process

    yield start
    for process in started:
        process.close()


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for localhost and its key, fresh."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl on PATH: install the package openssl")
    folder = tmp_path_factory.mktemp("certificate")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", folder / "key.pem",
         "-out", folder / "cert.pem"],
        check=True, capture_output=True,
    )  # fmt: skip
    return folder / "cert.pem", folder / "key.pem"
