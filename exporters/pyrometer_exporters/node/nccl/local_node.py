"""A node: its addresses, and its processes' run and rank from their rings, their scheduler's job from the cgroup."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import threading
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NamedTuple

from pyrometer_exporters.framework.collector import Context
from pyrometer_exporters.framework.shared_folder import fair_shares
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
ADDRESSES_SECONDS = 60.0

_LOCAL = re.compile(r"\|-- (\S+)\n\s+/32 host LOCAL")


class RingRank(NamedTuple):
    """A rank of this node that reports through the client."""

    pid: int
    run: str
    rank: int
    job_id: str = ""
    uid: int = -1


class LocalNode:
    """The node as the askers see it; may be used from their threads."""

    def __init__(self, context: Context) -> None:
        self._procfs = context.procfs
        self._loads = context.gpu_loads
        self._clock = context.clock
        self._addresses = own_addresses(self._procfs)
        self._addresses_until = self._clock.monotonic() + ADDRESSES_SECONDS
        self._lock = threading.RLock()
        self._folder = RingFolder(context.rings)
        self._files: dict[str, RingFile] = {}
        self._steps: dict[str, tuple[int, float]] = {}

    def addresses(self) -> frozenset[str]:
        """Return its addresses, as of the last minute."""
        return self._addresses

    def refresh(self) -> None:
        """Read its addresses again where that is due."""
        now = self._clock.monotonic()
        if now >= self._addresses_until:
            self._addresses = own_addresses(self._procfs)
            self._addresses_until = now + ADDRESSES_SECONDS

    def ranks(self, uid: int | None = None) -> list[RingRank]:
        """Return the ranks that report through rings and whose processes live, of one user where ``uid`` is given."""
        ranks = []
        with self._lock:
            self._list_rings()
            for file in self._files.values():
                with contextlib.suppress(OSError, BadRingError, ValueError):
                    if file.meta.source == "client" and not file.header().closed and file.alive() and self._owns(file):
                        job_id = file.meta.texts["job_id"]
                        ranks.append(RingRank(file.pid, file.meta.run, int(file.meta.rank), job_id, file.uid))
        return ranks if uid is None else [rank for rank in ranks if rank.uid == uid]

    def _list_rings(self) -> None:
        names: set[str] = set()
        with contextlib.suppress(OSError):
            listed = self._folder.rings()
            of_users: dict[int, list[str]] = {}
            for name in sorted(listed, key=lambda name: -listed[name].changed):
                of_users.setdefault(listed[name].uid, []).append(name)
            shares = fair_shares({uid: len(of_user) for uid, of_user in of_users.items()}, MOST_RINGS)
            names = {name for uid, of_user in of_users.items() for name in of_user[: shares[uid]]}
        for name in self._files.keys() - names:
            self._files.pop(name).close()
            self._steps.pop(name, None)
        for name in names - self._files.keys():
            with contextlib.suppress(OSError, BadRingError), self._folder.opened(name) as folder:
                self._files[name] = RingFile(self._folder.place(name), folder)

    def _owns(self, file: RingFile) -> bool:
        """Return whether the process that a ring names may be its writer; one in a container can't be seen."""
        try:
            return (self._procfs / str(file.pid)).stat().st_uid == file.uid
        except OSError:
            return True

    def lowest_rank(self) -> tuple[int, int] | None:
        """Return the lowest rank here and the number of ranks; None without rings."""
        ranks = self.ranks()
        return (min(rank.rank for rank in ranks), len(ranks)) if ranks else None

    def run_of(self, pid: int, uid: int | None = None) -> tuple[str, str, str]:
        """Return run, job and rank of a user's process; of pid -1 the run of all ranks here, empty if they differ."""
        ranks = self.ranks(uid)
        mine = [rank for rank in ranks if rank.pid == pid]
        runs = {(rank.run, rank.job_id) for rank in mine or (ranks if pid < 0 else [])}
        run, job_id = runs.pop() if len(runs) == 1 else ("", "")
        return run, job_id, str(mine[0].rank) if mine else ""

    def stalled(self, now: float) -> bool:
        """Return whether a rank that was making steps has stopped, or GPUs have begun to spin as in a collective."""
        stalled = False
        with self._lock:
            for name, file in self._files.items():
                with contextlib.suppress(OSError, BadRingError):
                    header = file.header()
                    count, since = self._steps.get(name, (-1, now))
                    if header.steps != count:
                        self._steps[name] = header.steps, now
                    elif header.steps >= _MIN_STEPS and not header.closed:
                        usual = header.step_total / 1e9 / header.steps
                        stalled |= now - since > max(STALLED_SECONDS, STALLED_STEPS * usual)
            return stalled or self._loads.spin(now)

    def alive(self, hosts_processes: Collection[int]) -> bool:
        """Return whether any of these processes of the node can be seen, or reports through a ring."""
        return any((self._procfs / str(pid)).exists() for pid in hosts_processes) or any(
            rank.pid in hosts_processes for rank in self.ranks()
        )

    def job_id(self, pids: Iterable[int], uid: int | None = None) -> str:
        """Return the scheduler's job of the first process, of a user, that has one; empty where none has."""
        for pid in pids:
            with contextlib.suppress(OSError):
                if uid is not None and self._uid_of(pid) != uid:
                    continue
                job = job_of_cgroup((self._procfs / str(pid) / "cgroup").read_text(errors="replace"))
                if job is not None:
                    return job
        return ""

    def jobs_by_user(self) -> dict[int, set[str]] | None:
        """Return the scheduler's jobs of which users have processes; None where no process shows its job."""
        jobs: dict[int, set[str]] = {}
        with contextlib.suppress(OSError):
            for name in os.listdir(self._procfs):  # noqa: PTH208  thousands of names
                if name.isdecimal() and (job := self.job_id([int(name)])):
                    with contextlib.suppress(OSError):
                        jobs.setdefault(self._uid_of(int(name)), set()).add(job)
        return jobs or None

    def _uid_of(self, pid: int) -> int:
        return (self._procfs / str(pid)).stat().st_uid

    def close(self) -> None:
        """Close the rings."""
        with self._lock:
            while self._files:
                self._files.popitem()[1].close()


def own_addresses(procfs: Path) -> frozenset[str]:
    """Return the node's addresses, without loopback and link-local ones, from ``net/fib_trie`` and ``net/if_inet6``."""
    addresses = set()
    with contextlib.suppress(OSError):
        addresses.update(_LOCAL.findall((procfs / "net/fib_trie").read_text(encoding="ascii", errors="replace")))
    with contextlib.suppress(OSError):
        for line in (procfs / "net/if_inet6").read_text(encoding="ascii", errors="replace").splitlines():
            with contextlib.suppress(ValueError):
                addresses.add(str(ipaddress.IPv6Address(int(line.split()[0], 16))))
    return frozenset(text for text in addresses if _is_of_the_node(text))


def _is_of_the_node(text: str) -> bool:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return not (address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified)


def local_pids(peers: Iterable[Peer], addresses: Collection[str]) -> list[int]:
    """Return the processes of a job that run on the node with these addresses, in the order of the peers."""
    return list(dict.fromkeys(peer.pid for peer in peers if peer.host in addresses and peer.pid >= 0))
