"""Counts of the events in the log, and the links that it names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from typing import Any, NamedTuple, TypeVar

from pyrometer_exporters.cluster.ufm.catalogue import LINK_DOWN, LINK_UP, PLACED, SUPPRESSION, UNHEALTHY
from pyrometer_exporters.cluster.ufm.lines import Event, unix_time
from pyrometer_exporters.cluster.ufm.link_ends import LinkEnd, cable, ends, labelled, unhealthy_reason

# Imbue's fabric of 4,088 GPUs has 12,000 links. A log with more than these has names that are none; what is beyond them
# is counted as left out, and no port that may be among them is served as 0.
MAX_PLACES = 20_000
MAX_CABLES = 20_000
MAX_LINKS = 40_000
MAX_NUMBERS = 500
# Words in the event that ends a suppression; its number is the same.
T = TypeVar("T")
_OVER = ("stop", "end", "off", "disabl", "resum", "finish")


class EventPlace(NamedTuple):
    """Where an event of a kind happened: a switch port, a host port, or the link between the two."""

    number: int
    reason: str
    switch: str
    switch_port: str
    node: str
    device: str
    port: str


class Link(NamedTuple):
    """The far end of a host's port."""

    switch: str
    switch_port: str
    cable: str


@dataclass
class EventCounts:
    """Counts and links; they only grow, also when a clock is set back or a log is read again."""

    numbers: Counter[int] = field(default_factory=Counter)
    places: Counter[EventPlace] = field(default_factory=Counter)
    cables: Counter[tuple[int, str]] = field(default_factory=Counter)
    links: dict[LinkEnd, Link] = field(default_factory=dict)
    """Links by the host's end; a later event about the same port replaces an earlier one."""
    two_port_switches: set[str] = field(default_factory=set)
    """Switches whose ports are labelled 17/1: a port number there is translated."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Events that a limit left out, by what there were too many of: number, place, cable or link."""
    last_event: float = 0.0
    suppressed_at: float = 0.0
    suppressing: bool = False

    @property
    def all_placed(self) -> bool:
        """True while a place without a count had no event: none was left out."""
        return not self.left_out["place"]

    def learn(self, event: Event, zone: tzinfo | None) -> list[LinkEnd]:
        """Take links and times from an event without counting it, and return its ends."""
        self.last_event = unix_time(event.stamp, zone, self.last_event)
        if event.number == SUPPRESSION:
            self.suppressed_at = self.last_event
            self.suppressing = not any(word in event.message.lower() for word in _OVER)
        link_ends = [self._normal(end) for end in ends(event)]
        if event.number in (LINK_UP, LINK_DOWN):
            self._link(link_ends, cable(event))
        return link_ends

    def count(self, event: Event, zone: tzinfo | None) -> None:
        """Count an event, once, where it happened."""
        link_ends = self.learn(event, zone)
        self._add(self.numbers, event.number, MAX_NUMBERS, "number")
        if event.number not in PLACED:
            return
        reason = unhealthy_reason(event.message) if event.number == UNHEALTHY else ""
        for place in _places(event.number, reason, link_ends):
            self._add(self.places, place, MAX_PLACES, "place")
        serial = cable(event)
        if serial:
            self._add(self.cables, (event.number, serial), MAX_CABLES, "cable")

    def _add(self, counts: Counter[T], key: T, most: int, what: str) -> None:
        if key in counts or len(counts) < most:
            counts[key] += 1
        else:
            self.left_out[what] += 1

    def encoded(self) -> dict[str, Any]:
        """Return the counts as JSON, for :func:`decoded`."""
        return {
            "numbers": list(self.numbers.items()),
            "places": [[*place, count] for place, count in self.places.items()],
            "cables": [[*key, count] for key, count in self.cables.items()],
            "links": [[end.node, end.device, end.port, end.guid, *link] for end, link in self.links.items()],
            "two_port_switches": sorted(self.two_port_switches),
            "left_out": dict(self.left_out),
            "last_event": self.last_event,
            "suppressed_at": self.suppressed_at,
            "suppressing": self.suppressing,
        }

    def _normal(self, end: LinkEnd) -> LinkEnd:
        if not end.switch:
            return end
        if "/" in end.port:
            self.two_port_switches.add(end.switch)
        elif end.switch in self.two_port_switches and end.port.isdecimal() and int(end.port) > 0:
            return replace(end, port=labelled(end.port))
        return end

    def _link(self, link_ends: list[LinkEnd], serial: str) -> None:
        hosts, switches = [end for end in link_ends if end.node], [end for end in link_ends if end.switch]
        if len(hosts) == len(switches) == 1:
            if hosts[0] not in self.links and len(self.links) >= MAX_LINKS:
                self.left_out["link"] += 1
                return
            before = self.links.get(hosts[0])
            same_place = before is not None and before[:2] == (switches[0].switch, switches[0].port)
            # An event without a serial leaves the cable; one at another port means that it was moved.
            kept = before.cable if before is not None and same_place and not serial else serial
            self.links[hosts[0]] = Link(switches[0].switch, switches[0].port, kept)


def decoded(data: Mapping[str, Any]) -> EventCounts:
    """Return the counts that :meth:`EventCounts.encoded` gave.

    Raises:
        ValueError, KeyError, TypeError: The data is not such counts.
    """
    return EventCounts(
        numbers=Counter({int(number): int(count) for number, count in data["numbers"]}),
        places=Counter({EventPlace(int(n), *map(str, rest)): int(count) for n, *rest, count in data["places"]}),
        cables=Counter({(int(number), str(serial)): int(count) for number, serial, count in data["cables"]}),
        links={
            LinkEnd(node=str(node), device=str(device), port=str(port), guid=str(guid)): Link(*map(str, link))
            for node, device, port, guid, *link in data["links"]
        },
        two_port_switches=set(map(str, data["two_port_switches"])),
        left_out=Counter({str(what): int(count) for what, count in data.get("left_out", {}).items()}),
        last_event=float(data["last_event"]),
        suppressed_at=float(data["suppressed_at"]),
        suppressing=bool(data["suppressing"]),
    )


def _places(number: int, reason: str, link_ends: list[LinkEnd]) -> list[EventPlace]:
    """Return one place for a host's link, with both ends, or one for each end of a link between switches."""
    hosts, switches = [end for end in link_ends if end.node], [end for end in link_ends if end.switch]
    if hosts and switches:
        pairs = [(switches[0], hosts[0])]
    else:
        pairs = [(end, LinkEnd()) for end in switches] + [(LinkEnd(), end) for end in hosts]
    return [EventPlace(number, reason, s.switch, s.port, h.node, h.device, h.port) for s, h in pairs]
