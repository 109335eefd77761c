"""Whoever listens on the port: the collector gives one line, keeps its memory, and asks again later."""

from __future__ import annotations

import contextlib
import gzip
import socket
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pyrometer_exporters.framework.metrics import Down
from pyrometer_simulator.nccl.job import Job, layouts
from pyrometer_simulator.nccl.ras_server import RasJob, RasServer

HELLO = b"SERVER PROTOCOL 2\nOK\nOK\n"
BOMB = gzip.compress(b"0" * 20_000_000)
Behaviour = Callable[[socket.socket], None]


def silent(_client: socket.socket) -> None:
    """Say nothing until the other side leaves."""


def other_protocol(client: socket.socket) -> None:
    client.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")


def closes_at_once(client: socket.socket) -> None:
    client.shutdown(socket.SHUT_RDWR)


def without_line_end(client: socket.socket) -> None:
    client.sendall(b"x" * 100_000)


def half_a_report(client: socket.socket) -> None:
    client.sendall(HELLO + b'{"nccl_version": "2.30.7", "communicators": [{"hash": "0x1", "ranks": [')
    client.shutdown(socket.SHUT_WR)


def gzip_bomb(client: socket.socket) -> None:
    client.sendall(HELLO + BOMB)
    client.shutdown(socket.SHUT_WR)


def stops_in_the_middle(client: socket.socket) -> None:
    client.sendall(HELLO + b'{"communicators": [')


def endless(client: socket.socket) -> None:
    client.sendall(HELLO + b'{"communicators": [')
    while True:
        client.sendall(b" " * 65536)


def drips(client: socket.socket) -> None:
    client.sendall(HELLO + b"{")
    stop = threading.Event()
    while not stop.wait(0.05):
        client.sendall(b" ")


@contextlib.contextmanager
def serving(behaviour: Behaviour) -> Iterator[tuple[str, int]]:
    """Listen, and treat the first client in this way; it is read from so that it can write."""

    def run() -> None:
        with contextlib.suppress(OSError):
            client, _ = listener.accept()
            with client, contextlib.suppress(OSError):
                behaviour(client)
                while client.recv(65536):
                    pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield listener.getsockname()
    thread.join(10)
    assert not thread.is_alive(), "the connection was left open"


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        (silent, "deadline"),
        (other_protocol, "protocol"),
        (closes_at_once, "protocol"),
        (without_line_end, "protocol"),
        (half_a_report, "malformed"),
        (gzip_bomb, "malformed"),
        (stops_in_the_middle, "deadline"),
        (endless, "too_large"),
        (drips, "deadline"),
    ],
)
def test_a_server_that_is_no_ras_is_one_line(host: Any, behaviour: Behaviour, reason: str) -> None:
    seconds = 30.0 if behaviour is endless else 0.5
    with serving(behaviour) as where:
        watch = host.watch(where, seconds=seconds)
        tracemalloc.start()
        host.look(watch, 40)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    found = watch.latest()
    (down,) = [one for one in found if isinstance(one, Down)]
    assert down.reason == reason
    assert down.part == f"127.0.0.1:{where[1]}"
    assert "\n" not in down.detail
    assert host.values(found, "pyrometer_nccl_ras_up") == {(down.part,): 0}
    assert peak < 5_000_000


def test_after_a_hostile_server_a_job_is_asked_again(host: Any) -> None:
    job = Job(layouts(32)[0])
    job.run()
    with serving(other_protocol) as where:
        watch = host.watch(where)
        host.look(watch, 40)
    with RasServer(RasJob(job), port=where[1]):
        host.look(watch, 60)
        assert host.values(watch.latest(), "pyrometer_nccl_ras_up") == {(f"127.0.0.1:{where[1]}",): 1}


def test_a_port_where_nobody_listens_is_no_news(host: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        where = listener.getsockname()
    watch = host.watch(where)
    host.look(watch, 120)
    assert watch.latest() == []
