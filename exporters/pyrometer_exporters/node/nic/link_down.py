"""How often a link was lost: several sources, one count.

``link_downed`` has 8 bits and stays at 255, ``carrier_down_count`` needs an interface, the state shows only links that
are down at the moment of a look. All of them tell of the same events, so that what counts is the largest of their
increases between two looks, never their sum.

Not every loss is a fault. A boot, a driver that is reloaded and an administrator take links down on purpose: such
losses are counted apart, by cause. After any of these, losses count again from the first look that finds the link up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pyrometer_exporters.node.nic.widening import Widening

# Why a loss is not counted as one. NEW: a port that was never seen up.
BOOT, RELOAD, ADMIN, NEW = "boot", "driver_reload", "admin", "never_up"
CAUSES = (BOOT, RELOAD, ADMIN, NEW)
# Why counters began again. WRAP and CLEARED are found by widening.py.
REBOOT = "reboot"
# link_downed's largest value (drivers/infiniband/core/sysfs.c: 8 bits), where it stays.
LINK_DOWNED, LINK_DOWNED_MAXIMUM = "link_downed", 255
RECOVERED = "recovered_before_seen"


class Look(NamedTuple):
    """One look at a port.

    Attributes:
        boot: the kernel's boot id.
        inode: of the device's folder: another one means that the driver was reloaded.
        ifindex: of the port's interface, which another one says too; 0 where there is no interface.
        active: whether the link is up; None where that couldn't be read.
        sources: raw counts by source. None: it exists but couldn't be read; missing: it says nothing about the link.
        booting: whether the node was started so lately that its links may still come and go.
        reason: why the link is down, as far as anybody says; empty while it is up.
    """

    boot: str
    inode: int
    ifindex: int
    active: bool | None
    admin_down: bool
    sources: Mapping[str, int | None]
    booting: bool = False
    reason: str = ""


@dataclass
class PortMemory:
    """What is remembered of a port. All but the latest raw values of ``widening`` survive any end of the exporter.

    Attributes:
        events: losses of the link since the port was first seen.
        ignored: losses that were no fault, by cause.
        resets: how often counters began again, by reason.
        last_down: when the latest was noticed, seconds since the epoch.
        last_reason: why the link was down then.
        ever_active: whether the port was ever seen active.
        rate_max: the largest rate seen, bits per second.
        unarmed: why losses don't count at present; empty where they do.
        sources: raw counts at the look before.
        behind: by how much a source lags what was counted already; it may catch up at the next look.
    """

    events: int = 0
    ignored: dict[str, int] = field(default_factory=dict)
    resets: dict[str, int] = field(default_factory=dict)
    last_down: float | None = None
    last_reason: str = ""
    ever_active: bool = False
    rate_max: int = 0
    boot: str = ""
    inode: int = 0
    ifindex: int = 0
    unarmed: str = NEW
    active: bool = False
    sources: dict[str, int] = field(default_factory=dict)
    widening: Widening = field(default_factory=Widening)
    behind: dict[str, int] = field(default_factory=dict)
    _looks: tuple[Look | None, Look | None] = field(default=(None, None), compare=False, repr=False)
    """The last two."""

    def advance(self, look: Look, now: float) -> int:
        """Take a look at the wall time ``now`` into account; how many losses it added to ``events``."""
        before, self._looks = self._looks, (look, self._looks[0])
        # The second of two that are the same says that nothing lags any more, a third one says nothing.
        return 0 if before == (look, look) else self._advance(look, now)

    def _advance(self, look: Look, now: float) -> int:
        self.renew(look.boot, look.inode, look.ifindex)
        lost = self._lost(look)
        added = self._judge(look, lost)
        if added:
            self.events += added
            self.last_down = now
            self.last_reason = look.reason if look.active is False else RECOVERED
        elif self.last_down is not None and look.active is False and look.reason and self.last_reason != RECOVERED:
            self.last_reason = look.reason  # the kernel often knows it a moment later only
        self._remember(look)
        return added

    def renew(self, boot: str, inode: int, ifindex: int) -> None:
        """Begin again where the node was rebooted, the driver reloaded or the interface made anew."""
        remade = self.ifindex and ifindex and self.ifindex != ifindex
        if remade or (self.boot, self.inode) != (boot, inode):
            known, rebooted = bool(self.inode), self.boot != boot
            if known:
                self._count(self.resets, REBOOT if rebooted else RELOAD, 1)
                self.unarmed = BOOT if rebooted else RELOAD
            self.boot, self.inode, self.active = boot, inode, False
            self.sources.clear()
            self.behind.clear()
            self.widening.clear()
        self.ifindex = ifindex or self.ifindex

    def _lost(self, look: Look) -> int:
        """How often the link was lost since the look before."""
        moved = {
            source: _increase(self.sources[source], raw)
            for source, raw in look.sources.items()
            if raw is not None and source in self.sources
        }
        # The state is read after the counters, so that it may be ahead of them but never behind.
        fresh = {source: max(0, by - self.behind.get(source, 0)) for source, by in moved.items()}
        lost = max([*fresh.values(), int(self.active and look.active is False)])
        for source in self.sources:
            if source not in moved:  # it catches up with all it missed when it can be read again
                self.behind[source] = self.behind.get(source, 0) + lost
            else:
                self.behind[source] = int(lost > fresh[source] and self._may_be_late(look, source))
        return lost

    @staticmethod
    def _may_be_late(look: Look, source: str) -> bool:
        """Whether a source may show a loss at the next look that others showed at this one.

        Only the loss of a link that is down still, lost in the middle of the look. What a source doesn't show of a link
        that came back it never will.
        """
        pinned = source == LINK_DOWNED and look.sources[source] == LINK_DOWNED_MAXIMUM
        return look.active is False and not pinned

    def _judge(self, look: Look, lost: int) -> int:
        """How many of the losses count; the others are put down to their cause."""
        cause = BOOT if look.booting else self.unarmed
        if cause:
            self._count(self.ignored, cause, lost)
            return 0
        # Of several, an administrator's is the last: the link is still down because of it.
        by_admin = int(look.admin_down and look.active is False and lost > 0)
        self._count(self.ignored, ADMIN, by_admin)
        return lost - by_admin

    def _remember(self, look: Look) -> None:
        known = {source: self.sources.get(source) if raw is None else raw for source, raw in look.sources.items()}
        self.sources = {source: raw for source, raw in known.items() if raw is not None}
        self.behind = {source: by for source, by in self.behind.items() if by and source in self.sources}
        if look.active is not None:
            self.active = look.active
        if look.admin_down:
            self.unarmed = self.unarmed or ADMIN
        elif look.active:
            self.unarmed, self.ever_active = "", True

    @staticmethod
    def _count(counts: dict[str, int], what: str, by: int) -> None:
        if by:
            counts[what] = counts.get(what, 0) + by


def _increase(last: int, raw: int) -> int:
    """A counter that went back was cleared: what it shows now came since."""
    return raw - last if raw >= last else raw
