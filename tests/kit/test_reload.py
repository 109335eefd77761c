"""Certificates and passwords renewed under a server that is being spoken to."""

from __future__ import annotations

import asyncio
import base64
import itertools
import logging
import os
import shutil
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bcrypt
import pytest

from pyrometer_kit import reload as module
from pyrometer_kit.http_message import Request, Response, text
from pyrometer_kit.reload import WebConfigReload
from pyrometer_kit.webconfig import load

HANDSHAKES = 100
TLS = "tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\n"
Serving = Callable[..., Any]


def hashed(password: str) -> str:
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(4)).decode()


def authorization(password: str) -> str:
    return "Basic " + base64.b64encode(f"prom:{password}".encode()).decode()


ONE, TWO = (f"basic_auth_users: {{prom: {hashed(password)}}}\n" for password in ("one", "two"))


@pytest.fixture(scope="session")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two folders with a certificate and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl on PATH: install the package openssl")
    folders = []
    for name in ("first", "second"):
        folder = tmp_path_factory.mktemp(name)
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
             "-subj", f"/CN={name}", "-keyout", folder / "key.pem", "-out", folder / "cert.pem"],
            check=True, capture_output=True,
        )  # fmt: skip
        folders.append(folder)
    return folders


def put(source: Path, target: Path, *names: str) -> None:
    """As cert-manager, certbot and editors do: a new file under the old name."""
    for name in names or ("cert.pem", "key.pem"):
        shutil.copy(source / name, target / f"{name}.new")
        (target / f"{name}.new").replace(target / name)


def write(folder: Path, content: str) -> str:
    """The web configuration file, put in place of the one before."""
    path = folder / "web.yml"
    (folder / "web.yml.new").write_text(content)
    (folder / "web.yml.new").replace(path)
    return str(path)


def client_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


async def ok(_request: Request) -> Response:
    return text(200, "ok")


async def presented(server: Any) -> bytes | None:
    """The certificate that the next connection gets; it is spoken on as well."""
    client = await server.connect(ssl=client_context())
    assert (await client.get("/"))[0] == 200
    found: bytes | None = client.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    client.reset()
    return found


def der(folder: Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert((folder / "cert.pem").read_text())


def test_the_next_connection_gets_the_renewed_certificate(tmp_path: Path, pairs: list[Path], serving: Serving) -> None:
    async def go() -> None:
        put(pairs[0], tmp_path)
        config = load(path := write(tmp_path, TLS))
        reload = WebConfigReload(path, config)
        async with serving({"/": ok}, config) as server:
            early = await server.connect(ssl=client_context())
            assert await presented(server) == der(pairs[0])
            put(pairs[1], tmp_path)
            reload.check()
            assert await presented(server) == der(pairs[1])
            assert (await early.get("/"))[0] == 200  # a connection from before goes on

    asyncio.run(go())


def test_no_handshake_fails_while_certificates_are_renewed(tmp_path: Path, pairs: list[Path], serving: Serving) -> None:
    async def go() -> set[bytes | None]:
        put(pairs[0], tmp_path)
        config = load(path := write(tmp_path, TLS))
        reload, done, seen = WebConfigReload(path, config), asyncio.Event(), set()

        def renew(number: int) -> None:
            put(pairs[number % 2], tmp_path, "cert.pem")
            reload.check()  # between the two: a certificate without its key
            put(pairs[number % 2], tmp_path, "key.pem")
            reload.check()

        async def renew_on_and_on() -> None:
            for number in itertools.count():
                await asyncio.to_thread(renew, number)
                if done.is_set():
                    return

        task = asyncio.ensure_future(renew_on_and_on())
        async with serving({"/": ok}, config) as server:
            for _ in range(HANDSHAKES):
                seen.add(await presented(server))
            done.set()
            await task
        return seen

    logging.disable(logging.ERROR)
    try:
        assert asyncio.run(go()) == {der(folder) for folder in pairs}
    finally:
        logging.disable(logging.NOTSET)


def test_half_a_renewal_keeps_the_old_configuration_and_is_logged_once(
    tmp_path: Path, pairs: list[Path], serving: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    async def go() -> None:
        put(pairs[0], tmp_path)
        config = load(path := write(tmp_path, TLS))
        reload = WebConfigReload(path, config)
        async with serving({"/": ok}, config) as server:
            put(pairs[1], tmp_path, "cert.pem")
            for _ in range(3):
                reload.check()
            assert await presented(server) == der(pairs[0])
            assert len([record for record in caplog.records if record.levelno >= logging.ERROR]) == 1
            put(pairs[1], tmp_path, "key.pem")
            reload.check()
            assert await presented(server) == der(pairs[1])

    asyncio.run(go())


def test_a_new_password_replaces_the_old_one_on_open_connections_too(tmp_path: Path, serving: Serving) -> None:
    async def go() -> None:
        config = load(path := write(tmp_path, ONE))
        reload = WebConfigReload(path, config)
        async with serving({"/": ok}, config) as server:
            client = await server.connect()
            assert (await client.get("/", Authorization=authorization("one")))[0] == 200
            write(tmp_path, TWO)
            reload.check()
            assert (await client.get("/", Authorization=authorization("one")))[0] == 401
            assert (await server.get("/", Authorization=authorization("two")))[0] == 200

    asyncio.run(go())


CLIENT_CA = "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: cert.pem\n"
REMOVED = {
    "users": (TLS + ONE, TLS),
    "users, by a file cut off": (ONE, ""),
    "TLS": (TLS + ONE, ONE),
    "client certificates": (TLS + CLIENT_CA, TLS),
    "TLS 1.3": (TLS + "  min_version: TLS13\n", TLS),
    "plain HTTP": (ONE, TLS + ONE),
}


@pytest.mark.parametrize("what", REMOVED)
def test_protection_is_not_removed_while_it_runs(
    what: str, tmp_path: Path, pairs: list[Path], caplog: pytest.LogCaptureFixture
) -> None:
    before, after = REMOVED[what]
    put(pairs[0], tmp_path)
    config = load(path := write(tmp_path, before))
    reload, users, tls = WebConfigReload(path, config), config.auth.users, config.tls
    write(tmp_path, after)
    reload.check()
    assert (config.auth.users, config.tls) == (users, tls)
    assert "takes a restart; keeping the previous configuration" in caplog.text


def test_client_certificates_can_be_asked_for_and_their_authority_renewed(
    tmp_path: Path, pairs: list[Path], serving: Serving
) -> None:
    async def spoken_to(server: Any, folder: Path) -> bool:
        context = client_context()
        context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
        try:
            return bool((await (await server.connect(ssl=context)).get("/"))[0] == 200)
        except (OSError, asyncio.IncompleteReadError):
            return False

    async def go() -> None:
        put(pairs[0], tmp_path)
        shutil.copy(pairs[0] / "cert.pem", tmp_path / "ca.pem")
        config = load(path := write(tmp_path, TLS))
        reload = WebConfigReload(path, config)
        async with serving({"/": ok}, config) as server:
            write(tmp_path, TLS + CLIENT_CA.replace("cert.pem", "ca.pem"))
            reload.check()
            assert [await spoken_to(server, folder) for folder in pairs] == [True, False]
            shutil.copy(pairs[1] / "cert.pem", tmp_path / "ca.pem")
            reload.check()
            assert [await spoken_to(server, folder) for folder in pairs] == [False, True]

    asyncio.run(go())


def test_files_that_a_reload_names_are_watched_from_then_on(tmp_path: Path, pairs: list[Path]) -> None:
    put(pairs[0], tmp_path)
    config = load(path := write(tmp_path, TLS))
    reload = WebConfigReload(path, config)
    (tmp_path / "other").mkdir()
    put(pairs[0], tmp_path / "other")
    write(tmp_path, TLS.replace("cert.pem", "other/cert.pem").replace("key.pem", "other/key.pem"))
    reload.check()
    assert config.tls is not None
    before = config.tls
    put(pairs[1], tmp_path / "other")
    reload.check()
    assert config.tls is not before


def test_a_file_that_was_missing_for_a_moment_is_read_when_it_is_back(tmp_path: Path) -> None:
    config = load(path := write(tmp_path, ONE))
    reload = WebConfigReload(path, config)
    Path(path).write_text(TWO)
    status = Path(path).stat()
    Path(path).unlink()
    reload.check()  # can't be read now
    Path(path).write_text(TWO)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    reload.check()
    assert config.auth.allows(authorization("two"))


def test_a_running_service_checks_on_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHECK_SECONDS", 0.01)
    config = load(path := write(tmp_path, ONE))

    async def go() -> None:
        task = asyncio.ensure_future(WebConfigReload(path, config).run())
        write(tmp_path, TWO)
        for _ in range(1000):
            if config.auth.allows(authorization("two")):
                break
            await asyncio.sleep(0.01)
        assert config.auth.allows(authorization("two"))
        task.cancel()

    asyncio.run(go())
