"""Where the demo's programs listen, all on loopback: on ports that the user gives, else on free ones."""

from __future__ import annotations

import argparse
import contextlib
import errno
import getpass
import socket
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pyrometer_simulator.demo.processes import DemoError
from pyrometer_simulator.demo.topology import NODES
from pyrometer_simulator.ports import free_port

# The pages that people open, in the order in which they are printed.
PAGES = {
    "slack": "the Slack channel (a stand-in)",
    "grafana": "the boards",
    "alerting": "incidents, as the alerting service has them",
    "queries": "alerts and queries",
    "prometheus": "Prometheus",
    "alertmanager": "Alertmanager",
}
_LISTENING = "0A"  # the state in /proc/net/tcp


@dataclass
class Addresses:
    """The port of each program."""

    prometheus: int = field(default_factory=free_port)
    alertmanager: int = field(default_factory=free_port)
    alerting: int = field(default_factory=free_port)
    grafana: int = field(default_factory=free_port)
    slack: int = field(default_factory=free_port)
    queries: int = field(default_factory=free_port)
    cluster: int = field(default_factory=free_port)
    ras: int = field(default_factory=free_port)
    nodes: dict[str, int] = field(default_factory=lambda: {node: free_port() for node in NODES})

    def url(self, port: int) -> str:
        """Return the address of a port."""
        return f"http://127.0.0.1:{port}"

    def ssh_line(self, without: Collection[str] = ()) -> str:
        """Return the command that makes the pages reachable, at the same addresses, from another machine."""
        ports = [getattr(self, name) for name in PAGES if name not in without]
        forwards = " ".join(f"-L {port}:127.0.0.1:{port}" for port in ports)
        return f"ssh -N {forwards} {_user()}@{socket.gethostname()}"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add a flag for the port of each page."""
    for name, what in PAGES.items():
        parser.add_argument(
            f"--{name}.port", dest=name, type=_port, metavar="PORT", help=f"port of {what} (default: a free one)"
        )


def chosen(flags: argparse.Namespace) -> Addresses:
    """Return the addresses of a run. Raises DemoError where a given port is taken, forbidden or given twice."""
    given = {name: int(getattr(flags, name)) for name in PAGES if getattr(flags, name) is not None}
    for name, port in given.items():
        twice = next((other for other, same in given.items() if same == port and other != name), None)
        if twice:
            raise DemoError(f"--{name}.port={port}: --{twice}.port is the same; give each program its own")
        _try(name, port)
    return _with_given(given)


def _with_given(given: Mapping[str, int]) -> Addresses:
    while True:
        addresses = Addresses()
        for name, port in given.items():
            setattr(addresses, name, port)
        free = {addresses.cluster, addresses.ras, *addresses.nodes.values()}
        free |= {getattr(addresses, name) for name in PAGES if name not in given}
        if not free & set(given.values()):
            return addresses


def _try(name: str, port: int) -> None:
    """Raise DemoError unless a program of this user can listen on the port."""
    with socket.socket() as trial:
        trial.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # as servers do: the rest of a closed one is no hindrance
        try:
            trial.bind(("127.0.0.1", port))
            trial.listen()
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                why = f"{owner(port) or 'another program'} listens on it"
            else:
                why = (error.strerror or str(error)).lower()
            raise DemoError(f"--{name}.port={port}: {why}; give another port, or none for a free one") from None


def owner(port: int, procfs: Path = Path("/proc")) -> str:
    """Return the program that listens on a port, such as `prometheus (process 712)`; empty where it can't be seen."""
    wanted = {f"socket:[{inode}]" for inode in _inodes(port, procfs)}
    for process in procfs.glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it is another user's, or has ended
            if any(str(descriptor.readlink()) in wanted for descriptor in (process / "fd").iterdir()):
                return f"{(process / 'comm').read_text().strip()} (process {process.name})"
    return ""


def _inodes(port: int, procfs: Path) -> Iterator[str]:
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in (procfs / "net" / name).read_text().splitlines()[1:]:
                columns = line.split()
                if columns[3] == _LISTENING and int(columns[1].rpartition(":")[2], 16) == port:
                    yield columns[9]


def _port(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: a number from 1 to 65535")
    return int(text)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a number without a name, as in many containers
        return "USER"
