"""PostgreSQL's address: what a stranger in the place of the server gets (nothing), and how a lost server is noticed."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator

import pytest

psycopg = pytest.importorskip("psycopg")

from pyrometer_alerting.incidents.storage.postgresql import Server  # noqa: E402

PASSWORD = "s3cr3t of the database"
SSL_REQUEST = struct.pack("!ii", 8, 80877103)
ASKS_FOR_TEXT = b"R" + struct.pack("!ii", 8, 3)


class Stranger:
    """Answers in the place of a server, without TLS, and asks for the password as it is."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.heard = b""
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                with client, contextlib.suppress(OSError):
                    client.settimeout(5)
                    self._answer(client)

    def _answer(self, client: socket.socket) -> None:
        data = client.recv(4096)
        self.heard += data
        if data == SSL_REQUEST:
            client.sendall(b"N")
            self.heard += client.recv(4096)
        client.sendall(ASKS_FOR_TEXT)
        self.heard += client.recv(4096)

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def stranger() -> Iterator[Stranger]:
    answering = Stranger()
    yield answering
    answering.close()


def settings(url: str, password: str = "") -> dict[str, str]:
    return {str(key): str(value) for key, value in
            psycopg.conninfo.conninfo_to_dict(Server(url, password)._conninfo).items()}  # fmt: skip


@pytest.mark.parametrize("more", ["", "&sslmode=prefer", "&sslmode=disable"])
def test_a_stranger_in_the_place_of_a_server_elsewhere_gets_no_password(stranger: Stranger, more: str) -> None:
    url = f"postgresql://me@db.example/alerting?hostaddr=127.0.0.1&port={stranger.port}{more}"
    with pytest.raises(psycopg.OperationalError) as raised:
        Server(url, PASSWORD).connect()
    assert PASSWORD.encode() not in stranger.heard
    assert PASSWORD not in str(raised.value)
    if not more:
        assert "SSL was required" in str(raised.value)
        assert b"alerting" not in stranger.heard, "not even the name of the database"


def test_whoever_asks_for_it_gets_the_password_as_it_is(stranger: Stranger) -> None:
    url = f"postgresql://me@db.example/alerting?hostaddr=127.0.0.1&port={stranger.port}&sslmode=disable"
    with pytest.raises(psycopg.OperationalError):
        Server(f"{url}&require_auth=password", PASSWORD).connect()
    assert PASSWORD.encode() in stranger.heard, "or the tests above could not fail"


@pytest.mark.parametrize(
    ("host", "password", "mode", "ways"),
    [
        ("db-1,db-2", PASSWORD, "require", "scram-sha-256"),
        ("db-1", "", "require", "!password"),
        ("localhost,db-2", "", "require", "!password"),
        ("192.0.2.7", PASSWORD, "require", "scram-sha-256"),
        ("localhost", PASSWORD, "", ""),
        ("127.0.0.1,127.0.0.2", PASSWORD, "", ""),
        ("[::1]", PASSWORD, "", ""),
        ("%2Frun%2Fpostgresql", PASSWORD, "", ""),
        ("", PASSWORD, "", ""),
    ],
)
def test_a_server_elsewhere_needs_tls_and_a_proof_that_it_knows_the_password(
    host: str, password: str, mode: str, ways: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PGSSLMODE", raising=False)
    found = settings(f"postgresql://me@{host}/alerting", password)
    assert (found.get("sslmode", ""), found.get("require_auth", "")) == (mode, ways)


def test_the_address_and_the_environment_have_the_last_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PGSSLMODE", raising=False)
    for mode in ("verify-ca", "verify-full"):  # any server that is let in is the right one, whatever it asks for
        assert "require_auth" not in settings(f"postgresql://me@db/a?sslmode={mode}", PASSWORD)
    assert settings("postgresql://me@db/a?sslmode=disable&require_auth=md5", PASSWORD)["require_auth"] == "md5"
    assert settings("postgresql://me@/a?hostaddr=192.0.2.7")["sslmode"] == "require"
    monkeypatch.setenv("PGSSLMODE", "verify-full")
    found = settings("postgresql://me@db/a", PASSWORD)
    assert (found["sslmode"], "require_auth" in found) == ("verify-full", False)


def test_an_old_client_library_cannot_refuse_a_way_to_log_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PGSSLMODE", raising=False)
    monkeypatch.setattr(psycopg.pq, "version", lambda: 159_999)
    found = settings("postgresql://me@db/a", PASSWORD)
    assert (found["sslmode"], "require_auth" in found) == ("require", False)
    monkeypatch.setattr(psycopg.pq, "version", lambda: 160_000)
    assert "require_auth" in settings("postgresql://me@db/a", PASSWORD)


def test_a_server_that_vanishes_is_noticed_before_the_lease_ends() -> None:
    found = settings("postgresql://me@127.0.0.1/a")
    assert (found["keepalives_idle"], found["keepalives_interval"], found["keepalives_count"]) == ("2", "1", "2")
    assert (found["tcp_user_timeout"], found["connect_timeout"]) == ("4000", "3")
    assert (found["application_name"], found["target_session_attrs"]) == ("pyrometer-alerting", "read-write")
    assert settings("postgresql://me@127.0.0.1/a?connect_timeout=9&target_session_attrs=any")["connect_timeout"] == "9"


def test_the_password_of_the_file_is_used_and_never_in_the_name() -> None:
    assert settings("postgresql://me@127.0.0.1/a", PASSWORD)["password"] == PASSWORD
    assert "password" not in settings("postgresql://me@127.0.0.1/a")
    for url, name in (
        ("postgresql://me@db-1,db-2:5433/alerting", "postgresql://db-1,db-2/alerting"),
        ("postgresql://me@/alerting", "postgresql://local socket/alerting"),
        ("postgresql://me@/?hostaddr=192.0.2.7", "postgresql://192.0.2.7/"),
    ):
        assert Server(url, PASSWORD).name == name
