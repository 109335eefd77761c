"""TCP connections between the parts of a cluster, which can stop carrying anything without being closed."""

from __future__ import annotations

import contextlib
import socket
import threading


class Relay(threading.Thread):
    """Listens for one program and passes on to another; cut, it keeps connections open and carries nothing."""

    def __init__(self, client: str, server: str, target: int) -> None:
        """Listen on a free loopback port for ``client``, and pass on to the port ``target`` of ``server``."""
        super().__init__(daemon=True, name=f"{client}>{server}")
        self.ends = frozenset((client, server))
        self._target = target
        self._carries = threading.Event()
        self._carries.set()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = int(self._listener.getsockname()[1])
        self._open: set[socket.socket] = set()

    def cut(self) -> None:
        """Carry nothing from now on, new connections included."""
        self._carries.clear()

    def heal(self) -> None:
        """Carry what has waited, and what comes."""
        self._carries.set()

    def run(self) -> None:
        """Accept until closed."""
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def close(self) -> None:
        """End everything."""
        self._carries.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for end in tuple(self._open):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _serve(self, client: socket.socket) -> None:
        self._carries.wait()
        with client, contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._target)) as server:
            self._open |= {client, server}
            back = threading.Thread(target=self._carry, args=(server, client), daemon=True)
            back.start()
            self._carry(client, server)
            back.join()
            self._open -= {client, server}

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self._carries.wait()
                sink.sendall(data)
        # Also where it broke: the other direction has nobody to talk to then.
        self._carries.wait()
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)
        with contextlib.suppress(OSError):
            source.shutdown(socket.SHUT_RD)
