"""A web server on loopback to abuse, and certificates."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import inspect
import shutil
import struct
import subprocess
import termios
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import pytest

from pyrometer_kit.flags import Address
from pyrometer_kit.http_message import Handler, Route
from pyrometer_kit.http_server import WebServer
from pyrometer_kit.own_names import OwnNames
from pyrometer_kit.webconfig import WebConfig


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine, in a loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    asyncio.run(asyncio.wait_for(pyfuncitem.obj(**arguments), 30))
    return True


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
        fields = {"Host": "x", **headers}
        lines = [f"{method} {path} HTTP/1.1", *(f"{k.replace('_', '-')}: {v}" for k, v in fields.items())]
        self.send("\r\n".join(lines).encode() + b"\r\n\r\n")
        return await self.answer()

    async def ended(self, seconds: float = 10) -> bool:
        """True if the server hangs up within that time; what it still sends is thrown away."""
        try:
            await asyncio.wait_for(self.reader.read(), seconds)
        except asyncio.TimeoutError:
            return False
        except ConnectionError:
            pass
        return True

    def reset(self) -> None:
        self.writer.transport.abort()

    def unread(self) -> int:
        """Return how many bytes of answers the kernel keeps for us."""
        socket = self.writer.transport.get_extra_info("socket")
        return int(struct.unpack("i", fcntl.ioctl(socket.fileno(), termios.FIONREAD, b"\0" * 4))[0])


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

    async def until(self, condition: Callable[[], object], seconds: float = 30) -> None:
        end = asyncio.get_running_loop().time() + seconds
        while not condition():
            assert asyncio.get_running_loop().time() < end, "waited in vain"
            await asyncio.sleep(0.01)

    async def until_still(self, size: Callable[[], int]) -> int:
        """Wait until a size is the same at ten looks, and return it."""
        looks: deque[int] = deque(maxlen=10)

        def is_still() -> bool:
            looks.append(size())
            return len(looks) == looks.maxlen and len(set(looks)) == 1

        await self.until(is_still)
        return looks[-1]

    async def until_idle(self) -> None:
        """Wait until the server has done all that it does for an answer, and waits for requests."""
        await self.until(lambda: self.server._waiting.keys() == self.server._connections)


@contextlib.asynccontextmanager
async def serving(
    routes: Mapping[str, Handler | Route[Handler]],
    config: WebConfig | None = None,
    names: OwnNames | None = None,
) -> AsyncIterator[Serving]:
    server = WebServer(routes, config or WebConfig(), names=names)
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
