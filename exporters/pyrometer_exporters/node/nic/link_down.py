"""Count link losses from several sources as one number.

``link_downed`` has 8 bits and stays at 255, ``carrier_down_count`` needs an interface, the state shows only links that
are down at the moment of a read. All of them report the same events, so the largest of their increases between two
reads counts, never their sum.

Not every loss is a fault. A boot, a driver reload and an administrator take links down on purpose, and the link of a
virtual function comes and goes with whoever uses it, that of a BMC's USB network with the BMC: such losses are counted
separately, by cause. After any of these, losses count again from the first read that finds the link up.

Until then, and for SETTLING_SECONDS after, the port *settles*: what it shows is no evidence of a fault, and every rule
leaves it out. A link that is still down after LONGEST_SETTLING_SECONDS has settled as well: then it should be up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pyrometer_exporters.node.nic.counters import Counter

# Why a loss doesn't count. NEW: the port was never seen up.
BOOT, RELOAD, ADMIN, NEW = "boot", "driver_reload", "admin", "never_up"
# Only of ports of which it is true: nobody has to miss their link.
VIRTUAL, USB, NO_HARDWARE, FABRIC_MANAGER = "virtual_function", "usb", "no_hardware", "fabric_manager"
NOBODYS = (VIRTUAL, USB, NO_HARDWARE, FABRIC_MANAGER)
CAUSES = (BOOT, RELOAD, ADMIN, NEW)
# Why counters restarted.
WRAP, CLEARED, REBOOT = "wrap", "cleared", "reboot"
# The largest value of link_downed (drivers/infiniband/core/sysfs.c: 8 bits), where it stays.
LINK_DOWNED, LINK_DOWNED_MAXIMUM = "link_downed", 255
RECOVERED = "recovered_before_seen"
# A port settles for so long after its link is up: two scrapes at the longest usual interval, so that rules see it.
SETTLING_SECONDS = 60.0
# And at most for so long where its link doesn't come up: links come and go while a node, its switches and its subnet
# manager settle after a boot.
LONGEST_SETTLING_SECONDS = 900.0


@dataclass
class Widening:
    """Continues a port's counters that wrap at 32 bits to 64.

    At 10 million requests a second 32 bits last 7 minutes, and PromQL takes the wrap for a reset and undercounts.
    ``wraps`` counts by file, ``last`` holds the latest raw values.
    ``wrapped`` and ``cleared`` count the counters that did so since the last call of :meth:`take_restarts`.
    """

    wraps: dict[str, int] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)
    wrapped: int = 0
    cleared: int = 0

    def value(self, counter: Counter, raw: int) -> int:
        """Return the counter's value, with its wraps added."""
        file = counter.file
        if raw < self.last.get(file, 0) and counter.counts:
            self._went_back(counter, raw)
        self.last[file] = raw
        wraps = self.wraps.get(file) if self.wraps else None
        return (raw + (wraps << counter.bits) if wraps else raw) * counter.factor

    def take_restarts(self) -> dict[str, int]:
        """Return and reset how often counters restarted, by reason; counters cleared together count once."""
        restarts = {WRAP: self.wrapped, CLEARED: int(self.cleared > 0)}
        self.wrapped = self.cleared = 0
        return restarts

    def _went_back(self, counter: Counter, raw: int) -> None:
        last = self.last[counter.file]
        # Three quarters and one quarter: a counter that was cleared was hardly ever so high. A counter beyond its
        # width is wider than the table says.
        quarter = counter.maximum // 4
        if counter.wraps and 3 * quarter < last <= counter.maximum and raw < quarter:
            self.wraps[counter.file] = self.wraps.get(counter.file, 0) + 1
            self.wrapped += 1
        else:
            self.wraps.pop(counter.file, None)
            self.cleared += 1


class PortObservation(NamedTuple):
    """One read of a port.

    Attributes:
        boot: the kernel's boot id.
        inode: the inode of the device's folder: it changes when the driver is reloaded.
        ifindex: the number of the port's interface, which changes then too; 0 where there is no interface.
        active: whether the link is up; None where that couldn't be read.
        sources: raw counts by source. None: the source exists but couldn't be read; missing: it has no evidence.
        booting: whether the node booted so recently that its links may still go up and down.
        reason: why the link is down, where known; empty while it is up.
        nobodys: why nobody has to miss its link, one of NOBODYS; empty for all other ports.
    """

    boot: str
    inode: int
    ifindex: int
    active: bool | None
    admin_down: bool
    sources: Mapping[str, int | None]
    booting: bool = False
    reason: str = ""
    nobodys: str = ""


@dataclass
class PortMemory:
    """The history of a port. Everything but the last raw values of ``widening`` survives any end of the exporter.

    Attributes:
        events: losses of the link since the port was first seen.
        ignored: losses that were no fault, by cause.
        resets: how often counters restarted, by reason.
        last_down: when the latest loss was noticed, in seconds since the epoch.
        last_reason: why the link was down then.
        ever_active: whether the port was ever seen active.
        rate_max: the largest rate seen, in bits per second.
        unarmed: why losses don't count at present; empty where they do.
        sources: raw counts at the previous read.
        disturbance: what made the port settle the last time; empty once its link has been up for long enough.
        disturbed_at: when that began, in seconds since the epoch; None before the first read, and
            while an administrator has switched the port off.
        settling: why the port settles now; empty where it doesn't.
        device, pci_bus_id, driver: the device's name, address and driver when it was last seen; empty of a port whose
            device nobody has to miss.
        missing_since: since when the device is missing, in seconds since the epoch; None while it is not.
        behind: by how much a source lags the losses counted so far; it may catch up at the next read.
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
    disturbance: str = ""
    disturbed_at: float | None = None
    settling: str = ""
    device: str = ""
    pci_bus_id: str = ""
    driver: str = ""
    missing_since: float | None = None
    behind: dict[str, int] = field(default_factory=dict)
    _undisturbed_since: float | None = field(default=None, compare=False, repr=False)
    _last_two: tuple[PortObservation | None, PortObservation | None] = field(
        default=(None, None), compare=False, repr=False
    )

    def advance(self, seen: PortObservation, now: float) -> int:
        """Update the history with a read at the wall time ``now``; return how many losses it added to ``events``."""
        before, self._last_two = self._last_two, (seen, self._last_two[0])
        # Two equal reads in a row mean that nothing lags any more; a third adds nothing.
        return 0 if before == (seen, seen) else self._advance(seen, now)

    def _advance(self, seen: PortObservation, now: float) -> int:
        self.renew(seen.boot, seen.inode, seen.ifindex)
        lost = self._lost(seen)
        added = self._judge(seen, lost)
        if added:
            self.events += added
            self.last_down = now
            self.last_reason = seen.reason if seen.active is False else RECOVERED
        elif self.last_down is not None and seen.active is False and seen.reason and self.last_reason != RECOVERED:
            self.last_reason = seen.reason  # the kernel often reports it only a moment later
        self._remember(seen)
        return added

    def update_settling(self, seen: PortObservation, now: float) -> None:
        """Update :attr:`settling` at the wall time ``now``, after :meth:`advance`."""
        cause = seen.nobodys or (BOOT if seen.booting else self.unarmed)
        if self.disturbed_at is None and not self.disturbance:  # the first read
            self.disturbance, self.disturbed_at = cause or NEW, now
        if not cause:
            self._end_settling(now)
            return
        self._undisturbed_since = None
        if cause != self.disturbance or self.disturbed_at is None or now < self.disturbed_at:
            self.disturbance, self.disturbed_at = cause, now
        over = cause not in NOBODYS and now - self.disturbed_at >= LONGEST_SETTLING_SECONDS
        if seen.admin_down:
            self.disturbed_at = None  # it begins when the port is switched on again
        self.settling = "" if over else cause

    def _end_settling(self, now: float) -> None:
        """End the settling once nothing has disturbed the port for long enough."""
        self._undisturbed_since = now if self._undisturbed_since is None else min(now, self._undisturbed_since)
        if now - self._undisturbed_since >= SETTLING_SECONDS:
            self.disturbance = ""
        self.settling = self.disturbance

    def renew(self, boot: str, inode: int, ifindex: int) -> None:
        """Restart the counts where the node was rebooted, the driver reloaded or the interface created again."""
        remade = self.ifindex and ifindex and self.ifindex != ifindex
        if remade or (self.boot, self.inode) != (boot, inode):
            seen_before, rebooted = bool(self.inode), self.boot != boot
            if seen_before:
                self._count(self.resets, REBOOT if rebooted else RELOAD, 1)
                self.unarmed = BOOT if rebooted else RELOAD
            self.boot, self.inode, self.active = boot, inode, False
            self.sources.clear()
            self.behind.clear()
            self.widening = Widening()
        self.ifindex = ifindex or self.ifindex

    def _lost(self, seen: PortObservation) -> int:
        """Return how often the link was lost since the previous read."""
        moved = {
            source: _increase(self.sources[source], raw)
            for source, raw in seen.sources.items()
            if raw is not None and source in self.sources
        }
        # The state is read after the counters, so it may be ahead of them but never behind.
        fresh = {source: max(0, by - self.behind.get(source, 0)) for source, by in moved.items()}
        lost = max([*fresh.values(), int(self.active and seen.active is False)])
        for source in self.sources:
            if source not in moved:  # it will catch up when it can be read again
                self.behind[source] = self.behind.get(source, 0) + lost
            else:
                self.behind[source] = int(lost > fresh[source] and self._may_be_late(seen, source))
        return lost

    @staticmethod
    def _may_be_late(seen: PortObservation, source: str) -> bool:
        """Return whether a source may show at the next read a loss that others show at this one.

        Only if the link was lost in the middle of this read and is still down: of a link that came back, a source that
        doesn't show the loss never will.
        """
        pinned = source == LINK_DOWNED and seen.sources[source] == LINK_DOWNED_MAXIMUM
        return seen.active is False and not pinned

    def _judge(self, seen: PortObservation, lost: int) -> int:
        """Return how many of the losses count; add the others to their cause."""
        cause = seen.nobodys or (BOOT if seen.booting else self.unarmed)
        if cause:
            self._count(self.ignored, cause, lost)
            return 0
        # The administrator's is the last of several losses: the link is still down because of it.
        by_admin = int(seen.admin_down and seen.active is False and lost > 0)
        self._count(self.ignored, ADMIN, by_admin)
        return lost - by_admin

    def _remember(self, seen: PortObservation) -> None:
        latest = {source: self.sources.get(source) if raw is None else raw for source, raw in seen.sources.items()}
        self.sources = {source: raw for source, raw in latest.items() if raw is not None}
        self.behind = {source: by for source, by in self.behind.items() if by and source in self.sources}
        if seen.active is not None:
            self.active = seen.active
        if seen.admin_down:
            self.unarmed = self.unarmed or ADMIN
        elif seen.active:
            self.unarmed, self.ever_active = "", True

    @staticmethod
    def _count(counts: dict[str, int], cause: str, by: int) -> None:
        if by:
            counts[cause] = counts.get(cause, 0) + by


def _increase(last: int, raw: int) -> int:
    """Return the increase; a counter that decreased was cleared, and its value came since."""
    return raw - last if raw >= last else raw
