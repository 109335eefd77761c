"""How often a link was lost: several sources, one count.

``link_downed`` has 8 bits and stays at 255, ``carrier_down_count`` needs an interface, the state shows only links that
are down at the moment of a scrape. All three tell of the same events, so that what counts is the largest of their
increases between two looks, never their sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyrometer_exporters.node.nic.widening import Widening

SAMPLED = "sampled"


@dataclass(frozen=True)
class Look:
    """One look at a port.

    Attributes:
        boot: the kernel's boot id.
        inode: of the device's folder: another one means that the driver was reloaded.
        ifindex: of the port's interface, which another one says too; 0 where there is no interface.
        active: whether the link is up; None where that couldn't be read.
        sources: raw counts by source. None: it exists but couldn't be read; missing: it says nothing about the link.
    """

    boot: str
    inode: int
    ifindex: int
    active: bool | None
    admin_down: bool
    sources: Mapping[str, int | None]


@dataclass
class PortMemory:
    """What is remembered of a port. All but ``behind`` and the latest raw values of ``widening`` survive a restart.

    Attributes:
        events: losses of the link since the port was first seen.
        last_down: when the latest was noticed, seconds since the epoch.
        ever_active: whether the port was ever seen active.
        rate_max: the largest rate seen, bits per second.
        armed: whether losses count: from when the port is first active after a boot, driver reload or admin down.
        sources: raw counts at the look before.
        behind: by how much a source lags what was counted already; it may catch up at the next look.
    """

    events: int = 0
    last_down: float | None = None
    ever_active: bool = False
    rate_max: int = 0
    boot: str = ""
    inode: int = 0
    ifindex: int = 0
    armed: bool = False
    active: bool = False
    sources: dict[str, int] = field(default_factory=dict)
    widening: Widening = field(default_factory=Widening)
    behind: dict[str, int] = field(default_factory=dict)

    def advance(self, look: Look, now: float) -> int:
        """Take a look at the wall time ``now`` into account; how many losses it added."""
        remade = self.ifindex and look.ifindex and self.ifindex != look.ifindex
        if remade or (self.boot, self.inode) != (look.boot, look.inode):
            self._start_over(look)
        self.ifindex = look.ifindex or self.ifindex
        if look.admin_down:
            self.armed = False
        added = self._added(look) if self.armed else 0
        if added:
            self.events += added
            self.last_down = now
        self._remember(look)
        return added

    def _start_over(self, look: Look) -> None:
        self.boot, self.inode = look.boot, look.inode
        self.armed = self.active = False
        self.sources.clear()
        self.widening.clear()

    def _added(self, look: Look) -> int:
        moved = {
            source: _increase(self.sources[source], raw)
            for source, raw in look.sources.items()
            if raw is not None and source in self.sources
        }
        # The state is read after the counters, so that it may be ahead of them but never behind.
        fresh = {source: max(0, by - self.behind.get(source, 0)) for source, by in moved.items()}
        added = max([*fresh.values(), int(self.active and look.active is False)])
        for source in self.sources:
            unread = look.sources.get(source) is None
            # A source that wasn't read catches up with all it missed when it can be read again.
            self.behind[source] = (self.behind.get(source, 0) + added) if unread else added - fresh.get(source, 0)
        return added

    def _remember(self, look: Look) -> None:
        if not self.armed:
            self.behind.clear()
            self.sources.clear()
        known = {source: self.sources.get(source) if raw is None else raw for source, raw in look.sources.items()}
        self.sources = {source: raw for source, raw in known.items() if raw is not None}
        if look.active is not None:
            self.active = look.active
        if look.active and not look.admin_down:
            self.armed = self.ever_active = True


def _increase(last: int, raw: int) -> int:
    """A counter that went back was cleared: what it shows now came since."""
    return raw - last if raw >= last else raw
