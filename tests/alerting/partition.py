"""A network between peers on loopback that can be split: a relay in front of each, and who may reach whom.

Each peer advertises its relay's port, so that all that is sent to it, UDP and TCP, goes through the relay. The sender
of a packet is known by its port, as peers send from the one that they listen on, and that of a connection by its
process, as Linux lists it in /proc. A packet that may not pass is dropped, and a connection is closed, those that are
open too.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from pyrometer_simulator.ports import free_port

_READ_SECONDS = 0.1
_LARGEST = 1 << 16


@dataclass
class Peer:
    """One of the peers: the port that it listens on, the one that it advertises, and its process, once it runs."""

    name: str
    listens: int = field(default_factory=free_port)
    advertises: int = field(default_factory=free_port)
    pid: int = 0


class Network:
    """The relays of all peers; `split` and `heal` say who reaches whom."""

    def __init__(self, names: Iterable[str]) -> None:
        self.peers = [Peer(name) for name in names]
        self.dropped = self.passed = 0
        self._sides: list[set[str]] = []
        self._stopping = threading.Event()
        self._open: list[tuple[str, str, tuple[socket.socket, socket.socket]]] = []
        self._threads: list[threading.Thread] = []
        for peer in self.peers:
            for target, kind in ((self._packets, socket.SOCK_DGRAM), (self._connections, socket.SOCK_STREAM)):
                relay = socket.socket(socket.AF_INET, kind)
                relay.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                relay.bind(("127.0.0.1", peer.advertises))
                relay.settimeout(_READ_SECONDS)
                self._run(target, peer, relay)

    def split(self, *sides: Iterable[str]) -> None:
        """Let a peer reach those of its own side only."""
        self._sides = [set(side) for side in sides]
        for sender, receiver, pair in self._open:
            if not self._reaches(sender, receiver):
                for each in pair:
                    _shut(each)

    def heal(self) -> None:
        """Let everybody reach everybody again."""
        self._sides = []

    def close(self) -> None:
        """End all relays."""
        self._stopping.set()
        for _, _, pair in self._open:
            for each in pair:
                _shut(each)
        for thread in self._threads:
            thread.join(10)

    def _reaches(self, sender: str, receiver: str) -> bool:
        reaches = not self._sides or any({sender, receiver} <= side for side in self._sides)
        self.passed += reaches
        self.dropped += not reaches
        return reaches

    def _run(self, target: object, *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)  # type: ignore[arg-type]
        thread.start()
        self._threads.append(thread)

    def _packets(self, peer: Peer, relay: socket.socket) -> None:
        """Hand packets on from a socket for each sender, to which the answers come."""
        names = {each.listens: each.name for each in self.peers}
        backs: dict[int, socket.socket] = {}
        selector = selectors.DefaultSelector()
        selector.register(relay, selectors.EVENT_READ)
        with relay, contextlib.ExitStack() as stack:
            while not self._stopping.is_set():
                for key, _ in selector.select(_READ_SECONDS):
                    if key.fileobj is not relay:
                        answer = key.fileobj.recv(_LARGEST)  # type: ignore[union-attr]
                        if self._reaches(peer.name, names.get(key.data, "")):
                            relay.sendto(answer, ("127.0.0.1", key.data))
                        continue
                    packet, (_, port) = relay.recvfrom(_LARGEST)
                    if not self._reaches(names.get(port, ""), peer.name):
                        continue
                    if port not in backs:
                        backs[port] = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
                        selector.register(backs[port], selectors.EVENT_READ, port)
                    with contextlib.suppress(ConnectionRefusedError):  # it is not up
                        backs[port].sendto(packet, ("127.0.0.1", peer.listens))
        selector.close()

    def _connections(self, peer: Peer, relay: socket.socket) -> None:
        with relay:
            relay.listen()
            while not self._stopping.is_set():
                with contextlib.suppress(TimeoutError):
                    arrived, (_, port) = relay.accept()
                    self._run(self._connection, peer, arrived, port)

    def _connection(self, peer: Peer, arrived: socket.socket, port: int) -> None:
        sender = self._owner(port)
        with arrived, socket.socket() as onward:
            if not self._reaches(sender, peer.name):
                return
            try:
                onward.connect(("127.0.0.1", peer.listens))
            except OSError:
                return
            entry = (sender, peer.name, (arrived, onward))
            self._open.append(entry)
            back = threading.Thread(target=_pour, args=(onward, arrived), daemon=True)
            back.start()
            _pour(arrived, onward)
            back.join()
            self._open.remove(entry)

    def _owner(self, port: int) -> str:
        """Return the name of the peer whose process has a connection from that port."""
        local = f"0100007F:{port:04X}"
        rows = [line.split() for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()]
        inodes = {f"socket:[{row[9]}]" for row in rows if row[1] == local}
        for peer in self.peers:
            with contextlib.suppress(OSError):
                for opened in Path(f"/proc/{peer.pid}/fd").iterdir():
                    with contextlib.suppress(OSError):
                        if str(opened.readlink()) in inodes:
                            return peer.name
        return ""


def _pour(source: socket.socket, into: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(_LARGEST):
            into.sendall(data)
    with contextlib.suppress(OSError):
        into.shutdown(socket.SHUT_WR)


def _shut(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
