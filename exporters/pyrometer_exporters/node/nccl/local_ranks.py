"""Who a process of the job is on this node: its run and rank from its ring, its scheduler's job from its cgroup."""

from __future__ import annotations

import contextlib
import ipaddress
import re
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NamedTuple

from pyrometer_exporters.node.gpu.jobs import job_of_cgroup
from pyrometer_exporters.node.nccl.snapshot import Peer
from pyrometer_exporters.node.train.description import BadRingError
from pyrometer_exporters.node.train.ring_folder import RingFolder
from pyrometer_exporters.node.train.rings import RingFile

# A rank whose ring has no new step for this long, and for this many usual steps, has stopped or nearly so.
STALLED_SECONDS = 10.0
STALLED_STEPS = 3.0
_MIN_STEPS = 10
# A node has 8 to 16 ranks; the newest count.
MOST_RINGS = 64

_LOCAL = re.compile(r"\|-- (\S+)\n\s+/32 host LOCAL")


class RingRank(NamedTuple):
    """A rank of this node that reports through the client."""

    pid: int
    run: str
    rank: int


class LocalRanks:
    """Reads the headers of the rings. Not thread-safe."""

    def __init__(self, folder: Path, procfs: Path) -> None:
        self._procfs = procfs
        self._folder = RingFolder(folder)
        self._files: dict[str, RingFile] = {}
        self._steps: dict[str, tuple[int, float]] = {}

    def read(self) -> list[RingRank]:
        """Return the ranks whose processes live; none where there are no rings."""
        self._find()
        found = []
        for file in self._files.values():
            with contextlib.suppress(OSError, BadRingError, ValueError):
                if file.meta.source == "client" and not file.header().closed and file.alive() and self._owns(file):
                    found.append(RingRank(file.pid, file.meta.run, int(file.meta.rank)))
        return found

    def _find(self) -> None:
        names: set[str] = set()
        with contextlib.suppress(OSError):
            listed = self._folder.rings()
            names = set(sorted(listed, key=lambda name: listed[name].changed)[-MOST_RINGS:])
        for name in self._files.keys() - names:
            self._files.pop(name).close()
            self._steps.pop(name, None)
        for name in names - self._files.keys():
            with contextlib.suppress(OSError, BadRingError):
                self._files[name] = RingFile(self._folder.place(name))

    def _owns(self, file: RingFile) -> bool:
        """Return whether the process that a ring names may be its writer; one in a container can't be seen."""
        try:
            return (self._procfs / str(file.pid)).stat().st_uid == file.uid
        except OSError:
            return True

    def stalled(self, now: float) -> bool:
        """Return whether a rank that was making steps has stopped, at the monotonic time ``now``."""
        found = False
        for name, file in self._files.items():
            with contextlib.suppress(OSError, BadRingError):
                header = file.header()
                count, since = self._steps.get(name, (-1, now))
                if header.steps != count:
                    self._steps[name] = header.steps, now
                elif header.steps >= _MIN_STEPS and not header.closed:
                    usual = header.step_total / 1e9 / header.steps
                    found |= now - since > max(STALLED_SECONDS, STALLED_STEPS * usual)
        return found

    def alive(self, pids: Iterable[int]) -> bool:
        """Return whether any of these processes of the node can be seen, or reports through a ring."""
        wanted = set(pids)
        return any((self._procfs / str(pid)).exists() for pid in wanted) or any(
            rank.pid in wanted for rank in self.read()
        )

    def job_id(self, pids: Iterable[int]) -> str:
        """Return the scheduler's job of the first process that has one; empty where none has."""
        for pid in pids:
            with contextlib.suppress(OSError):
                found = job_of_cgroup((self._procfs / str(pid) / "cgroup").read_text(errors="replace"))
                if found is not None:
                    return found
        return ""

    def close(self) -> None:
        """Close the rings."""
        while self._files:
            self._files.popitem()[1].close()


def own_addresses(procfs: Path) -> frozenset[str]:
    """Return the node's addresses, without loopback and link-local ones, from ``net/fib_trie`` and ``net/if_inet6``."""
    found = set()
    with contextlib.suppress(OSError):
        found.update(_LOCAL.findall((procfs / "net/fib_trie").read_text(encoding="ascii", errors="replace")))
    with contextlib.suppress(OSError):
        for line in (procfs / "net/if_inet6").read_text(encoding="ascii", errors="replace").splitlines():
            with contextlib.suppress(ValueError):
                found.add(str(ipaddress.IPv6Address(int(line.split()[0], 16))))
    return frozenset(one for one in found if _is_of_the_node(one))


def _is_of_the_node(text: str) -> bool:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return not (address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified)


def local_pids(peers: Iterable[Peer], addresses: Collection[str]) -> list[int]:
    """Return the processes of a job that run on the node with these addresses, in the order of the peers."""
    return list(dict.fromkeys(peer.pid for peer in peers if peer.host in addresses and peer.pid >= 0))
