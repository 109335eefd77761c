"""Certificates renewed under a server that is being spoken to."""

import shutil
import socket
import ssl
import subprocess
import threading
from typing import Any

import pytest

from pyrometer_alerting import webconfig
from pyrometer_alerting.server import HttpServer, Response

HANDSHAKES = 200

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl on PATH: install openssl")


def configuration(folder: Any, name: str) -> Any:
    """Write a web configuration file with a certificate of this name beside it."""
    folder.mkdir()
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    files = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    subprocess.run([*command, "-subj", f"/CN={name}", *files], check=True, capture_output=True)
    path = folder / "web.yaml"
    path.write_text("tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\n")
    return path


def served(port: int, server_name: str | None) -> bytes | None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", port), timeout=5) as raw,
        context.wrap_socket(raw, server_hostname=server_name) as secured,
    ):
        return secured.getpeercert(binary_form=True)


@pytest.mark.parametrize("server_name", [None, "localhost"])
def test_no_handshake_fails_while_certificates_are_renewed(tmp_path: Any, server_name: Any) -> None:
    files = [configuration(tmp_path / name, name) for name in ("first", "second")]
    context, _ = webconfig.load(files[0])
    assert context is not None
    server = HttpServer("127.0.0.1", 0, lambda _request: Response(200), context)
    server.start()
    done = threading.Event()

    def renew_on_and_on() -> None:
        while not done.is_set():
            for path in files:
                webconfig.renew(context, path)

    renewing = threading.Thread(target=renew_on_and_on)
    renewing.start()
    try:
        seen = {served(server.port, server_name) for _ in range(HANDSHAKES)}
    finally:
        done.set()
        renewing.join(10)
        server.stop()
    assert len(seen) == 2  # both certificates, whole each time


def test_half_a_renewal_leaves_what_was(tmp_path: Any) -> None:
    path, other = (configuration(tmp_path / name, name) for name in ("first", "second"))
    context, _ = webconfig.load(path)
    assert context is not None
    server = HttpServer("127.0.0.1", 0, lambda _request: Response(200), context)
    server.start()
    try:
        before = served(server.port, None)
        (path.parent / "cert.pem").write_bytes((other.parent / "cert.pem").read_bytes())  # its key is still to come
        with pytest.raises(webconfig.SettingsError):
            webconfig.renew(context, path)
        assert served(server.port, None) == before
        (path.parent / "key.pem").write_bytes((other.parent / "key.pem").read_bytes())
        webconfig.renew(context, path)
        assert served(server.port, None) not in (None, before)
    finally:
        server.stop()
