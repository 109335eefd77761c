"""A relay passes on what it gets; cut, it holds it back and closes nothing."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from pyrometer_simulator.victoria.relay import Relay


@pytest.fixture
def relay() -> Iterator[Relay]:
    """A relay to a program that sends back what it is sent, until the end."""
    echo = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                client, _ = echo.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(client,), daemon=True).start()

    def answer(client: socket.socket) -> None:
        with client:
            while data := client.recv(100):
                client.sendall(data)

    threading.Thread(target=serve, daemon=True).start()
    relay = Relay("vmagent-0", "vmauth", echo.getsockname()[1])
    relay.start()
    yield relay
    relay.close()
    echo.close()


def connected(relay: Relay) -> socket.socket:
    return socket.create_connection(("127.0.0.1", relay.port), timeout=5)


def test_a_cut_holds_back_open_and_new_connections_until_it_is_healed(relay: Relay) -> None:
    with connected(relay) as before:
        before.sendall(b"1")
        assert before.recv(10) == b"1"
        relay.cut()
        before.sendall(b"2")
        with connected(relay) as during:
            during.sendall(b"3")
            for client in (before, during):
                client.settimeout(0.2)
                with pytest.raises(TimeoutError):
                    client.recv(10)
            relay.heal()
            for client, expected in ((before, b"2"), (during, b"3")):
                client.settimeout(5)
                assert client.recv(10) == expected


def test_a_program_that_is_gone_ends_its_connections(relay: Relay) -> None:
    gone = Relay("vmagent-0", "vmauth", 9)
    gone.start()
    with connected(gone) as client:
        assert client.recv(10) == b""
    gone.close()
    assert relay.ends == {"vmagent-0", "vmauth"}
